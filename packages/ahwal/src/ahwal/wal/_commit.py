"""Group commit: what several threads bring together is written and synced together."""

from collections import deque
from collections.abc import Sequence

from ahwal.errors import WALClosedError, WALError, WALReadError, WALWriteError
from ahwal.wal._assembly import Parts
from ahwal.wal._index import Spot
from ahwal.wal._journal import Put
from ahwal.wal._record import HEADER_BYTES

_GROUP_BYTES_MAX = 8 * 1024 * 1024


class Commit:
    """Payloads that are to be stored together, and what became of them.

    Attributes:
        payloads: Deflated.
        finished: Whether `result` has an answer.
    """

    __slots__ = ("_error", "_ids", "finished", "payloads")

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self.payloads = payloads
        self.finished = False
        self._ids: Sequence[int] = ()
        self._error: tuple[WALError, BaseException | None] | None = None

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


class Committer:
    """Takes what callers bring, and writes it when it is told to.

    Only `join` may be called by several threads at once.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waiting: deque[Commit] = deque()

    def join(self, commit: Commit) -> None:
        """Line up."""
        self._waiting.append(commit)

    def commit_waiting(self, *, closed: bool) -> None:
        """Finish the commits at the head of the line, as one group; at least one must be waiting.

        Args:
            closed: They all fail, because the WAL is closed.
        """
        commits = [self._waiting.popleft()]
        payloads = commits[0].payloads
        if self._waiting:
            payloads = self._gather(commits)
        try:
            if closed:
                for commit in commits:
                    commit.fail(WALClosedError("the WAL was closed meanwhile: open it again"))
                return
            ids = self._write(payloads)
        except OSError as error:
            for commit in commits:
                commit.fail(refused(error), error)
        except BaseException:
            # Whoever writes is being interrupted; those who rely on it must not wait for ever.
            for commit in commits:
                commit.fail(WALWriteError("the write was interrupted: try it again"))
            raise
        else:
            for commit in commits:
                commit.succeed(ids[: len(commit.payloads)])
                ids = ids[len(commit.payloads) :]

    def _gather(self, commits: list[Commit]) -> list[bytes]:
        """Add what else is waiting to the group, within its limit, and return its payloads."""
        size = commits[0].size_bytes
        while self._waiting and size < _GROUP_BYTES_MAX:
            commits.append(self._waiting.popleft())
            size += commits[-1].size_bytes
        return [payload for commit in commits for payload in commit.payloads]

    def replace(self, spot: Spot, payloads: Sequence[bytes]) -> list[int]:
        """Put records in the place of another and return when they are safe.

        Raises:
            OSError: The old one stands.
        """
        parts = self._parts
        parts.keeper.require_correct_checkpoint()
        first_id = parts.writer.next_id
        end_id = first_id + len(payloads)
        put = Put(spot.id, tuple(range(first_id, end_id)))
        try:
            parts.journal.put(put)
            # Nothing is tidied between its chunks: the index does not know of the swap yet.
            ids = parts.writer.write(
                payloads,
                unix_ms=spot.unix_ms,
                room_bytes=parts.keeper.room_bytes,
                after_chunk=lambda: None,
            )
        finally:
            # The line may be on disk: a record that used one of these ids would complete it.
            parts.writer.next_id = max(parts.writer.next_id, end_id)
        parts.index.put(put)
        parts.keeper.acknowledge([spot.id])
        return ids

    def _write(self, payloads: Sequence[bytes]) -> list[int]:
        parts = self._parts
        parts.keeper.require_correct_checkpoint()
        return parts.writer.write(
            payloads,
            unix_ms=parts.clock.unix_ms(),
            room_bytes=parts.keeper.room_bytes,
            after_chunk=parts.keeper.enforce,
        )


def refused(error: OSError) -> WALWriteError:
    """The error for a write or sync that the disk refused."""
    return WALWriteError(
        f"the disk refused to store it ({error.strerror or error}); nothing was stored and the "
        "queue goes on: try again when the disk is well"
    )


def unreadable(error: OSError, entry_id: int) -> WALReadError:
    """The error for an entry that the disk refused to read."""
    return WALReadError(
        f"the disk refused to read entry {entry_id} ({error.strerror or error}); it stays: try "
        "again, or set it aside",
        entry_id=entry_id,
    )
