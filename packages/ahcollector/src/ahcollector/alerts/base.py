"""The states of alerts between processes: values, and the protocol of what keeps them.

A *unit* is what one company has by one shard of the bus. All series of a server come by one shard,
and a shard has one owner, so a unit is judged by one process at a time, and moves with its shard.

The law that every `AlertStateStore` keeps:

* `commit` is one step: what it carries is kept whole, or nothing of it. It may be repeated.
* `claim` makes its caller the owner. What an owner before it commits afterwards is refused, and
  changes nothing; so a process that was asleep while its shard was taken over moves no state.
  Each claim's epoch is above all before it; of a store that has forgotten everything, as far as its
  clock goes on.
* An *intent* is an event that was decided. It is kept with the state that decided it, under the id
  and the seq it was given then, until `told` takes it away; `claim` hands intents out in the order
  of their seq. So whoever owns the unit next goes on with the same events.
* Units are apart: nothing of one is read or changed by what is done to another.
* What cannot be read is counted in the image and kept aside, never raised and never in the way of
  what can be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import attrs

from ahcollector.errors import FencedAlertStateError
from ahwire import Event

__all__ = ["AlertChange", "AlertImage", "AlertStateStore", "StoreGlance", "UnitKey", "taken_over"]


@attrs.frozen(kw_only=True, order=True)
class UnitKey:
    """Names a unit.

    Attributes:
        shard: A shard of the bus.
        company_id: The tenant.
    """

    shard: int
    company_id: str


def taken_over(key: UnitKey) -> FencedAlertStateError:
    """Return the error of whoever no longer owns a unit."""
    return FencedAlertStateError(
        f"the alerts of company {key.company_id} in shard {key.shard} were taken over: claim them "
        "again"
    )


@attrs.frozen(kw_only=True)
class AlertImage:
    """What is kept of a unit.

    Attributes:
        epoch: Rises with each `claim`; what its owner's commits carry.
        seq: The newest seq that was given.
        base: The newest whole snapshot, by part; empty when there is none.
        pieces: What moved since, by name; each is newer than the base.
        intents: Events decided and not told, in the order of their seq.
        damaged: How many pieces of stored data could not be read and were kept aside.
    """

    epoch: int
    seq: int = 0
    base: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    pieces: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    intents: tuple[Event, ...] = ()
    damaged: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever committed."""
        return not (self.seq or self.base or self.pieces or self.intents)


@attrs.frozen(kw_only=True)
class StoreGlance:
    """What a store says of itself and of units, without moving anything.

    Attributes:
        birth: Another one than before: the store has forgotten everything in between.
        epochs: Of the units that were asked for, those that it knows.
    """

    birth: str
    epochs: Mapping[UnitKey, int] = attrs.field(factory=dict, hash=False)


@attrs.frozen(kw_only=True)
class AlertChange:
    """What is committed in one step.

    Attributes:
        seq: The newest seq that was given.
        base: A whole snapshot, which replaces the one before and all pieces; None: that stays.
        pieces: What moved, by name; None: what was kept under the name goes.
        intents: Events decided.
    """

    seq: int
    base: Mapping[str, str] | None = attrs.field(default=None, hash=False)
    pieces: Mapping[str, str | None] = attrs.field(factory=dict, hash=False)
    intents: tuple[Event, ...] = ()

    def on(self, image: AlertImage) -> AlertImage:
        """Return the image with this change in it."""
        pieces = dict(image.pieces) if self.base is None else {}
        for name, piece in self.pieces.items():
            if piece is None:
                pieces.pop(name, None)
            else:
                pieces[name] = piece
        intents = {event.event_id: event for event in (*image.intents, *self.intents)}
        return attrs.evolve(
            image,
            seq=max(image.seq, self.seq),
            base=image.base if self.base is None else dict(self.base),
            pieces=pieces,
            intents=tuple(sorted(intents.values(), key=lambda event: event.seq)),
        )


class AlertStateStore(Protocol):
    """Keeps the states of alerts, and events decided until the outbox has them.

    Every method may raise `AlertStateError` when the store gives no answer; what was asked for may
    or may not have been done, and every method may be repeated.
    """

    async def units(self, shards: Collection[int]) -> list[UnitKey]:
        """Return the units of these shards of which something is kept, in order."""
        ...

    async def look(self, keys: Collection[UnitKey]) -> StoreGlance:
        """Return the epochs of units, and whether this is still the store of before."""
        ...

    async def claim(self, key: UnitKey) -> AlertImage:
        """Become the owner of a unit, and return what is kept of it."""
        ...

    async def commit(self, key: UnitKey, epoch: int, change: AlertChange) -> None:
        """Keep a change; returns when it is as durable as the store can make it.

        Raises:
            FencedAlertStateError: The unit was claimed since, or is not there any more; nothing
                was kept.
        """
        ...

    async def told(self, key: UnitKey, event_ids: Collection[str]) -> None:
        """Forget intents: the outbox has their events."""
        ...

    async def set_aside(self, key: UnitKey, epoch: int) -> None:
        """Keep a copy of the snapshot and the pieces where nobody reads them again.

        Raises:
            FencedAlertStateError: As `commit`.
        """
        ...

    async def remove(self, key: UnitKey, epoch: int) -> None:
        """Forget a unit; one that has intents stays.

        Raises:
            FencedAlertStateError: As `commit`.
        """
        ...
