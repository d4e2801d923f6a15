"""The streams of the bus on NATS: their names, their settings, and whether those that are there do.

What another hand made, or an older release, is looked at setting by setting. A limit that is too
low is raised. One that is higher is left: nothing here is ever lowered, since NATS deletes what is
over a limit that is lowered, acknowledged or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ahcollector.bus._jetstream_api import (
    NO_ROOM,
    JetStreamApi,
    JetStreamRefusedError,
    nanoseconds,
)
from ahcollector.bus.base import SHARDS
from ahcollector.errors import BusError

__all__ = ["BUFFER_SECONDS", "BufferSize", "JetStreamSetup", "Names", "buffer_bytes"]

BUFFER_SECONDS: Final = 7_200
"""What the bus holds while no worker takes anything: two hours."""

_DUPLICATES_SECONDS: Final = 120
_DEAD_DUPLICATES_SECONDS: Final = 600
_TABLE_BYTES_MAX: Final = 64 << 20
# What a publish adds to an entry: subject and headers.
HEADER_BYTES_MAX: Final = 4_096


def buffer_bytes(
    *, points_per_second: float, bytes_per_point: float = 14.0, seconds: float = BUFFER_SECONDS
) -> int:
    """Return what the stream must hold: points a second x bytes a point x seconds.

    Args:
        points_per_second: Of all agents together: an agent that sends 300 series each 30 s has 10.
        bytes_per_point: As they lie in the stream, compressed; the default is on the safe side of
            what was measured (see ``docs/how-to/run-on-nats.md``).
        seconds: For how long.
    """
    return round(points_per_second * bytes_per_point * seconds)


@attrs.frozen(kw_only=True)
class BufferSize:
    """How much the bus takes before it is full.

    Attributes:
        bytes_max: Of all shards, in bytes on disk. JetStream must have so much, and what
            dead letters may take (256 MiB unless set) and 64 MiB for leases and tries besides.
        batches_max: Entries of all shards.
        shard_batches_max: Entries of one shard, held ones included, so that one shard nobody reads
            does not fill the stream for all.
        seconds: For how long that is meant to do; what waits longer is counted and told.
    """

    bytes_max: int = 4 << 30
    batches_max: int = 2_000_000
    shard_batches_max: int = 200_000
    seconds: float = float(BUFFER_SECONDS)


@attrs.frozen(kw_only=True)
class Names:
    """What all that belongs to one prefix is called."""

    prefix: str

    @property
    def stream(self) -> str:
        """The work queue."""
        return f"{self.prefix}_bus"

    @property
    def dead(self) -> str:
        """The stream of dead letters."""
        return f"{self.prefix}_bus_dead"

    @property
    def bucket(self) -> str:
        """The stream of the KV bucket."""
        return f"KV_{self.prefix}_bus"

    def shard(self, shard: int) -> str:
        """The subject of a shard."""
        return f"{self.prefix}.bus.s.{shard}"

    @property
    def dead_subject(self) -> str:
        """The subject of dead letters."""
        return f"{self.prefix}.bus.dead"

    def key(self, key: str) -> str:
        """The subject of a key of the bucket."""
        return f"$KV.{self.prefix}_bus.{key}"


@attrs.frozen(kw_only=True)
class _Plan:
    """A stream as it must be.

    Attributes:
        fixed: What it is made with; another value is refused, with the reason.
        limits: What it must have at least; -1: no limit.
    """

    name: str
    subjects: list[str]
    fixed: Mapping[str, tuple[Any, str]]
    limits: Mapping[str, int]
    more: Mapping[str, Any]

    def config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "subjects": self.subjects,
            **{name: value for name, (value, _) in self.fixed.items()},
            **self.limits,
            **self.more,
        }


class JetStreamSetup:
    """Makes the streams, or finds out whether they do.

    Args:
        replicas: Servers of a cluster that keep each stream; 1 without one.
        entry_bytes_max: What an entry may be.
        dead_max: Dead letters kept.
        dead_bytes_max: Bytes of dead letters kept.
    """

    def __init__(
        self,
        *,
        api: JetStreamApi,
        names: Names,
        size: BufferSize,
        replicas: int,
        entry_bytes_max: int,
        dead_max: int,
        dead_bytes_max: int,
    ) -> None:
        self._api = api
        self._names = names
        self._entry_bytes_max = entry_bytes_max
        self._plans = (
            _bus_plan(names, size),
            _dead_plan(names, dead_max=dead_max, dead_bytes_max=dead_bytes_max),
            _bucket_plan(names),
        )
        self._replicas = replicas

    async def check(self) -> tuple[str, ...]:
        """Return when everything is there and does, with a sentence for each larger limit there.

        May be repeated. All streams are looked at before the first one is made, and the one that
        takes the buffer is made last: where there is no room for it, it is asked for in vain and
        not kept.

        Raises:
            BusError: A stream is weaker than the bus promises to be, NATS has not the room, takes
                no message that large, or gives no answer.
        """
        room = await self._api.payload_bytes_max()
        if room < self._entry_bytes_max + HEADER_BYTES_MAX:
            raise BusError(
                f"NATS takes messages of {room} bytes (max_payload), and entries of the bus have "
                f"up to {self._entry_bytes_max} and {HEADER_BYTES_MAX} of headers: raise its "
                "max_payload, or lower entry_bytes_max"
            )
        there = {plan.name: await self._found(plan) for plan in self._plans}
        told = tuple(
            sentence
            for plan in self._plans
            for sentence in _larger(plan, there[plan.name], replicas=self._replicas)
        )
        for plan in reversed(self._plans):
            await self._make(plan, there)
        return told

    async def _found(self, plan: _Plan) -> Mapping[str, Any] | None:
        """Return how a stream is set that is there and does."""
        try:
            info = await self._api.ask(f"STREAM.INFO.{plan.name}")
        except JetStreamRefusedError as error:
            if error.number != 10059:
                raise
            return None
        found: Mapping[str, Any] = info["config"]
        _refuse_weak(plan, found)
        return found

    async def _make(self, plan: _Plan, there: Mapping[str, Mapping[str, Any] | None]) -> None:
        found = there[plan.name]
        if found is None:
            config = plan.config() | {"num_replicas": self._replicas}
            # Two that begin at once ask for the same, which JetStream takes for one.
            await self._with_room(plan, "CREATE", config, there)
            return
        raised = {
            name: wanted
            for name, wanted in plan.limits.items()
            if _is_lower(_limit(found, name), wanted)
        }
        if raised:
            await self._with_room(plan, "UPDATE", {**found, **raised}, there)

    async def _with_room(
        self,
        plan: _Plan,
        verb: str,
        config: Mapping[str, Any],
        there: Mapping[str, Mapping[str, Any] | None],
    ) -> None:
        try:
            await self._api.ask(f"STREAM.{verb}.{plan.name}", config)
        except JetStreamRefusedError as error:
            if error.number != NO_ROOM:
                raise
            sizes = {one.name: _bytes_of(one, there[one.name]) for one in self._plans}
            parts = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise BusError(
                f"NATS has no room for stream {plan.name} of {config.get('max_bytes')} bytes; "
                f"the bus takes {sum(sizes.values())} bytes of it ({parts}): give JetStream more "
                "(max_file_store), or make the buffer of the bus smaller; a stream that is there "
                "already keeps its size"
            ) from error


def _bus_plan(names: Names, size: BufferSize) -> _Plan:
    never = "what was acknowledged to an agent would be dropped without a word"
    return _Plan(
        name=names.stream,
        subjects=[names.shard(shard) for shard in range(SHARDS)],
        fixed={
            "retention": ("workqueue", "acknowledged entries would not leave it, or unread ones"),
            "storage": ("file", "a restart of NATS would lose all"),
            "discard": ("new", never),
            "discard_new_per_subject": (True, never),
            "max_age": (0, never),
        },
        limits={
            "max_bytes": size.bytes_max,
            "max_msgs": size.batches_max,
            "max_msgs_per_subject": size.shard_batches_max,
            "max_msg_size": -1,
            "max_consumers": -1,
        },
        more={"duplicate_window": nanoseconds(_DUPLICATES_SECONDS)},
    )


def _dead_plan(names: Names, *, dead_max: int, dead_bytes_max: int) -> _Plan:
    return _Plan(
        name=names.dead,
        subjects=[names.dead_subject],
        fixed={
            "retention": ("limits", "letters would leave it when somebody reads them"),
            "storage": ("file", "a restart of NATS would lose the letters"),
            # The oldest are deleted by whoever puts the next one, so that each is counted.
            "discard": ("new", "the oldest letters would go uncounted"),
            "max_age": (0, "letters would go uncounted"),
        },
        limits={"max_bytes": dead_bytes_max, "max_msgs": dead_max, "max_msg_size": -1},
        more={"duplicate_window": nanoseconds(_DEAD_DUPLICATES_SECONDS)},
    )


def _bucket_plan(names: Names) -> _Plan:
    return _Plan(
        name=names.bucket,
        subjects=[names.key(">")],
        fixed={
            "retention": ("limits", "leases would be lost"),
            "storage": ("file", "a restart of NATS would lose tries that were counted"),
            "max_age": (0, "leases would end by themselves"),
            # As every KV bucket has it.
            "max_msgs_per_subject": (1, "a bucket keeps the last value of a key"),
        },
        limits={"max_bytes": _TABLE_BYTES_MAX, "max_msg_size": -1},
        more={
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
        },
    )


def _refuse_weak(plan: _Plan, found: Mapping[str, Any]) -> None:
    missing = set(plan.subjects) - set(found.get("subjects") or ())
    if missing:
        raise BusError(
            f"stream {plan.name} of NATS does not have the subject {min(missing)}: it belongs to "
            "something else; choose another prefix, or delete it when it is empty"
        )
    for name, (wanted, why) in plan.fixed.items():
        value = found.get(name, type(wanted)())
        if value != wanted:
            raise BusError(
                f"stream {plan.name} of NATS has {name} {value!r}, and must have {wanted!r}: "
                f"{why}. Set it there (nats stream edit), or, when the stream is empty, delete it "
                "and start again"
            )
    if found.get("sealed") or found.get("no_ack"):
        raise BusError(
            f"stream {plan.name} of NATS is sealed, or answers no publisher (no_ack): delete it "
            "when it is empty and start again"
        )


def _larger(plan: _Plan, found: Mapping[str, Any] | None, *, replicas: int) -> list[str]:
    """Return a sentence for each limit that is higher than it is set, and for other replicas."""
    if found is None:
        return []
    told = [
        f"stream {plan.name} of NATS has {name} {_limit(found, name)}, and {wanted} is set: it is "
        "not lowered by itself, since NATS deletes what is over a limit that is lowered; when the "
        f"stream is empty, lower it with nats stream edit {plan.name} "
        f"--{name.replace('_', '-')}={wanted}, or set what it has"
        for name, wanted in plan.limits.items()
        if _is_lower(wanted, _limit(found, name))
    ]
    kept_by = int(found.get("num_replicas", 1))
    if kept_by != replicas:
        told.append(
            f"stream {plan.name} of NATS has {kept_by} replicas, and {replicas} are set, which is "
            f"for new streams alone: change it with nats stream edit {plan.name} "
            f"--replicas={replicas}, or set what it has"
        )
    return told


def _limit(found: Mapping[str, Any], name: str) -> int:
    return int(found.get(name, -1))


def _bytes_of(plan: _Plan, found: Mapping[str, Any] | None) -> int:
    """Return what a stream takes of JetStream's disk, once it is as it must be."""
    return max(plan.limits["max_bytes"], 0 if found is None else _limit(found, "max_bytes"))


def _is_lower(found: int, wanted: int) -> bool:
    """Return whether a limit is lower than another one; 0 and less are none."""
    if found <= 0:
        return False
    return wanted <= 0 or found < wanted
