"""The queue on disk, put together."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from logging import Logger
from types import TracebackType
from typing import Self

from ahwal.errors import WALClosedError
from ahwal.queue.base import DropReason, Entry, Stats
from ahwal.wal._assembly import Parts
from ahwal.wal._commit import Committer, refused, unreadable
from ahwal.wal._figures import Figures
from ahwal.wal._index import Spot
from ahwal.wal._limits import Limits
from ahwal.wal._line import Commit
from ahwal.wal._log import FiguresLogger
from ahwal.wal._opening import open_parts
from ahwal.wal._reader import decode_record
from ahwal.wal._record import deflate
from ahwal.wal._recovery import RecoveryReport
from ahwal.wal._storage import Storage, open_read
from ahwire import Clock


class WAL:
    """A durable `Queue` in a directory of its own.

    What `append` returned survives the death of the process and a power cut, until it is removed,
    given up by age or size (logged and counted), or set aside (logged and counted). What `remove`
    returned for stays removed after the death of the process; after a power cut the last removals
    may be forgotten, and those entries come again. An id is never given out twice.

    Safe for use from several threads; appends that come together share one sync. One process a
    directory: a second one gets `WALLockedError`. In a child made by `fork` every use raises
    `WALClosedError`. Memory is about 30 bytes an entry, whatever its size.
    """

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 50 * 1024 * 1024,
        max_age_seconds: float | None = 24 * 3600.0,
        segment_bytes: int = 1024 * 1024,
        clock: Clock = time,
        storage: Storage | None = None,
        logger: Logger | None = None,
    ) -> Self:
        """Open the WAL in a directory, which is made when it is not there.

        Damage is no reason to fail: what can be read is there, the rest is counted, set aside and
        logged once. See `recovery`.

        Args:
            path: The directory; it belongs to the WAL alone.
            max_bytes: What it may hold on disk. Over it the oldest segments are given up, but never
                the last one. For a moment it holds this and the record being written.
            max_age_seconds: Older entries are given up; None keeps them.
            segment_bytes: When a new file is begun. At most half of `max_bytes` is used.
            clock: Wall and steady clock.
            storage: The file system; the real one by default. `path` is then only a name.
            logger: Where to log; `ahwal.wal` by default.

        Raises:
            ValueError: A limit is no number above zero, or the path is empty.
            WALLockedError: The directory is in use.
            WALFormatError: A newer version wrote it.
            WALOpenError: It cannot be used for another reason, which is the cause.
        """
        limits = Limits(
            max_bytes=max_bytes, max_age_seconds=max_age_seconds, segment_bytes=segment_bytes
        )
        if not os.fspath(path):
            raise ValueError("the WAL's path is empty: give it a directory")
        logger = FiguresLogger(logger or logging.getLogger("ahwal.wal"), path)
        parts = open_parts(path, storage, limits, clock, logger)
        return cls(parts, logger)

    def __init__(self, parts: Parts, logger: Logger) -> None:
        """Not for callers: use `open`."""
        self._parts = parts
        self._index = parts.index
        self._keeper = parts.keeper
        self._quarantine = parts.quarantine
        self._reader = parts.reader
        self._committer = Committer(parts)
        self._logger = logger
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._figures = self._count()

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found."""
        return self._parts.report

    def append(self, data: bytes) -> int:
        """Store an entry; see `Queue.append`. It is safe from a power cut on return.

        Raises:
            EntryTooLargeError: It is over 64 MiB, or over 16 MiB deflated.
            WALWriteError: The disk refused; the queue is as before and goes on working.
            WALClosedError: It is closed.
        """
        return self.append_many([data])[0]

    def append_many(self, batches: Sequence[bytes]) -> list[int]:
        """Store several entries with one sync a segment, all or none.

        Returns:
            Their ids, increasing.

        Raises:
            EntryTooLargeError: One of them is too large; none is stored.
            WALWriteError: The disk refused; none is in the queue.
            WALClosedError: It is closed.
        """
        self._check_usable()
        if not batches:
            return []
        # Deflating is the larger part of the work and needs no lock.
        commit = Commit([deflate(data) for data in batches])
        self._committer.line.join(commit)
        if not commit.finished:
            self._lead(commit)
        return commit.result()

    def oldest(self) -> Entry | None:
        """Read the first entry; see `Queue.oldest`.

        Raises:
            WALReadError: The disk refused; the entry stays.
            WALClosedError: It is closed.
        """
        entries = self.peek(1, 1)
        return entries[0] if entries else None

    def newest(self) -> Entry | None:
        """Read the waiting entry with the largest id; see `Queue.newest`.

        Raises:
            WALReadError: The disk refused.
            WALClosedError: It is closed.
        """
        with self._held():
            spot = self._index.newest()
            try:
                return None if spot is None else self._reader.entry(spot)
            except OSError as error:
                assert spot is not None, "only reading it can fail"
                raise unreadable(error, spot.id) from error

    def peek(self, max_entries: int, max_bytes: int) -> list[Entry]:
        """Read the first entries; see `Queue.peek`. What is damaged is given up and counted.

        Raises:
            WALReadError: The disk refused the first of them, which stays.
            WALClosedError: It is closed.
        """
        with self._held():
            self._keeper.expire()
            found = self._reader.first(self._index, max_entries, max_bytes)
            if found.damaged:
                self._give_up_damaged(found.damaged)
            self._finish()
        if found.refused is not None and not found.entries:
            raise unreadable(found.refused, found.refused_id) from found.refused
        return found.entries

    def remove(self, entry_id: int) -> None:
        """Forget an entry; see `Queue.remove`.

        A disk that cannot take a note of it is no error: the entry is gone until a restart, which
        may bring it back.

        Raises:
            WALClosedError: It is closed.
        """
        with self._held():
            if self._index.mark_done(entry_id):
                self._keeper.acknowledge([entry_id])
                self._finish()

    def replace(self, entry_id: int, replacements: Sequence[bytes]) -> list[int]:
        """Put others in an entry's place, all or none; see `Queue.replace`.

        Raises:
            EntryTooLargeError: One of them is too large; the entry stays.
            WALWriteError: The disk refused; the entry stays.
            WALClosedError: It is closed.
        """
        self._check_usable()
        payloads = [deflate(data) for data in replacements]
        with self._held():
            spot = self._index.find(entry_id)
            if spot is None:
                return []
            if not payloads:
                self._index.mark_done(entry_id)
                self._keeper.acknowledge([entry_id])
                self._finish()
                return []
            try:
                ids = self._committer.replace(spot, payloads)
            except OSError as error:
                self._keeper.settle_later()
                raise refused(error) from error
            finally:
                self._keeper.enforce()
                self._figures = self._count()
            return ids

    def quarantine(self, entry_id: int) -> bool:
        """Set an entry aside; see `Queue.quarantine` and `quarantined`.

        Raises:
            WALReadError: The disk refused to read it; it stays in the queue.
            WALWriteError: The disk refused to write it; it stays in the queue.
            WALClosedError: It is closed.
        """
        with self._held():
            spot = self._index.find(entry_id)
            if spot is None:
                return False
            try:
                record = self._reader.record(spot)
            except OSError as error:
                raise unreadable(error, entry_id) from error
            if decode_record(record) is None:
                self._give_up_damaged([spot])
                self._finish()
                return False
            try:
                kept = self._quarantine.keep_entry(entry_id, record)
            except OSError as error:
                raise refused(error) from error
            self._index.mark_done(entry_id)
            self._keeper.acknowledge([entry_id])
            self._keeper.enforce()
            self._figures = self._count()
        text = "set aside" if kept else "given up: the quarantine has no room for it"
        self._logger.warning("a batch of the WAL was %s", text, extra={"entry_id": entry_id})
        return kept

    def quarantined(self) -> list[Entry]:
        """The entries set aside, oldest first, all of them in memory.

        Raises:
            WALReadError: The disk refused one.
            WALClosedError: It is closed.
        """
        with self._held():
            found = [self._read_quarantined(entry_id) for entry_id in self._quarantine.entry_ids]
            return [entry for entry in found if entry is not None]

    def requeue(self, entry_id: int, *, data: bytes | None = None) -> int | None:
        """Append an entry that was set aside, under a new id.

        Args:
            entry_id: Its old id.
            data: What to append in its stead; None for what was set aside.

        Returns:
            The new id; None when there is nothing readable set aside under the old one.

        Raises:
            WALReadError: The disk refused to read it.
            WALWriteError: The disk refused to write it; it stays set aside.
            WALClosedError: It is closed.
        """
        with self._held():
            entry = self._read_quarantined(entry_id)
        if entry is None:
            return None
        new_id = self.append(entry.data if data is None else data)
        with self._held():
            try:
                self._quarantine.forget(entry_id)
            except OSError as error:
                raise refused(error) from error
            self._finish()
        return new_id

    def stats(self) -> Stats:
        """The figures after the last finished call; see `Queue.stats`."""
        self._check_usable()
        return self._figures.stats()

    def close(self) -> None:
        """Note what is done, close all files and give the directory back. May be repeated.

        Calls that wait for the disk meanwhile end first; later ones raise `WALClosedError`. In a
        forked child it does nothing: the parent goes on.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._keeper.end(in_place=self._parts.lock.is_in_place())
            self._parts.writer.close()
            self._reader.close()
            self._parts.journal.close()
            self._parts.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise WALClosedError(
                "this WAL belongs to the parent process: open one of its own in the child, "
                "after the fork and in another directory"
            )
        if self._closed:
            raise WALClosedError("the WAL is closed: open it again")

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock of an open WAL."""
        # Before the lock too: it may be held in a forked child, by a thread that is not there.
        self._check_usable()
        with self._lock:
            self._check_usable()
            yield

    def _lead(self, commit: Commit) -> None:
        """Write what is waiting until this commit is done, and let the next lead."""
        written: list[Commit] = []
        try:
            with self._lock:
                while not commit.finished:
                    written += self._committer.commit_waiting(closed=self._closed)
                    if not self._closed:
                        self._keeper.enforce()
                        self._figures = self._count()
        finally:
            self._committer.line.leave(written)

    def _give_up_damaged(self, spots: Sequence[Spot]) -> None:
        for spot in spots:
            offset, size = spot.segment.extent(spot.position)
            try:
                with open_read(self._parts.storage, spot.segment.name) as file:
                    self._quarantine.keep_damage(spot.segment.name, file, offset, size)
            except FileNotFoundError:
                pass  # a file that is gone; what it held may be thousands
            except OSError as error:
                self._logger.warning(
                    "a damaged batch of the WAL could not be set aside",
                    extra={"entry_id": spot.id, "error": str(error)},
                )
        self._keeper.give_up(spots, DropReason.DAMAGED)
        self._logger.warning(
            "damaged batches of the WAL were given up",
            extra={"dropped": len(spots), "batches_left": self._index.live},
        )

    def _read_quarantined(self, entry_id: int) -> Entry | None:
        try:
            record = self._quarantine.read(entry_id)
        except OSError as error:
            raise unreadable(error, entry_id) from error
        return None if record is None else decode_record(record)

    def _finish(self) -> None:
        """The end of each call that may have changed something."""
        self._keeper.tidy()
        self._figures = self._count()

    def _count(self) -> Figures:
        return Figures(
            self._index.live,
            self._keeper.used_bytes,
            self._keeper.dropped,
            self._quarantine.entries,
            self._quarantine.bytes,
            self._quarantine.lost,
        )
