"""The line in which threads wait for their share of a group commit.

One thread at a time leads: it writes for all who are waiting, tells them, and passes the lead on to
the first who came meanwhile. The others sleep, each on a lock of its own, so that a sync wakes
those it concerns and no chain of threads hands one lock on.

Who leads is only a hint. What makes a group whole is the lock of the WAL, which whoever writes
must hold; a thread that was not told in time tries for that lock itself. So a leader that is
interrupted costs the others a second, and nothing else.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Sequence

from ahwal.errors import WALError
from ahwal.wal._record import HEADER_BYTES

_GROUP_BYTES_MAX = 8 * 1024 * 1024
_PATIENCE_SECONDS = 1.0


class Commit:
    """Payloads that are to be stored together, and what became of them.

    Attributes:
        payloads: Deflated.
        finished: Whether `result` has an answer.
    """

    __slots__ = ("_bell", "_error", "_ids", "finished", "payloads")

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self.payloads = payloads
        self.finished = False
        self._ids: Sequence[int] = ()
        self._error: tuple[WALError, BaseException | None] | None = None
        self._bell: threading.Lock | None = None

    @property
    def size_bytes(self) -> int:
        """What they take on disk."""
        return sum(HEADER_BYTES + len(payload) for payload in self.payloads)

    def succeed(self, ids: Sequence[int]) -> None:
        """They are safe under these ids."""
        self._ids = ids
        self.finished = True

    def fail(self, error: WALError, cause: BaseException | None = None) -> None:
        """None of them is stored."""
        self._error = (error, cause)
        self.finished = True

    def result(self) -> list[int]:
        """The ids, in the thread that asked for them.

        Raises:
            WALError: They are not stored.
        """
        if self._error is not None:
            error, cause = self._error
            raise error from cause
        return list(self._ids)

    def be_asleep(self) -> None:
        """From now on `ring` ends `sleep`."""
        self._bell = threading.Lock()
        self._bell.acquire()

    def sleep(self) -> None:
        """Wait to be rung, for so long as a disk usually takes at most."""
        if self._bell is not None and self._bell.acquire(timeout=_PATIENCE_SECONDS):
            self._bell.release()

    def ring(self) -> None:
        """Wake its thread: it is finished, or its thread is to lead. May be repeated."""
        if self._bell is not None and self._bell.locked():
            with contextlib.suppress(RuntimeError):  # somebody else rang at the same moment
                self._bell.release()


class Line:
    """Commits that wait, first come first served. Safe for use from several threads."""

    def __init__(self) -> None:
        self._waiting: deque[Commit] = deque()
        self._led = False

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, commit: Commit) -> None:
        """Line up, and return when the commit is finished or its thread should write."""
        if not self._led:
            self._led = True
            self._waiting.append(commit)
            return
        commit.be_asleep()
        self._waiting.append(commit)
        # The leader may have left between the two lines above; then nobody would ring.
        if self._led:
            try:
                commit.sleep()
            except BaseException:
                self._step_out(commit)
                raise

    def take(self) -> list[Commit]:
        """The group at the head of the line, within a limit of bytes; at least one must wait."""
        group = [self._waiting.popleft()]
        size = group[0].size_bytes if self._waiting else 0
        while self._waiting and size < _GROUP_BYTES_MAX:
            group.append(self._waiting.popleft())
            size += group[-1].size_bytes
        return group

    def leave(self, group: Sequence[Commit]) -> None:
        """Stop leading: wake those who were written for, and let the first who waits lead."""
        self._led = False
        if self._waiting:
            with contextlib.suppress(IndexError):  # somebody else took it at the same moment
                head = self._waiting[0]
                self._led = True
                head.ring()
        for commit in group:
            commit.ring()

    def _step_out(self, commit: Commit) -> None:
        """A thread is interrupted while it waits: it does not lead, and its turn is the next's."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(commit)
        self.leave(())
