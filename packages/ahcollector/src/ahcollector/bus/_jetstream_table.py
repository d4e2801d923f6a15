"""Who holds which shard on NATS: one value that every worker changes by compare-and-set.

The table is one key of a KV bucket, so a change of it is one step: whoever writes it saw the last
one. It keeps this law:

* A worker renews by raising its beat. Its leases last `lease_seconds` from before it began the
  renewal that was written, by its own steady clock.
* A worker counts as gone when its beat stood still for `lease_seconds` on the steady clock of one
  that looks. It saw the beat after it was written, so by then the leases are over for their owner,
  too, however far their clocks are apart.
* Whoever finds one gone writes a table without it and takes its shards in the same step. Had the
  other renewed meanwhile, this write is refused; once it is written, the other's renewal is. So
  however long a worker or a message was held up, a shard has one owner.
* Each taking of a shard has a fence of its own, which is higher than all before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from ahcollector.bus.base import SHARDS

__all__ = ["FENCE_MAX", "Beats", "Owner", "Table", "read_table"]

FENCE_MAX: Final = 1 << 62
"""No fence that somebody gave is as high: they are about the time, in ms."""


@attrs.frozen(kw_only=True)
class Owner:
    """Who holds a shard.

    Attributes:
        fence: Of this taking; the name of the lease.
    """

    worker: str
    fence: int


@attrs.frozen(kw_only=True)
class Table:
    """Workers, what they want, and what they hold.

    Attributes:
        fence: The last one given.
        beats: Workers and the number of their last renewal.
        wants: The shards that each would take.
        owners: Held shards.
    """

    fence: int = 0
    beats: Mapping[str, int] = attrs.field(factory=dict)
    wants: Mapping[str, frozenset[int]] = attrs.field(factory=dict)
    owners: Mapping[int, Owner] = attrs.field(factory=dict)

    def write(self) -> bytes:
        """Return it as bytes."""
        return json.dumps(
            {
                "fence": self.fence,
                "workers": {
                    name: {"beat": beat, "wants": sorted(self.wants.get(name, ()))}
                    for name, beat in self.beats.items()
                },
                "owners": {
                    str(shard): [owner.worker, owner.fence] for shard, owner in self.owners.items()
                },
            },
            separators=(",", ":"),
        ).encode()

    def without(self, workers: Collection[str]) -> Table:
        """Return it without some workers and all that they hold."""
        return attrs.evolve(
            self,
            beats={name: beat for name, beat in self.beats.items() if name not in workers},
            wants={name: wanted for name, wanted in self.wants.items() if name not in workers},
            owners={
                shard: owner for shard, owner in self.owners.items() if owner.worker not in workers
            },
        )

    def renewed(self, worker: str, *, beat: int, wants: Collection[int]) -> Table:
        """Return it with a worker that shows that it lives."""
        return attrs.evolve(
            self,
            beats={**self.beats, worker: beat},
            wants={**self.wants, worker: frozenset(wants)},
        )

    def taken(self, worker: str, shards: Collection[int], *, now_ms: int, above: int = 0) -> Table:
        """Return it with shards in the hands of a worker, each under a fence of its own.

        Fences are also no lower than the time, so that they rise although a table was lost, and
        higher than `above`.
        """
        fence = self.fence
        owners = dict(self.owners)
        for shard in shards:
            fence = max(fence + 1, now_ms, above + 1)
            owners[shard] = Owner(worker=worker, fence=fence)
        return attrs.evolve(self, fence=fence, owners=owners)

    def released(self, shard: int, fence: int) -> Table:
        """Return it with a shard free, if it is held under this fence."""
        owner = self.owners.get(shard)
        if owner is None or owner.fence != fence:
            return self
        return attrs.evolve(
            self, owners={one: owner for one, owner in self.owners.items() if one != shard}
        )


def read_table(data: bytes) -> Table | None:
    """Return the table that was written so; None: the bytes are none."""
    try:
        found = json.loads(data)
        workers = dict(found["workers"])
        fence = int(found["fence"])
        if not 0 <= fence < FENCE_MAX:
            return None
        return Table(
            fence=fence,
            beats={str(name): int(one["beat"]) for name, one in workers.items()},
            wants={
                str(name): frozenset(range(SHARDS)).intersection(map(int, one["wants"]))
                for name, one in workers.items()
            },
            owners={
                int(shard): Owner(worker=str(worker), fence=int(fence))
                for shard, (worker, fence) in dict(found["owners"]).items()
                if 0 <= int(shard) < SHARDS
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


class Beats:
    """Since when each worker's beat stands still, as far as this process saw.

    Args:
        lease_seconds: How long a beat may stand still.
    """

    def __init__(self, *, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._seen: dict[str, tuple[int, float]] = {}

    def gone(self, table: Table, *, now: float) -> frozenset[str]:
        """Return the workers of a table that count as gone at this steady time.

        Args:
            table: As it was read.
            now: A time after that.
        """
        self._seen = {
            name: seen
            if (seen := self._seen.get(name)) is not None and seen[0] == beat
            else (beat, now)
            for name, beat in table.beats.items()
        }
        gone = {
            name for name, (_, since) in self._seen.items() if now - since >= self._lease_seconds
        }
        # Owners that no beat speaks for: nobody writes such a table.
        unknown = {owner.worker for owner in table.owners.values()} - set(table.beats)
        return frozenset(gone | unknown)
