"""What a directory says, whatever has happened to it.

`examine` only reads. It never refuses to go on because of damage: the only refusals are a format of
a newer version and a directory that cannot be read at all.
"""

from logging import Logger

import attrs

from ahwal.errors import WALFormatError
from ahwal.wal import _checkpoint, _journal
from ahwal.wal._checkpoint import Checkpoint
from ahwal.wal._index import Index
from ahwal.wal._journal import Journal, Put
from ahwal.wal._record import HEADER_BYTES, read_header
from ahwal.wal._scan import is_zeros, scan
from ahwal.wal._segment import Segment, first_id_of
from ahwal.wal._storage import File, Storage, open_read, read_whole

FORMAT_NAME = "format"
FORMAT = b"1"
_FORMAT_BYTES_MAX = 64
# Ids that a segment which cannot be read may have used.
_UNREADABLE_IDS = 2**20
# Nobody lives to append so many.
_REACHABLE_IDS = 2**40


@attrs.frozen(kw_only=True)
class RecoveryReport:
    """What opening a WAL found.

    Attributes:
        records: Valid records in the segments, done or not.
        segments: Segments that could be read.
        damaged_records: Records that could not be read. What stands between two valid ones counts
            as one where nothing tells how many there were.
        torn_bytes: Bytes of an unfinished append or of zeros at the end of the last segment.
        missing_ids: Ids between two segments that nothing accounts for. Some are lost records, some
            were never given out: failed appends skip ids.
        ignored_names: Names in the directory that could not be used though they look like ours.
        checkpoint_believed: Whether the checkpoint was right or absent; everything is sent again
            when it was not.
        bad_journal_lines: Lines of the journal that could not be read.
    """

    records: int = 0
    segments: int = 0
    damaged_records: int = 0
    torn_bytes: int = 0
    missing_ids: int = 0
    ignored_names: tuple[str, ...] = ()
    checkpoint_believed: bool = True
    bad_journal_lines: int = 0

    @property
    def damaged(self) -> bool:
        """Whether there is anything that a crash of the process alone cannot explain."""
        return bool(
            self.damaged_records
            or self.ignored_names
            or self.bad_journal_lines > 1
            or not self.checkpoint_believed
        )


@attrs.frozen(kw_only=True)
class Found:
    """The contents of a directory.

    Attributes:
        index: All records, with what is done marked so.
        next_id: Above all ids that were ever given out.
        checkpoint: The checkpoint file.
        journal: The journal file.
        report: What was found.
    """

    index: Index
    next_id: int
    checkpoint: Checkpoint
    journal: Journal
    report: RecoveryReport


def check_format(storage: Storage) -> bool:
    """Whether the directory says its format; absent or empty means 1.

    Raises:
        WALFormatError: It is one this version does not know.
        OSError: The file cannot be read.
    """
    try:
        content = read_whole(storage, FORMAT_NAME, _FORMAT_BYTES_MAX)
    except IsADirectoryError:
        # Says nothing, and is moved out of the way later.
        content = None
    text = (content or b"").strip(b"\x00 \t\r\n")
    if text not in {b"", FORMAT}:
        found = text.decode("ascii", "replace")
        raise WALFormatError(
            f"has format {found!r} and this version knows format 1: "
            "use a newer version, or another directory",
            found=found,
        )
    return content is not None and text == FORMAT


def examine(storage: Storage, logger: Logger) -> Found:
    """Read a directory without changing it.

    Raises:
        OSError: The directory cannot be read.
    """
    index, ignored, unreadable_id, torn_bytes = _read_segments(storage, logger)
    checkpoint = _checkpoint.decode(_read_checkpoint(storage))
    journal = _read_journal(storage)
    largest_id = index.largest_id
    believed = checkpoint.readable and (not largest_id or checkpoint.watermark <= largest_id)
    watermark = checkpoint.watermark if believed else 0
    segments = index.segments
    report = RecoveryReport(
        records=index.live,
        segments=len(segments),
        damaged_records=sum(s.damaged_records for s in segments) - bool(torn_bytes),
        torn_bytes=torn_bytes,
        missing_ids=_missing_ids(segments, watermark, journal),
        ignored_names=tuple(ignored),
        checkpoint_believed=believed,
        bad_journal_lines=journal.bad_lines,
    )
    _mark_done(index, watermark, journal)
    return Found(
        index=index,
        next_id=_free_id(
            max(checkpoint.watermark, largest_id, journal.largest_id, unreadable_id) + 1, segments
        ),
        checkpoint=attrs.evolve(checkpoint, readable=believed),
        journal=journal,
        report=report,
    )


