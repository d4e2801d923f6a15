"""Batches between ingest and workers: the protocol.

The law that every implementation keeps is said in `ahcollector.bus`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol, runtime_checkable

import attrs

__all__ = [
    "ALONE_FROM",
    "SHARDS",
    "TRIES_MAX",
    "AtEnd",
    "Bus",
    "BusDeadLetter",
    "BusDeadLetters",
    "Delivery",
    "Handler",
    "ReadyHandler",
    "Receipt",
    "SampleBatch",
    "StoredSeries",
    "shard_for",
]

SHARDS: Final = 64
"""How many shards every bus has; part of the contract between processes."""

TRIES_MAX: Final = 5
"""How often an entry is handed over before it becomes a dead letter."""

ALONE_FROM: Final = 3
"""From this try on, an entry that processes died with is the only such one in a handler."""

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


def shard_for(server_id: str) -> int:
    """Return the shard of a server: FNV-1a 32 of the id's UTF-8 bytes, modulo 64."""
    value = _FNV_OFFSET
    for byte in server_id.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value % SHARDS


@attrs.frozen(kw_only=True)
class StoredSeries:
    """One series as it will be stored.

    Attributes:
        labels: Pairs of name and value: ``__name__``, ``company_id`` and ``server_id`` first, then
            the others sorted by name. The tuple is the identity of the series. The name is the
            stored one, as `ahwire.names.metric_name` makes it: ``ah_shop_orders``, not
            ``shop.orders``. The bus and the stores take another one, and no range finds it.
        points: Pairs of Unix milliseconds and value, in the order in which they were sent.
    """

    labels: tuple[tuple[str, str], ...]
    points: tuple[tuple[int, float], ...]


@attrs.frozen(kw_only=True)
class SampleBatch:
    """What one accepted request brought, with the tenancy that the registry gave it.

    Attributes:
        company_id: Whose it is; also in the labels of every series.
        server_id: The server it is of; also in the labels. Decides the shard (`shard_for`).
        agent_id: Who sent it.
        request_id: The id that the agent, the logs and the bus know the request by.
        received_at_ms: Receipt time, Unix milliseconds.
        series: What it brought, in the order in which it was sent.
    """

    company_id: str
    server_id: str
    agent_id: str
    request_id: str
    received_at_ms: int
    series: tuple[StoredSeries, ...]

    @property
    def samples(self) -> int:
        """Number of points in all series."""
        return sum(len(series.points) for series in self.series)


class Receipt(Protocol):
    """Settles an entry that was handed over, once: what is asked of it afterwards has no effect.

    Nor has it an effect after the subscription ended, when the entry is the next subscriber's.
    """

    async def ack(self) -> None:
        """Let the bus forget the entry: its samples are stored, or set aside. May be repeated."""
        ...

    async def again(self) -> None:
        """Have the entry handed over again, although nothing was wrong with it.

        The hand-over that comes is a first try, and has the batch and a receipt of its own. Those
        asked for again come before what waits, in their old order where they are asked for
        together. May be called inside the handler, or long after it returned.
        """
        ...


class Delivery(Receipt, Protocol):
    """One entry handed over to a handler."""

    @property
    def batch(self) -> SampleBatch:
        """The batch."""
        ...

    @property
    def shard(self) -> int:
        """The shard it came by."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first hand-over."""
        ...

    @property
    def receipt(self) -> Receipt:
        """What settles this hand-over as the delivery does, and does not keep the batch alive."""
        ...

    async def clear_tries(self) -> None:
        """Have the tries of the entry forgotten: it was gone through with, and ended no process.

        Or its handler has to wait for what is no fault of the entry. Where processes share a bus,
        an entry that was held by one that died has a try more, whether it was in the handler or the
        handler had taken it; a handler that goes on with it after it returned tells here when that
        is over. `ack` and `again` tell it as well.

        From `ALONE_FROM` tries on the handler's return tells it, too: such an entry is handed over
        alone, and whoever wants to know whether it is the one that kills goes through with it
        before the return. So of many entries that a process held when it died, only the one that
        it dies of comes to `TRIES_MAX`. Has no effect after the entry was settled or the
        subscription ended. Returns at once, and may be repeated.
        """
        ...


