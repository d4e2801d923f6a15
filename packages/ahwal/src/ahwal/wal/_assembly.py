"""Opening a directory: what is in it, made fit for writing, and the parts that go on."""

import contextlib
from logging import Logger

import attrs

from ahwal.queue.base import DropReason
from ahwal.wal import _journal
from ahwal.wal._index import Index
from ahwal.wal._journal import JournalFile
from ahwal.wal._keeper import Keeper
from ahwal.wal._limits import AgeClock, Limits
from ahwal.wal._quarantine import Quarantine
from ahwal.wal._reader import Reader
from ahwal.wal._recovery import Found, RecoveryReport, check_format, examine
from ahwal.wal._repair import prepare_directory, settle_last_segment
from ahwal.wal._segment import segment_name
from ahwal.wal._storage import Lock, Storage
from ahwal.wal._writer import SegmentWriter
from ahwire import Clock


@attrs.frozen(kw_only=True)
class Parts:
    """The parts of an open WAL, which know each other."""

    storage: Storage
    lock: Lock
    index: Index
    journal: JournalFile
    quarantine: Quarantine
    reader: Reader
    writer: SegmentWriter
    keeper: Keeper
    clock: AgeClock
    report: RecoveryReport


def assemble(storage: Storage, limits: Limits, clock: Clock, logger: Logger) -> Parts:
    """Take the directory, recover what is in it, and bring it into order.

    Raises:
        WALLockedError: Somebody else has it.
        WALFormatError: A newer version wrote it; nothing was touched.
        OSError: It cannot be used.
    """
    # Before anything is touched, the lock file included.
    has_format = check_format(storage)
    storage.make()
    lock = storage.lock()
    try:
        prepare_directory(storage, logger, has_format=has_format)
        found = examine(storage, logger)
        parts = _connect(storage, lock, found, limits, clock, logger)
        _bring_into_order(parts, found)
    except BaseException:
        lock.release()
        raise
    _log(found.report, parts, logger)
    return parts


def _connect(
    storage: Storage, lock: Lock, found: Found, limits: Limits, clock: Clock, logger: Logger
) -> Parts:
    quarantine = Quarantine(storage, limits.quarantine_bytes_max)
    writer = SegmentWriter(
        storage=storage,
        index=found.index,
        quarantine=quarantine,
        segment_bytes=limits.effective_segment_bytes,
        next_id=found.next_id,
        logger=logger,
    )
    last = found.index.last_segment
    if last is not None:
        before = last.size_bytes
        fit = settle_last_segment(storage, quarantine, last, logger)
        found.index.segment_bytes -= before - last.size_bytes
        # Records must not get ids above those of a later segment that cannot be read just now.
        if fit and not any(
            name > segment_name(last.last_id) for name in found.report.ignored_names
        ):
            writer.resume(last)
    journal = JournalFile(
        storage, storage.size(_journal.NAME) or 0, whole=not found.journal.bad_lines
    )
    age_clock = AgeClock(clock, found.index.newest_unix_ms)
    keeper = Keeper(
        storage=storage,
        index=found.index,
        journal=journal,
        quarantine=quarantine,
        writer=writer,
        limits=limits,
        clock=age_clock,
        saved_watermark=found.checkpoint.watermark if found.checkpoint.readable else None,
        logger=logger,
    )
    return Parts(
        storage=storage,
        lock=lock,
        index=found.index,
        journal=journal,
        quarantine=quarantine,
        reader=Reader(
            storage,
            clock,
            logger,
            is_away=lambda: not (lock.is_in_place() or lock.is_deleted()),
        ),
        writer=writer,
        keeper=keeper,
        clock=age_clock,
        report=found.report,
    )


def _bring_into_order(parts: Parts, found: Found) -> None:
    keeper = parts.keeper
    keeper.count_drops(DropReason.DAMAGED, found.report.damaged_records)
    if not found.checkpoint.readable:
        keeper.distrust_checkpoint(found.checkpoint.watermark)
    if not found.checkpoint.readable or found.journal.bad_lines or found.journal.puts:
        keeper.settle_later()
    # Before the limit is enforced, or the queue would pay for what an earlier version, counting
    # no blocks, or a larger limit let in here. What cannot be taken away now can be later.
    with contextlib.suppress(OSError):
        parts.quarantine.shrink()
    keeper.enforce()


def _log(report: RecoveryReport, parts: Parts, logger: Logger) -> None:
    fields = attrs.asdict(report) | {"batches": parts.index.live}
    if report.damaged:
        logger.warning("the WAL was recovered with damage", extra=fields)
    elif report.records or report.torn_bytes:
        logger.info("batches were recovered from the WAL", extra=fields)
