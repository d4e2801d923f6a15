"""The outbox of one process in a directory: nothing that `append` returned is lost.

The directory (mode 0700) holds ``outbox.log`` and ``deadletter.jsonl`` (their lines are described
in `ahcollector.outbox._format`), ``lock``, which the process that uses the directory holds with
flock, and ``damaged``, where pieces that could not be read are kept, a line each. Over 16 MiB of
them become ``damaged.old``, in the place of those before. All files have mode 0600. A file
``probe`` is there for a moment when a failed disk is tried again.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

import anyio
import anyio.to_thread

from ahcollector._sealed import replace_file, set_aside, sync_directory
from ahcollector._sealedlog import SealedLog
from ahcollector.errors import OutboxError
from ahcollector.outbox._format import (
    Loaded,
    append_line,
    ids_line,
    letter_line,
    load,
    queue_lines,
)
from ahcollector.outbox._queue import (
    FenceGuard,
    OutboxBounds,
    entry_of,
    full_of,
    letter_of,
    stats_of,
)
from ahcollector.outbox.base import REASON_EXPIRED, DeadLetter, OutboxEntry, OutboxStats
from ahwire import Event

__all__ = ["FileOutbox"]

_COMPACT_LINES_MIN: Final = 1_000
_REPLAY_LETTERS: Final = 500
_DAMAGED_BYTES_MAX: Final = 16 * 1024 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_T = TypeVar("_T")
_log = logging.getLogger("ahcollector.outbox")


class FileOutbox:
    """`Outbox` in a directory of its own. Made by `open`, ended by `close`.

    `append`, `dead`, `replay` and `purge` are synced to the disk before they return. `ack` is
    written and not synced: a power cut that forgets it makes the event be sent again, which the hub
    ignores by its id. Everything is in memory too, so reading costs no disk.

    Each call waits for the one before it; the disk is worked on in a thread. A cancelled call was
    either not begun or is done.
    """

    def __init__(
        self,
        *,
        directory: Path,
        bounds: OutboxBounds,
        lock_descriptor: int,
        queue_log: SealedLog,
        letter_log: SealedLog,
        loaded: Loaded,
    ) -> None:
        self._directory = directory
        self._bounds = bounds
        self._lock_descriptor: int | None = lock_descriptor
        self._queue_log = queue_log
        self._letter_log = letter_log
        self._queue = loaded.queue
        self._letters = loaded.letters
        self._damaged = loaded.damaged
        self.damaged_lines = len(loaded.damaged)
        self._fences = FenceGuard()
        self._disk_failed = False
        self._turn = anyio.Lock()

    @classmethod
    async def open(
        cls, directory: Path, *, now: float, bounds: OutboxBounds | None = None
    ) -> FileOutbox:
        """Open the outbox of a directory, which is made when it does not exist.

        Damaged pieces are set aside, counted and logged; they never hinder the rest. On a full disk
        they stay where they are until there is room, and what waits can be sent.

        Args:
            directory: For this outbox alone.
            now: Unix seconds; when a queued line turns out unreadable, its letter gets this time.
            bounds: How large it may grow.

        Raises:
            OutboxError: Another process holds the directory, or it cannot be used.
        """
        bounds = bounds if bounds is not None else OutboxBounds()
        try:
            outbox = await anyio.to_thread.run_sync(cls._open_blocking, directory, now, bounds)
        except BlockingIOError as error:
            raise OutboxError(
                f"the outbox {directory} is held by another process: stop that one, or give this "
                "one a directory of its own"
            ) from error
        except OSError as error:
            raise OutboxError(
                f"the outbox {directory} cannot be opened ({error}): make room, repair its "
                "permissions or choose another directory"
            ) from error
        if outbox.damaged_lines:
            _log.warning(
                "damaged lines of the outbox were set aside",
                extra={"path": str(directory / "damaged"), "lines": outbox.damaged_lines},
            )
        return outbox

    @classmethod
    def _open_blocking(cls, directory: Path, now: float, bounds: OutboxBounds) -> Self:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_directory(directory.parent)
        lock_descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in ("outbox.log", "deadletter.jsonl"):
                for left in directory.glob(f".{name}.*.tmp"):
                    left.unlink()  # by a compaction that was killed
            queue_log = SealedLog(directory / "outbox.log")
            letter_log = SealedLog(directory / "deadletter.jsonl")
            loaded = load(queue_log.read(), letter_log.read(), bounds, now)
            queue_log.lines, letter_log.lines = loaded.queue_lines, loaded.letter_lines
            outbox = cls(
                directory=directory,
                bounds=bounds,
                lock_descriptor=lock_descriptor,
                queue_log=queue_log,
                letter_log=letter_log,
                loaded=loaded,
            )
            if loaded.changed:
                outbox._tidy()
        except BaseException:
            os.close(lock_descriptor)
            raise
        return outbox

    def _tidy(self) -> None:
        """Set damage aside and write both files anew."""
        # Until that is done, nothing is written behind what is there.
        self._queue_log.broken = self._letter_log.broken = True
        try:
            # Letters first: an event that is in neither file for a moment would be lost.
            self._rewrite_letters()
            self._rewrite_queue()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._disk_failed = True
            _log.warning("outbox not tidied up", extra={"error": str(error)})

    async def close(self) -> None:
        """Let go of the directory; may be repeated. Nothing works after it."""
        async with self._turn:
            self._queue_log.close()
            self._letter_log.close()
            if self._lock_descriptor is not None:
                os.close(self._lock_descriptor)
                self._lock_descriptor = None

    # --- the queue

    async def append(self, events: Sequence[Event], now: float) -> int:
        """Make events durable."""
        async with self._turn:
            entries = self._queue.new(self._letters.without(events), now)
            if self._queue.fitting(entries, self._bounds) < len(entries):
                raise full_of(self._queue, self._bounds)
            if not entries:
                return 0
            await self._disk(lambda: self._write_queue(list(map(append_line, entries)), sync=True))
            self._queue.add(entries)
            return len(entries)

    async def peek(self, limit: int) -> list[OutboxEntry]:
        """Return the oldest entries."""
        return self._queue.first(limit)

    async def ack(self, event_ids: Collection[str], fence: int | None) -> int:
        """Forget delivered events."""
        async with self._turn:
            self._fences.check(fence)
            held = [entry.event.event_id for entry in self._queue.held(event_ids)]
            if held:
                line = ids_line("ack", held)
                await self._disk(lambda: self._write_queue([line], sync=False, leaving=held))
                self._queue.delivered(held)
                await self._compact()
            return len(held)

    async def dead(
        self, event_ids: Collection[str], reason: str, now: float, fence: int | None
    ) -> int:
        """Set events aside."""
        async with self._turn:
            self._fences.check(fence)
            return await self._bury(self._queue.held(event_ids), reason, now)

    async def expire(self, cutoff: float, now: float) -> int:
        """Set old events aside."""
        async with self._turn:
            return await self._bury(self._queue.before(cutoff), REASON_EXPIRED, now)

    async def _bury(self, entries: list[OutboxEntry], reason: str, now: float) -> int:
        letters = [letter_of(entry, reason, now) for entry in entries]
        ids = [letter.letter_id for letter in letters]
        if letters:
            await self._disk(lambda: self._write_letters(list(map(letter_line, letters))))
            for letter in letters:
                self._letters.put(letter)
            line = ids_line("dead", ids)
            await self._disk(lambda: self._write_queue([line], sync=True, leaving=ids))
            self._queue.take(ids)
        overflow = self._letters.overflow(now)
        if overflow:
            await self._disk(lambda: self._write_letters([ids_line("drop", overflow)]))
            self._letters.take(overflow)
            self._letters.dropped += len(overflow)
        if letters or overflow:
            await self._compact()
        return len(ids)

    async def stats(self, now: float) -> OutboxStats:
        """Return the state."""
        return stats_of(self._queue, self._letters, now, damaged_lines=self.damaged_lines)

    # --- dead letters

    async def dead_letters(self, *, after: str = "", limit: int = 500) -> list[DeadLetter]:
        """Return a page of dead letters."""
        return self._letters.page(after, limit)

    async def replay(self, letter_ids: Collection[str] | None, now: float) -> int:
        """Put dead letters back."""
        async with self._turn:
            letters = [letter for letter in self._letters.chosen(letter_ids) if letter.replayable]
            replayed = 0
            # A hundred thousand at once would keep everything else waiting while they are written.
            for begin in range(0, len(letters), _REPLAY_LETTERS):
                some = letters[begin : begin + _REPLAY_LETTERS]
                room = await self._replay_some(some, now)
                replayed += room
                if room < len(some):
                    break
            if letters and not replayed:
                raise full_of(self._queue, self._bounds)
            await self._compact()
            return replayed

    async def _replay_some(self, letters: list[DeadLetter], now: float) -> int:
        entries = [entry_of(letter, now) for letter in letters]
        entries = entries[: self._queue.fitting(entries, self._bounds)]
        ids = [entry.event.event_id for entry in entries]
        if ids:
            await self._disk(lambda: self._write_queue(list(map(append_line, entries)), sync=True))
            self._queue.add(entries)
            await self._disk(lambda: self._write_letters([ids_line("drop", ids)]))
            self._letters.take(ids)
        return len(ids)

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete dead letters."""
        async with self._turn:
            ids = [letter.letter_id for letter in self._letters.chosen(letter_ids)]
            if ids:
                await self._disk(lambda: self._write_letters([ids_line("drop", ids)]))
                self._letters.take(ids)
                await self._compact()
            return len(ids)

    # --- the disk

    async def _disk(self, work: Callable[[], _T]) -> _T:
        if self._lock_descriptor is None:
            raise OutboxError(f"the outbox {self._directory} was closed: open it again")
        try:
            result = await anyio.to_thread.run_sync(work)
        except OSError as error:
            self._disk_failed = True
            raise OutboxError(
                f"the outbox {self._directory} cannot be written ({error}): make room or repair "
                "the disk; events wait at their source until it can"
            ) from error
        self._disk_failed = False
        return result

    async def ping(self) -> None:
        """Raise OutboxError when it is closed, or the last write failed and a small one fails too.

        So an outbox to which nobody appends learns that its disk is well again.
        """
        if self._lock_descriptor is None or self._disk_failed:
            async with self._turn:
                await self._disk(self._probe)

    def _probe(self) -> None:
        path = self._directory / "probe"
        replace_file(path, [b"probe\n"])
        path.unlink()

    def _write_queue(
        self, lines: list[bytes], *, sync: bool, leaving: Collection[str] = ()
    ) -> None:
        if self._queue_log.broken:
            # On a full disk there may be room for what is left when these have left.
            self._rewrite_queue(leaving)
        self._queue_log.append(lines, sync=sync)

    def _write_letters(self, lines: list[bytes]) -> None:
        if self._letter_log.broken:
            self._rewrite_letters()
        self._letter_log.append(lines, sync=True)

    def _set_aside(self) -> None:
        """Keep what was damaged before the file that holds it is replaced."""
        if not self._damaged:
            return
        path = self._directory / "damaged"
        if path.exists() and path.stat().st_size > _DAMAGED_BYTES_MAX:
            path.replace(self._directory / "damaged.old")
        set_aside(path, self._damaged)
        self._damaged = ()

    def _rewrite_queue(self, leaving: Collection[str] = ()) -> None:
        self._set_aside()
        gone = frozenset(leaving)
        staying = (entry for entry in self._queue if entry.event.event_id not in gone)
        self._queue_log.rewrite(queue_lines(staying, self._queue.recent_ids))

    def _rewrite_letters(self) -> None:
        self._set_aside()
        self._letter_log.rewrite(map(letter_line, self._letters))

    async def _compact(self) -> None:
        """Replace a file that is mostly past; a failure only leaves it long until the next time."""
        for log, live, rewrite in (
            (self._queue_log, len(self._queue), self._rewrite_queue),
            (self._letter_log, len(self._letters), self._rewrite_letters),
        ):
            if log.lines > _COMPACT_LINES_MIN + 2 * live:
                try:
                    await self._disk(rewrite)
                except OutboxError as error:
                    _log.warning("outbox not compacted", extra={"error": str(error)})
