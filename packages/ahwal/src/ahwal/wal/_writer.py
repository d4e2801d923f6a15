"""Adding records to the last segment.

The law this module keeps: an id is used for one record only, from the moment a write was tried. A
record whose write or sync failed may be on the medium all the same; if its id were given out again,
the later record would look like a repetition and be skipped by recovery.
"""

import errno
from collections.abc import Callable, Sequence
from logging import Logger

from ahwal.wal._index import Index
from ahwal.wal._quarantine import Quarantine
from ahwal.wal._record import HEADER_BYTES, ID_MAX, encode
from ahwal.wal._segment import Segment, segment_name
from ahwal.wal._storage import File, Storage, write_all

# One write call takes at most so much, so that a group does not need the memory of all of it twice.
_CHUNK_BYTES_MAX = 4 * 1024 * 1024


class SegmentWriter:
    """Writes records, in chunks of one write and one sync.

    Attributes:
        next_id: The id of the next record.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        index: Index,
        quarantine: Quarantine,
        segment_bytes: int,
        next_id: int,
        logger: Logger,
    ) -> None:
        self._storage = storage
        self._index = index
        self._quarantine = quarantine
        self._segment_bytes = segment_bytes
        self._logger = logger
        self._segment: Segment | None = None
        self._file: File | None = None
        self.next_id = next_id

    @property
    def segment(self) -> Segment | None:
        """The segment that is being added to, None when the next record starts one."""
        return self._segment

    def resume(self, segment: Segment) -> None:
        """Go on in a segment that is there, which must be the last and whole."""
        self._segment = segment

    def write(
        self,
        payloads: Sequence[bytes],
        *,
        unix_ms: int,
        room_bytes: Callable[[], int],
        after_chunk: Callable[[], None],
    ) -> list[int]:
        """Write a record for each payload, in order, and return when they are safe.

        Args:
            payloads: Deflated; at least one.
            unix_ms: The time of all of them.
            room_bytes: What may still be written before the WAL is full. The record that uses it
                up ends its chunk.
            after_chunk: Called when a chunk is safe and more is to come.

        Returns:
            Their ids, increasing and contiguous.

        Raises:
            OSError: None of them is in the queue.
        """
        if self.next_id + len(payloads) - 1 > ID_MAX:
            # Only a record that nobody here wrote leads so far.
            raise OSError(errno.EOVERFLOW, "the ids are used up: begin in another directory")
        ids: list[int] = []
        try:
            while True:
                begin = len(ids)
                end = self._chunk_end(payloads, begin, room_bytes)
                ids += self._write_chunk(payloads[begin:end], unix_ms)
                if end == len(payloads):
                    return ids
                after_chunk()
        except BaseException:
            for record_id in ids:
                self._index.mark_done(record_id)
            raise

    def close(self) -> None:
        """Add no more to the current segment; the next record starts another."""
        self._segment = None
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _chunk_end(
        self, payloads: Sequence[bytes], begin: int, room_bytes: Callable[[], int]
    ) -> int:
        """Behind the last payload that goes into the current segment with the next write."""
        size = HEADER_BYTES + len(payloads[begin])
        used = self._segment.size_bytes if self._segment is not None else 0
        if used and used + size > self._segment_bytes:
            self.close()
            used = 0
        if begin + 1 == len(payloads):
            return len(payloads)
        size_max = min(room_bytes(), _CHUNK_BYTES_MAX)
        for end in range(begin + 1, len(payloads)):
            next_size = HEADER_BYTES + len(payloads[end])
            if size >= size_max or used + size + next_size > self._segment_bytes:
                return end
            size += next_size
        return len(payloads)

    def _write_chunk(self, payloads: Sequence[bytes], unix_ms: int) -> range:
        segment, file = self._segment, self._file
        if segment is None or file is None:
            segment, file = self._open(self.next_id)
        ids = range(self.next_id, self.next_id + len(payloads))
        self.next_id = ids.stop
        records = [
            encode(record_id, unix_ms, payload)
            for record_id, payload in zip(ids, payloads, strict=True)
        ]
        self._write_and_sync(file, b"".join(records), segment.size_bytes)
        for record_id, payload in zip(ids, payloads, strict=True):
            self._index.add(segment, record_id, len(payload), unix_ms)
        return ids

    def _write_and_sync(self, file: File, data: bytes, old_size: int) -> None:
        # A segment in an unknown state, or whose sync failed, is not trusted any more: after a
        # failed sync the system may have dropped what it could not write and call it clean.
        trusted = False
        try:
            try:
                write_all(file, data)
            except OSError:
                file.truncate(old_size)
                trusted = old_size > 0
                raise
            try:
                file.datasync()
            except OSError:
                file.truncate(old_size)
                raise
            trusted = True
        finally:
            if not trusted:
                self.close()

    def _open(self, first_id: int) -> tuple[Segment, File]:
        if self._segment is None:
            name = segment_name(first_id)
            file = self._create(name)
            try:
                self._storage.sync_directory()
            except OSError:
                file.close()
                self._storage.unlink(name)
                raise
            self._file, self._segment = file, Segment(name)
            self._index.add_segment(self._segment)
        elif self._file is None:
            self._file = self._storage.open(self._segment.name)
        assert self._file is not None
        return self._segment, self._file

    def _create(self, name: str) -> File:
        try:
            return self._storage.create(name)
        except FileExistsError:
            # A segment whose records were all damaged does not keep its ids.
            if self._storage.size(name) == 0:
                self._storage.unlink(name)
            else:
                self._quarantine.take_file(name, self._storage.size(name) or 0)
            self._logger.warning(
                "a file stood in the place of a new segment of the WAL and was set aside",
                extra={"segment": name},
            )
            self._index.forget_name(name)
            return self._storage.create(name)
