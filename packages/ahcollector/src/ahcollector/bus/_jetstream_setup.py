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
        bytes_max: Of all shards, in bytes on disk. JetStream must have so much.
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

    async def check(self) -> None:
        """Return when everything is there and does. May be repeated.

        Raises:
            BusError: A stream is weaker than the bus promises to be, NATS has not the room, takes
                no message that large, or gives no answer.
        """
        room = await self._api.payload_bytes_max()
        if room < self._entry_bytes_max + HEADER_BYTES_MAX:
            raise BusError(
                f"NATS takes messages of {room} bytes (max_payload), and entries of the bus have "
                f"up to {self._entry_bytes_max} and {HEADER_BYTES_MAX} of headers: raise its "
                "max_payload, or lower bus.entry_bytes_max"
            )
        for plan in self._plans:
            await self._make(plan)

    async def _make(self, plan: _Plan) -> None:
        try:
            info = await self._api.ask(f"STREAM.INFO.{plan.name}")
        except JetStreamRefusedError as error:
            if error.number != 10059:
                raise
            config = plan.config() | {"num_replicas": self._replicas}
            # Two that begin at once ask for the same, which JetStream takes for one.
            await self._with_room(plan, "CREATE", config)
            return
        found = info["config"]
        _refuse_weak(plan, found)
        raised = {
            name: wanted
            for name, wanted in plan.limits.items()
            if _is_lower(int(found.get(name, -1)), wanted)
        }
        if raised:
            await self._with_room(plan, "UPDATE", found | raised)

    async def _with_room(self, plan: _Plan, verb: str, config: Mapping[str, Any]) -> None:
        try:
            await self._api.ask(f"STREAM.{verb}.{plan.name}", config)
        except JetStreamRefusedError as error:
            if error.number != NO_ROOM:
                raise
            raise BusError(
                f"NATS has no room for stream {plan.name} of {config.get('max_bytes')} bytes: "
                "give JetStream more (max_file_store), or make the buffer of the bus smaller"
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


def _is_lower(found: int, wanted: int) -> bool:
    """Return whether a limit is lower than another one; 0 and less are none."""
    if found <= 0:
        return False
    return wanted <= 0 or found < wanted