def _read_checkpoint(storage: Storage) -> bytes:
    """The checkpoint's content, where none is a readable zero."""
    try:
        content = read_whole(storage, _checkpoint.NAME, _checkpoint.SIZE_BYTES_MAX)
    except OSError:
        # A directory in its place, or a bad sector: the same as a file that says nothing.
        return b"?"
    return b"0\n" if content is None else content


def _read_journal(storage: Storage) -> Journal:
    """What the journal says; what a bad sector hides says nothing."""
    try:
        with open_read(storage, _journal.NAME) as file:
            return _journal.decode(_journal.pieces(file))
    except FileNotFoundError:
        return _journal.decode([])
    except OSError:
        return _journal.decode([b"?"])


def _read_segments(storage: Storage, logger: Logger) -> tuple[Index, list[str], int, int]:
    index = Index()
    ignored: list[str] = []
    unreadable_id = torn_bytes = 0
    names = [name for name in storage.list() if first_id_of(name) is not None]
    names.sort(key=lambda name: (_first_id(storage, name), name))
    for name in names:
        try:
            size = storage.size(name)
            if size is None:
                ignored.append(name)
                continue
            file = storage.open_read(name)
            try:
                segment = scan(file, name, size, last_id=index.largest_id)
                if name == names[-1]:
                    torn_bytes = _torn_bytes(file, segment)
            finally:
                file.close()
        except OSError as error:
            logger.warning(
                "a segment of the WAL cannot be read and is left alone",
                extra={"segment": name, "error": str(error)},
            )
            ignored.append(name)
            if int(name[:16], 16) <= _checkpoint.NUMBER_MAX:
                unreadable_id = int(name[:16], 16) + _UNREADABLE_IDS
            continue
        index.add_segment(segment)
    return index, ignored, unreadable_id, torn_bytes


def _first_id(storage: Storage, name: str) -> int:
    """The first id in a segment, which is in its name unless the name lies."""
    named = int(name[:16], 16)
    size = storage.size(name)
    try:
        if size:
            with open_read(storage, name) as file:
                head = file.read(0, HEADER_BYTES)
                if len(head) < HEADER_BYTES or read_header(head).id != named:
                    segment = scan(file, name, size, last_id=0)
                    return segment.record_id(0) if len(segment) else named
    except OSError:
        # Said when it is read in its turn.
        pass
    return named


def _free_id(next_id: int, segments: tuple[Segment, ...]) -> int:
    """The first id from `next_id` on whose segments come to no name of one that holds records."""
    for name in sorted(segment.name for segment in segments if len(segment)):
        named = int(name[:16], 16)
        if next_id <= named < next_id + _REACHABLE_IDS:
            next_id = named + 1
    return next_id


def _torn_bytes(file: File, segment: Segment) -> int:
    """The size of the tail, if it is what an append leaves that was cut short."""
    if not segment.damage:
        return 0
    offset, size = segment.damage[-1]
    if offset + size < segment.size_bytes:
        return 0
    try:
        head = file.read(offset, HEADER_BYTES)
        cut = len(head) < HEADER_BYTES or read_header(head).length_bytes > size - HEADER_BYTES
        return size if cut or is_zeros(file, offset, size) else 0
    except OSError:
        return 0  # no append leaves a bad sector


def _missing_ids(segments: tuple[Segment, ...], watermark: int, journal: Journal) -> int:
    missing, last_id = 0, watermark
    for segment in segments:
        if not len(segment):
            continue
        first_id = segment.record_id(0)
        if first_id > last_id + 1:
            named = sum(last_id < record_id < first_id for record_id in journal.acks)
            missing += first_id - last_id - 1 - named
        last_id = max(last_id, segment.last_id)
    return missing


def _mark_done(index: Index, watermark: int, journal: Journal) -> None:
    """Mark what is done by checkpoint and journal, and put replacements in their places."""
    for segment in index.segments:
        position = segment.next_live()
        while position is not None and segment.record_id(position) <= watermark:
            index.mark_done(segment.record_id(position))
            position = segment.next_live()

    def is_done(record_id: int) -> bool:
        return record_id <= watermark or record_id in journal.acks

    # From the last to the first: what was replaced in its turn needs not be there any more.
    replaced: set[int] = set()
    holding: set[Put] = set()
    for put in reversed(journal.puts):
        if all(is_done(new) or new in replaced or index.find_any(new) for new in put.new):
            replaced.add(put.old)
            holding.add(put)
        elif is_done(put.old) or index.find_any(put.old) is None:
            holding.add(put)
    for put in journal.puts:
        # The line of an attempt that failed says nothing, also where a later one did not.
        if put in holding:
            index.put(put)
        else:
            for new in put.new:
                index.mark_done(new)
    for record_id in journal.acks:
        index.mark_done(record_id)
