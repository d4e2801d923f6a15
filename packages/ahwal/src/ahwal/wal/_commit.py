"""Group commit: what several threads bring together is written and synced together."""

from collections.abc import Sequence

from ahwal.errors import WALClosedError, WALReadError, WALWriteError
from ahwal.wal._assembly import Parts
from ahwal.wal._index import Spot
from ahwal.wal._journal import Put
from ahwal.wal._line import Commit, Line
from ahwal.wal._storage import away

# A deleted file is noticed with each sync. Whether the directory is in its place costs three times
# as much to see, so it is looked at now and then.
_LOOK_EVERY_MS = 1000


class Committer:
    """Writes what is in the line, when it is told to.

    Attributes:
        line: Where callers wait.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._next_look_ms = 0
        self.line = Line()

    def commit_waiting(self, *, closed: bool) -> list[Commit]:
        """Finish the commits at the head of the line, as one group; at least one must be waiting.

        Args:
            closed: They all fail, because the WAL is closed.
        """
        commits = self.line.take()
        try:
            if closed:
                for commit in commits:
                    commit.fail(WALClosedError("the WAL was closed meanwhile: open it again"))
                return commits
            ids = self._write([payload for commit in commits for payload in commit.payloads])
        except OSError as error:
            for commit in commits:
                commit.fail(refused(error), error)
        except BaseException:
            # Whoever writes is being interrupted; those who rely on it must not wait for ever.
            for commit in commits:
                commit.fail(WALWriteError("the write was interrupted: try it again"))
                commit.ring()
            raise
        else:
            for commit in commits:
                commit.succeed(ids[: len(commit.payloads)])
                ids = ids[len(commit.payloads) :]
        return commits

    def replace(self, spot: Spot, payloads: Sequence[bytes]) -> list[int]:
        """Put records in the place of another and return when they are safe.

        Raises:
            OSError: The old one stands.
        """
        parts = self._parts
        self._require_directory()
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
        except BaseException:
            parts.index.void(put.new)
            raise
        finally:
            # The line may be on disk: a record that used one of these ids would complete it.
            parts.writer.next_id = max(parts.writer.next_id, end_id)
        parts.index.put(put)
        parts.keeper.acknowledge([spot.id])
        return ids

    def _write(self, payloads: Sequence[bytes]) -> list[int]:
        parts = self._parts
        unix_ms = parts.clock.unix_ms()
        if unix_ms >= self._next_look_ms:
            self._require_directory()
            self._next_look_ms = unix_ms + _LOOK_EVERY_MS
        parts.keeper.require_correct_checkpoint()
        return parts.writer.write(
            payloads,
            unix_ms=unix_ms,
            room_bytes=parts.keeper.room_bytes,
            after_chunk=parts.keeper.enforce,
        )

    def _require_directory(self) -> None:
        """What is written to a directory that is away is found by nobody after a restart."""
        if not self._parts.lock.is_in_place():
            raise away()


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
