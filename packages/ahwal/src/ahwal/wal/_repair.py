"""Making a directory fit to be written to, after `examine` has said what is in it."""

from logging import Logger

from ahwal.wal import _checkpoint, _journal
from ahwal.wal._quarantine import FOLDER, Quarantine
from ahwal.wal._recovery import FORMAT, FORMAT_NAME
from ahwal.wal._scan import is_zeros
from ahwal.wal._segment import Segment
from ahwal.wal._storage import File, Storage, replace_file

_REPLACED = (FORMAT_NAME, _checkpoint.NAME, _journal.NAME)


def prepare_directory(storage: Storage, logger: Logger, *, has_format: bool) -> None:
    """Clear away what stands where our files must be, and write the format.

    Raises:
        OSError: The directory cannot be written; an append would fail too.
    """
    names = set(storage.list())
    for name in (FOLDER, *_REPLACED, *(f"{name}.tmp" for name in _REPLACED)):
        if name not in names:
            continue
        is_file = storage.size(name) is not None
        if is_file and name.endswith(".tmp"):
            storage.unlink(name)
        elif is_file == (name == FOLDER):
            aside = next(
                other for n in range(len(names) + 1) if (other := f"{name}.aside-{n}") not in names
            )
            storage.rename(name, aside)
            logger.warning(
                "something stood in the place of a file of the WAL and was moved aside",
                extra={"file": name, "moved_to": aside},
            )
    if not has_format:
        replace_file(storage, FORMAT_NAME, FORMAT)


def settle_last_segment(
    storage: Storage, quarantine: Quarantine, segment: Segment, logger: Logger
) -> bool:
    """Make the last segment fit to be added to, and what is in it safe.

    A process that was killed may have left records that are written and not synced: they were read
    and may be acknowledged, so they must not vanish any more. A damaged tail is cut off, having
    been set aside when it is not zeros and the quarantine has room; when the disk refuses, it
    stays, and the segment gets no more records.

    Returns:
        Whether records may be added to it.

    Raises:
        OSError: It cannot be synced.
    """
    file = storage.open(segment.name)
    try:
        clean = True
        while clean and segment.damage and sum(segment.damage[-1]) == segment.size_bytes:
            clean = _cut_off_damage(file, quarantine, segment, logger)
        file.datasync()
    finally:
        file.close()
    storage.sync_directory()
    return clean and len(segment) > 0


def _cut_off_damage(file: File, quarantine: Quarantine, segment: Segment, logger: Logger) -> bool:
    """Set the last damage of a segment, which ends it, aside; False when the disk refuses."""
    offset, size = segment.damage[-1]
    try:
        kept = is_zeros(file, offset, size) or quarantine.keep_damage(
            segment.name, file, offset, size
        )
        file.truncate(offset)
    except OSError as error:
        logger.warning(
            "the damaged end of a segment of the WAL could not be set aside and stays",
            extra={"segment": segment.name, "bytes": size, "error": str(error)},
        )
        return False
    if not kept:
        logger.warning(
            "the damaged end of a segment of the WAL was cut off; the quarantine "
            "has no room for it",
            extra={"segment": segment.name, "bytes": size},
        )
    segment.damage.pop()
    segment.size_bytes = offset
    return True
