"""Keeping the directory small and its checkpoint true.

The laws this module keeps:

- A segment is unlinked only when everything in it is done and the checkpoint that says so is safe.
  While no checkpoint can be written, the newest segment that has records stays, so that no id is
  given out twice, and the others go all the same: a full disk needs their room.
- The checkpoint is safe before the journal loses the lines it makes superfluous.
- Nothing here fails an operation whose own part is done: an append that is safe stays safe when
  the checkpoint behind it cannot be written. What could not be written is tried again with the
  next operation, and said once in the log.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from logging import Logger

from ahwal.queue.base import DropReason
from ahwal.wal import _checkpoint
from ahwal.wal._index import Index, Spot
from ahwal.wal._journal import JournalFile
from ahwal.wal._limits import AgeClock, Limits, oldest_over_size
from ahwal.wal._quarantine import Quarantine
from ahwal.wal._segment import Segment
from ahwal.wal._storage import Storage, is_medium_error, open_read, replace_file
from ahwal.wal._writer import SegmentWriter

# When the journal is rewritten for the sake of its size alone: not before it has doubled, because
# all of it may be needed.
_JOURNAL_BYTES_MAX = 64 * 1024
# From so many acknowledgements on, a checkpoint is cheaper than the lines.
_ACK_LINES_MAX = 256
_REPORT_EVERY_MS = 60_000


class Keeper:
    """Acknowledgements, limits, checkpoint and the end of segments.

    Attributes:
        dropped: `DropReason` to how many entries were given up. A new one takes its place when
            that changes, so what was read once stays as it was.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        index: Index,
        journal: JournalFile,
        quarantine: Quarantine,
        writer: SegmentWriter,
        limits: Limits,
        clock: AgeClock,
        saved_watermark: int | None,
        logger: Logger,
    ) -> None:
        self._storage = storage
        self._index = index
        self._journal = journal
        self._quarantine = quarantine
        self._writer = writer
        self._limits = limits
        self._clock = clock
        self._logger = logger
        self._saved_watermark = saved_watermark
        self._reserved_id = 0
        self._pending = False
        self._unlinked = False
        self._correct = True
        self._warned = False
        self._reported: Counter[str] = Counter()
        self._all_reported: Counter[str] | None = None
        self._next_report_ms = 0
        self.dropped: Counter[str] = Counter()

    @property
    def used_bytes(self) -> int:
        """What counts against the limit."""
        return self._index.segment_bytes + self._quarantine.bytes + self._journal.size_bytes

    def room_bytes(self) -> int:
        """What may still be written before the limit is passed."""
        return -self._limits.excess_bytes(self.used_bytes)

    def distrust_checkpoint(self, named_id: int) -> None:
        """The checkpoint on disk is wrong: replace it before anything else changes.

        Args:
            named_id: The id it names. It may have been given out, so it is not given out again.
        """
        self._correct = False
        self._reserved_id = named_id

    def require_correct_checkpoint(self) -> None:
        """Return only when a wrong checkpoint can no longer come to be believed.

        Raises:
            OSError: It could not be replaced.
        """
        if not self._correct:
            self._save()

    def settle_later(self) -> None:
        """Something on disk is superfluous or half done: rewrite with the next operation."""
        self._pending = True

    def acknowledge(self, record_ids: Sequence[int]) -> None:
        """Note on disk that records are done, which they are in the index already."""
        if len(record_ids) > _ACK_LINES_MAX or not self._journal.whole:
            self._pending = True
        elif record_ids and not self._pending:
            self._attempt(lambda: self._acknowledge(record_ids))

    def count_drops(self, reason: DropReason, count: int) -> None:
        """Entries were given up."""
        if count:
            self.dropped = self.dropped + Counter({reason: count})

    def give_up(self, spots: Iterable[Spot], reason: DropReason) -> None:
        """Drop entries and count them; the caller logs."""
        ids = [spot.id for spot in spots if self._index.mark_done(spot.id)]
        self.count_drops(reason, len(ids))
        self.acknowledge(ids)

    def enforce(self) -> None:
        """Give up what is over the limits, age first, then size; then tidy."""
        self.expire()
        excess = self._limits.excess_bytes(self.used_bytes)
        if excess > 0:
            for segment in oldest_over_size(self._index.segments, excess):
                ids = segment.live_ids()
                for record_id in ids:
                    self._index.mark_done(record_id)
                self.count_drops(DropReason.SIZE, len(ids))
                self._pending = True
        self.tidy()
        self.report_drops()

    def expire(self) -> None:
        """Give up what is too old, from the oldest to the first that is not."""
        if self._limits.max_age_seconds is None:
            return
        oldest_ms = self._clock.unix_ms() - self._limits.max_age_seconds * 1000
        expired: list[int] = []
        while (spot := self._index.first()) is not None and spot.unix_ms < oldest_ms:
            self._index.mark_done(spot.id)
            expired.append(spot.id)
        if expired:
            self.count_drops(DropReason.AGE, len(expired))
            self.acknowledge(expired)
        self.report_drops()

    def report_drops(self, *, at_once: bool = False) -> None:
        """Log what age and size cost since the last time, at most once a minute."""
        if self.dropped is self._all_reported:
            return
        limited = (DropReason.AGE, DropReason.SIZE)
        new = {r: self.dropped[r] - self._reported[r] for r in limited}
        new = {reason: count for reason, count in new.items() if count}
        now_ms = self._clock.unix_ms()
        if new and not (at_once or now_ms >= self._next_report_ms):
            return
        self._all_reported = self.dropped
        if not new:
            return
        self._next_report_ms = now_ms + _REPORT_EVERY_MS
        self._reported.update(new)
        self._logger.warning(
            "the WAL gave up its oldest batches",
            extra={"dropped": new, "batches_left": self._index.live},
        )

    def tidy(self) -> None:
        """Take away what is finished, when there is something."""
        # Asked after each call, so the usual answer is found at once.
        usual = not (self._pending or self._index.dead)
        if usual and self._journal.size_bytes <= _JOURNAL_BYTES_MAX:
            return
        if self._pending or self._journal_too_long() or self._has_finished_segments():
            self.settle()

    def settle(self) -> None:
        """Bring the disk to what the index says, as far as it lets us."""
        saved = self._attempt(self._save)
        self._pending = not saved
        if saved:
            self._warned = False
        self._unlink_finished()

    def end(self, *, in_place: bool) -> None:
        """Settle for the last time, and say what has not been said.

        Args:
            in_place: Whether the directory is where the next opening will look for it.
        """
        if not in_place:
            self._logger.error(
                "the directory of the WAL is not where it was: it was renamed, deleted or "
                "replaced, or its lock removed; its batches come back only with it",
                extra={"batches": self._index.live},
            )
        self.settle()
        self.report_drops(at_once=True)

    def _save(self) -> None:
        """Write checkpoint and journal."""
        watermark = self._index.watermark(self._writer.next_id)
        acks, puts = self._index.journal_lines(watermark)
        if self._reserved_id > max(watermark, self._index.largest_id):
            acks = [*acks, self._reserved_id]
            self._make_unlinking_safe()
            # Safe before the checkpoint that said so is replaced.
            self._journal.rewrite(acks, puts)
        if watermark != self._saved_watermark:
            self._saved_watermark = None
            replace_file(self._storage, _checkpoint.NAME, _checkpoint.encode(watermark))
            self._saved_watermark = watermark
            self._unlinked = False
        self._correct = True
        self._make_unlinking_safe()
        self._journal.rewrite(acks, puts)

    def _make_unlinking_safe(self) -> None:
        """The journal says nothing more about what was unlinked, so it must not come back."""
        if self._unlinked:
            self._storage.sync_directory()
            self._unlinked = False

    def _journal_too_long(self) -> bool:
        size = self._journal.size_bytes
        return size > _JOURNAL_BYTES_MAX and size > 2 * self._journal.needed_bytes

    def _has_finished_segments(self) -> bool:
        finished = self._index.dead - {self._writer.segment}
        return bool(finished and finished - {self._protected()})

    def _acknowledge(self, record_ids: Sequence[int]) -> None:
        self.require_correct_checkpoint()
        self._journal.ack(record_ids)

    def _protected(self) -> Segment | None:
        """The newest segment with records: it says which ids were given out."""
        return next((s for s in reversed(self._index.segments) if len(s)), None)

    def _unlink_finished(self) -> None:
        kept = {self._writer.segment, self._protected()}
        going = [s for s in self._index.segments if s in self._index.dead and s not in kept]
        for segment in going:
            if self._attempt(lambda segment=segment: self._unlink(segment)):  # type: ignore[misc]  # a default in a lambda
                self._index.drop_segment(segment)
            else:
                self._pending = True

    def _unlink(self, segment: Segment) -> None:
        if segment.damage:
            if not self._keep_damage(segment):
                # The disk cannot read it, but can give it another name.
                self._quarantine.take_file(segment.name, segment.size_bytes)
                self._storage.sync_directory()
                return
            segment.damage.clear()
        self._unlinked = True
        try:
            self._storage.unlink(segment.name)
        except FileNotFoundError:
            self._logger.warning(
                "a finished segment of the WAL was gone already", extra={"segment": segment.name}
            )

    def _keep_damage(self, segment: Segment) -> bool:
        """Set the damage in a segment aside; False when it cannot be read."""
        with open_read(self._storage, segment.name) as file:
            for offset, size in segment.damage:
                try:
                    self._quarantine.keep_damage(segment.name, file, offset, size)
                except OSError as error:
                    if is_medium_error(error) and self._quarantine.has_room(segment.size_bytes):
                        return False
                    if not is_medium_error(error):
                        raise
        return True

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Whether the disk let it happen. The first refusal in a row is logged."""
        try:
            action()
        except OSError as error:
            self._pending = True
            if not self._warned:
                self._warned = True
                self._logger.warning(
                    "the WAL cannot note what is done; it tries again, and after a restart "
                    "some batches may be sent a second time",
                    extra={"error": str(error)},
                )
            return False
        return True
