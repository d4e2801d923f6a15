"""What each call notes, from which `stats` makes its answer without waiting for the disk."""

from collections import Counter
from typing import NamedTuple

from ahwal.queue.base import DropReason, Stats


class Figures(NamedTuple):
    """The figures after one call. Plain, because every append makes one and few are looked at.

    Attributes:
        batches: Entries that are waiting.
        bytes: All that counts against the limit.
        dropped: `DropReason` to entries given up; nobody changes it any more.
        quarantined: Entries set aside.
        quarantine_bytes: What is set aside, damaged pieces included.
        quarantine_lost: Entries for which there was no room aside.
    """

    batches: int
    bytes: int
    dropped: Counter[str]
    quarantined: int
    quarantine_bytes: int
    quarantine_lost: int

    def stats(self) -> Stats:
        """The same for users."""
        dropped = self.dropped + Counter({DropReason.QUARANTINE: self.quarantine_lost})
        return Stats(
            batches=self.batches,
            bytes=self.bytes,
            dropped=dropped.total(),
            dropped_by_reason=dropped,
            quarantined=self.quarantined,
            quarantine_bytes=self.quarantine_bytes,
        )
