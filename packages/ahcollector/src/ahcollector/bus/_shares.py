"""Which shards a worker takes, and which it gives up: decided alone by each, from what it sees.

A worker's share is the sum over the shards it wants of one by the number of workers that want it,
rounded up; where all want all, that is 64 by the number of workers. A worker takes free shards as
long as it has less, those first that few want. Who has more gives up one at a time, and only while
another one that wants it has less than its own share.

Where wants differ, shares may leave a shard to nobody. So one that was free for two looks in a row
is taken above the share.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Collection, Mapping

import attrs

from ahcollector.bus.base import SHARDS

__all__ = ["Moves", "decide", "shares"]


@attrs.frozen(kw_only=True)
class Moves:
    """What a worker does now.

    Attributes:
        take: Free shards to try for, in this order.
        give: A shard to give up, or None.
        even: Whether nothing is left to do, as far as this worker can see.
    """

    take: tuple[int, ...]
    give: int | None

    @property
    def even(self) -> bool:
        """Whether there is nothing to do."""
        return not self.take and self.give is None


def shares(wants: Mapping[str, frozenset[int]]) -> dict[str, int]:
    """Return the share of each worker."""
    rivals = Counter(shard for wanted in wants.values() for shard in wanted)
    return {
        # Rounded before it is rounded up: a sum of thirds may be a hair above a whole number.
        worker: math.ceil(round(sum(1 / rivals[shard] for shard in wanted), 6))
        for worker, wanted in wants.items()
    }


def decide(
    *,
    me: str,
    wants: Mapping[str, frozenset[int]],
    owners: Mapping[int, str],
    leaving: Collection[int],
    free_before: Collection[int],
) -> Moves:
    """Return the moves of a worker.

    Args:
        me: The worker, one of `wants`.
        wants: Live workers and what they want.
        owners: Held shards and who holds them.
        leaving: Shards that this worker is giving up already.
        free_before: Shards that were free when it looked the last time.
    """
    share = shares(wants)
    rivals = Counter(shard for wanted in wants.values() for shard in wanted)
    has = Counter(owners.values())
    mine = [shard for shard, owner in owners.items() if owner == me and shard not in leaving]
    turn = zlib.crc32(me.encode("utf-8", "replace"))
    free = sorted(
        (shard for shard in wants[me] if shard not in owners),
        # Workers that look at the same time begin at different places.
        key=lambda shard: (rivals[shard], (shard - turn) % SHARDS),
    )
    room = max(0, share[me] - len(mine))
    take = free[:room] + [shard for shard in free[room:] if shard in free_before]
    give = None
    if len(mine) > share[me]:
        asked = [shard for shard in mine if _is_wanted(shard, me, wants, share, has)]
        give = max(asked, key=lambda shard: (rivals[shard], shard), default=None)
    return Moves(take=tuple(take), give=give)


def _is_wanted(
    shard: int,
    me: str,
    wants: Mapping[str, frozenset[int]],
    share: Mapping[str, int],
    has: Mapping[str, int],
) -> bool:
    return any(
        shard in wanted and has[worker] < share[worker]
        for worker, wanted in wants.items()
        if worker != me
    )
