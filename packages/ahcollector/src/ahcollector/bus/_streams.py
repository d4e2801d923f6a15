"""What the bus does in Redis: one method a command or script; the files in ``lua`` say the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Final

import attrs

from ahcollector._redis_refusals import refusal
from ahcollector.bus._hand_over import Read
from ahcollector.errors import BusError, RedisError
from ahcollector.redis import RedisClient, Script

__all__ = ["Fetched", "Look", "Settlement", "ShardStreams", "Taken", "id_of", "place_of"]

_GROUP: Final = "workers"
# One name for all: who owns a shard is what its lease says, and names of processes that are gone
# would pile up in the group for ever.
_CONSUMER: Final = "owner"
_FIELD: Final = b"b"


@attrs.frozen(kw_only=True)
class Look:
    """What a worker sees of the others.

    Attributes:
        lost: Shards of its own whose lease is gone.
        wants: Live workers and the shards that each would take.
        owners: Held shards and their workers.
        strange: What no worker wrote: the kind of its key, and a text that names it.
    """

    lost: frozenset[int]
    wants: Mapping[str, frozenset[int]]
    owners: Mapping[int, str]
    strange: Sequence[tuple[str, str]] = ()


@attrs.frozen(kw_only=True)
class Taken:
    """A shard that was won, and how many of its entries were read before and not settled."""

    shard: int
    lease: str
    pending: int


@attrs.frozen(kw_only=True)
class Settlement:
    """What is to be forgotten of a shard: entries, and the tries of others."""

    shard: int
    lease: str
    acked: Sequence[bytes]
    taken: Sequence[bytes]


@attrs.frozen(kw_only=True)
class Fetched:
    """Entries that were pending, and at how many of those asked for it was looked."""

    reads: Sequence[Read]
    looked_at: int


def place_of(entry_id: bytes) -> tuple[int, int]:
    """Return what entries of a stream are in the order of."""
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number)


def id_of(place: tuple[int, int]) -> bytes:
    """Return the entry of a place."""
    return b"%d-%d" % place


class ShardStreams:
    """The streams, leases and dead letters behind the prefix of one Redis.

    Every method may raise `BusError`: what it was to do may or may not have been done.

    Args:
        client: The Redis.
    """

    def __init__(self, *, client: RedisClient) -> None:
        self._client = client

    async def add(self, entries: Sequence[tuple[int, bytes]]) -> Mapping[int, BusError]:
        """Append each entry to its shard, with one command; return errors of single places."""
        if len(entries) == 1:
            [(shard, data)] = entries
            with _translated(f"put an entry on {self._stream(shard)}"):
                await self._client.call("XADD", self._stream(shard), "*", _FIELD, data)
            return {}
        flat = [part for entry in entries for part in entry]
        failures = await self._run("add", "put entries on the bus", *flat)
        return {
            place: BusError(
                f"bus: cannot put an entry on {self._stream(shard)}: {refusal(_text(failure)).text}"
            )
            for place, ((shard, _), failure) in enumerate(zip(entries, failures, strict=True))
            if failure
        }

    async def depths(self) -> list[int]:
        """Return how many entries of each shard nobody has read."""
        return [max(0, depth) for depth in await self._run("depths", "sample the bus")]

    async def read(
        self, shards: Collection[int], *, count: int, block_ms: int | None
    ) -> dict[int, list[Read]]:
        """Read new entries of some shards, so many of each, waiting for the first so long."""
        keys = {self._stream(shard).encode(): shard for shard in shards}
        block: list[str | int] = [] if block_ms is None else ["BLOCK", block_ms]
        with _translated("read entries of the bus"):
            reply = await self._client.call(
                *("XREADGROUP", "GROUP", _GROUP, _CONSUMER, "COUNT", count, *block, "STREAMS"),
                *keys,
                *([">"] * len(keys)),
            )
        return {keys[key]: [_read(*row) for row in found] for key, found in reply or ()}

    async def look(
        self, worker: str, *, wants: Collection[int], lease_ms: int, held: Mapping[int, str]
    ) -> Look:
        """Show that a worker lives, renew its leases, and see the others."""
        flat = [part for shard, lease in held.items() for part in (shard, lease)]
        words = ",".join(map(str, sorted(wants)))
        lost, beacons, leases, strange = await self._run(
            "look", "renew leases of shards", worker, words, lease_ms, *flat
        )
        notes = [_text(part) for part in strange]
        names = [_text(part) for part in beacons]
        return Look(
            lost=frozenset(lost),
            wants={
                name: frozenset(int(word) for word in wanted.split(",") if word)
                for name, wanted in zip(names[::2], names[1::2], strict=True)
            },
            owners={
                shard: _text(lease).partition(" ")[2]
                for shard, lease in enumerate(leases)
                if lease is not None
            },
            strange=tuple(zip(notes[::2], notes[1::2], strict=True)),
        )

    async def take(self, worker: str, shards: Sequence[int], *, lease_ms: int) -> list[Taken]:
        """Take those shards that nobody holds."""
        reply = await self._run("take", "take shards", worker, lease_ms, *shards)
        return [
            Taken(shard=shard, lease=_text(lease), pending=pending)
            for shard, lease, pending in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        ]

    async def release(self, shard: int, lease: str, tries: Mapping[bytes, int]) -> None:
        """Give a shard up, with the tries that entries really had."""
        flat = [part for entry_id, count in tries.items() for part in (entry_id, count)]
        await self._run("release", "give a shard up", shard, lease, *flat)

    async def leave(self, worker: str) -> None:
        """Let the others know that a worker is gone."""
        await self._run("leave", "leave the bus", worker)

    async def begin(self, shard: int, lease: str, entry_id: bytes, tries: int) -> int:
        """Count a try; 0: the entry is pending no more, -1: the lease is lost."""
        return int(await self._run("begin", "count a try", shard, lease, entry_id, tries))

    async def begin_together(
        self, shard: int, lease: str, ids: Sequence[bytes], tries: int
    ) -> frozenset[bytes]:
        """Count a try of several entries; return those still pending, none if the lease is lost."""
        if not ids:
            return frozenset()
        found = await self._run("begin_together", "count tries", shard, lease, tries, *ids)
        return frozenset(found)

    async def forgive(self, tries: Mapping[tuple[int, bytes], int]) -> None:
        """Take back the last try of entries of shards, if it is still the last."""
        flat = [part for (shard, one), count in tries.items() for part in (shard, one, count)]
        await self._run("forgive", "take tries back", *flat)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Forget what is settled; return for each shard whether its lease still held."""
        flat: list[str | bytes | int] = []
        for one in settlements:
            flat += [one.shard, one.lease, len(one.acked), len(one.taken), *one.acked, *one.taken]
        verdicts = await self._run("settle", "acknowledge entries", *flat)
        return [verdict > 0 for verdict in verdicts]

    async def pending(
        self, shard: int, lease: str, *, after: bytes, count: int
    ) -> list[bytes] | None:
        """Return pending entries behind one, in order; None: the lease is lost."""
        held, found = await self._run("pending", "list entries", shard, lease, after, count)
        return list(found) if held else None

    async def sweep(
        self, shard: int, lease: str, *, idle_ms: int, cursor: bytes, count: int
    ) -> tuple[bytes, list[bytes]] | None:
        """Return the cursor of the next page and entries that are idle; None: the lease is lost."""
        held, following, found = await self._run(
            "sweep", "sweep a shard", shard, lease, idle_ms, cursor, count
        )
        return (following, list(found)) if held else None

    async def fetch(
        self, shard: int, lease: str, ids: Sequence[bytes], *, bytes_max: int
    ) -> Fetched | None:
        """Read pending entries up to the one with which they have so many bytes.

        None: the lease is lost.
        """
        held, *rest = await self._run(
            "fetch", "read pending entries", shard, lease, bytes_max, *ids
        )
        if not held:
            return None
        looked_at, *flat = rest
        rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        reads = [Read(entry_id=one, tries=int(tries), data=data) for one, tries, data in rows]
        return Fetched(reads=reads, looked_at=looked_at)

    async def bury(
        self, shard: int, lease: str, entry_id: bytes, *, reason: str, now: float, dead_max: int
    ) -> int:
        """Make an entry a dead letter; return how many were dropped, or -1: the lease is lost."""
        arguments = (shard, lease, entry_id, reason, repr(now), dead_max)
        return int(await self._run("bury", "set an entry aside", *arguments))

    async def letters(
        self, *, begin: str, limit: int, bytes_max: int
    ) -> list[tuple[str, dict[bytes, bytes]]]:
        """Return dead letters from `begin` on, up to the one at which they have so many bytes."""
        flat = await self._run("letters", "list dead letters", begin, limit, bytes_max)
        return [
            # Where the entry has fields of the same names, those of the letter are the first.
            (_text(letter_id), dict(zip(fields[-2::-2], fields[::-2], strict=True)))
            for letter_id, fields in zip(flat[::2], flat[1::2], strict=True)
        ]

    async def replay(self, letter_id: str, shard: int) -> bool:
        """Put a dead letter on a shard again; False: it is gone."""
        return bool(await self._run("replay", "replay a dead letter", letter_id, shard))

    async def purge(self, letter_ids: Sequence[str]) -> int:
        """Delete dead letters; none named: all."""
        return int(await self._run("purge", "purge dead letters", *letter_ids))

    async def count(self) -> int:
        """Count dead letters."""
        with _translated("count dead letters"):
            return int(await self._client.call("XLEN", self._client.key("bus", "dead")))

    def _stream(self, shard: int) -> str:
        return self._client.key("bus", "s", str(shard))

    async def _run(self, name: str, doing: str, *arguments: str | bytes | float) -> Any:
        with _translated(doing):
            return await self._client.run(
                _scripts()[name],
                keys=[self._client.key("bus", "workers")],
                args=[self._client.prefix, *arguments],
            )


@cache
def _scripts() -> Mapping[str, Script]:
    """Read the scripts, once a process; each begins with what all share."""
    folder = files("ahcollector.bus") / "lua"
    texts = {
        file.name.removesuffix(".lua"): file.read_text("utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".lua")
    }
    shared = texts.pop("shard")
    return {name: Script.of(f"bus {name}", f"{shared}\n{text}") for name, text in texts.items()}


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise BusError(f"bus: cannot {doing}: {error}") from error


def _read(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Read:
    """Return a new entry; what is no entry of ours has no bytes, and is found to be none later."""
    return Read(entry_id=entry_id, tries=1, data=fields.get(_FIELD, b""))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