Handler = Callable[[Delivery], Awaitable[None]]
"""Takes responsibility for a delivery: returning does not acknowledge it, raising counts as a try.

Waiting inside is how a handler slows its shard down. One that waits there for what is no
fault of an entry had better be a `ReadyHandler`.
"""


@runtime_checkable
class ReadyHandler(Protocol):
    """A `Handler` that tells when an entry may be tried once more.

    Every bus looks for `ready` at the handler that `subscribe` is given, and asks it before it
    counts a further try. So a process that dies while the handler waits there for room, or for a
    store, costs the entries that wait no try, however often that happens. First tries are not asked
    for, and cost nothing; nor are, on Redis, second tries after a death, which are counted together
    when a shard is taken over.
    """

    async def __call__(self, delivery: Delivery) -> None:
        """Take responsibility for a delivery, as every `Handler` does."""
        ...

    async def ready(self, shard: int) -> None:
        """Return when an entry of a shard may be tried once more.

        It is cancelled when the subscription or the lease of the shard ends. When it raises, that
        is told in the log, and the try is made.
        """
        ...


AtEnd = Callable[[], Awaitable[None]]
"""Called once when a closed bus has handed over everything: the last chance to acknowledge."""


@attrs.frozen(kw_only=True)
class BusDeadLetter:
    """An entry that no handler could take.

    Attributes:
        letter_id: Names it among the dead letters of its bus.
        batch: None when the entry cannot be read; such a letter cannot be replayed.
        shard: The shard it came by; None when the entry does not tell.
        reason: What was wrong, as a text.
        dead_at: Unix seconds.
    """

    letter_id: str
    batch: SampleBatch | None
    shard: int | None
    reason: str
    dead_at: float


class BusDeadLetters(Protocol):
    """The dead letters of a bus, for those who decide about them.

    Every method may raise `BusError` when what keeps them gives no answer; what was asked for may
    or may not have been done, and every method may be repeated.
    """

    async def letters(self, *, after: str = "", limit: int = 100) -> list[BusDeadLetter]:
        """Return letters, oldest first, those behind the letter `after`; one page.

        A page has `limit` letters at most, and fewer where they are large: what is in memory at a
        time is bounded, but for one letter. An empty page is the end. A letter that is gone stands
        where it stood: what is behind it is returned.
        """
        ...

    async def replay(self, letter_ids: Collection[str] | None) -> int:
        """Publish letters again, oldest first (None: all that are there now); return how many.

        A letter goes when its batch is on the bus; a crash in between publishes it twice, which
        changes nothing in a store. It ends early where the bus has no room; what cannot be read
        stays.
        """
        ...

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters for good (None: all), and return how many."""
        ...

    async def count(self) -> int:
        """Return how many there are."""
        ...


class Bus(Protocol):
    """Carries batches from ingest to workers."""

    @property
    def is_shared(self) -> bool:
        """Whether what is on it outlives this process, and is handed over by another one.

        A worker that stops leaves the rest on such a bus, and empties one that is not.
        """
        ...

    async def publish(self, batch: SampleBatch) -> None:
        """Put a batch on the shard of its server; never waits for room.

        Raises:
            BusFull: The shard has no room now.
            BusClosed: The bus was closed.
        """
        ...

    async def subscribe(
        self, shards: Collection[int], handler: Handler, *, at_end: AtEnd | None = None
    ) -> None:
        """Hand the entries of `shards` to `handler`, each shard in order, shards side by side.

        Runs until cancelled, or until the bus is closed, nothing waits in its shards, and `at_end`
        returned. It does not wait for what is held: while `at_end` runs, acknowledgements still
        count, and what is asked for again is the next subscriber's. Cancellation loses nothing:
        what is held goes to the next subscriber.

        Raises:
            BusError: A shard is taken by another subscriber of this process, or does not exist.
        """
        ...

    def tenures(self) -> Mapping[int, object]:
        """Return the shards that are handed over here now, each with what its tenure is known by.

        A shard that was handed over elsewhere in between, however shortly, is known by something
        else when it is back.
        """
        ...

    def depth(self) -> Mapping[int, int]:
        """Return for each shard how many entries wait to be handed over; held ones do not count."""
        ...

    async def close(self) -> None:
        """Take nothing more; subscribers finish what waits, then end."""
        ...
