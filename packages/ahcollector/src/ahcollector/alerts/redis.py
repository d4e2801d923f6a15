"""The states of alerts, the hub's last rules and silences, in Redis (extra ``[redis]``).

| key | type | holds |
| --- | --- | --- |
| `rules:state:{shard}:{co}` | hash | `epoch`, `seq`, `b:{part}` of a snapshot, `p:{name}` pieces |
| `rules:tx:{shard}:{co}` | hash | event id → event: decided, and not in the outbox yet |
| `rules:units:{shard}` | set | companies that have a state in the shard |
| `rules:birth` | string | a random id: another one, or none, and Redis has forgotten everything |
| `rules:aside:{shard}:{co}` | hash | a state that could not be read, as it was |
| `rules:kept:{list}` | string | the hub's last rules, or silences |
| `rules:kept:{list}:as_of` | string | when the hub was asked for them, by Redis' time |

A commit is one script, which checks the owner's epoch. The first epoch of a unit is Redis' time in
microseconds, so that none comes twice where Redis has forgotten the ones before. Parts of the
snapshot and pieces are deflated: ``z`` and zlib's bytes.
"""

from __future__ import annotations

import logging
import uuid
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio.to_thread

from ahcollector.alerts.base import AlertChange, AlertImage, StoreGlance, UnitKey, taken_over
from ahcollector.alerts.kept import decode_list, encode_list
from ahcollector.errors import AlertStateError, RedisError
from ahcollector.redis import RedisClient, Script
from ahwire import DecodeError, Event

__all__ = ["RedisAlertStateStore", "RedisKeptLists"]

_log = logging.getLogger("ahcollector.alerts")

_PACKAGE: Final = "ahcollector.alerts"
_CLAIM: Final = Script.load(_PACKAGE, "claim")
_COMMIT: Final = Script.load(_PACKAGE, "commit")
_SET_ASIDE: Final = Script.load(_PACKAGE, "set_aside")
_REMOVE: Final = Script.load(_PACKAGE, "remove")
_KEEP: Final = Script.load(_PACKAGE, "keep")
_DEFLATED: Final = b"z"
_LONG_CHARS: Final = 1 << 20
_EPOCH_KEPT_SECONDS: Final = 86_400


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise AlertStateError(f"states of alerts: cannot {doing}: {error}") from error


def _pack(text: str) -> bytes:
    return _DEFLATED + zlib.compress(text.encode(), level=1)


def _unpack(data: bytes) -> str:
    if data[:1] != _DEFLATED:
        raise ValueError("it is not deflated")
    return zlib.decompress(data[1:]).decode()


class RedisAlertStateStore:
    """`AlertStateStore` over one Redis; see the module for keys.

    Args:
        client: The way to Redis; it stays the caller's to close.
    """

    def __init__(self, *, client: RedisClient) -> None:
        self._client = client

    async def units(self, shards: Collection[int]) -> list[UnitKey]:
        """Return the units of these shards."""
        wanted = sorted(shards)
        if not wanted:
            return []
        with _translated("list companies"):
            replies = await self._client.pipeline(
                [["SMEMBERS", self._client.key("rules:units", str(shard))] for shard in wanted]
            )
        return sorted(
            UnitKey(shard=shard, company_id=member.decode())
            for shard, members in zip(wanted, replies, strict=True)
            for member in members
        )

    async def look(self, keys: Collection[UnitKey]) -> StoreGlance:
        """Return the epochs of units, and the id that is lost with all else."""
        wanted = list(keys)
        birth = self._client.key("rules:birth")
        commands: list[list[str]] = [["SET", birth, uuid.uuid4().hex, "NX"], ["GET", birth]]
        commands += [["HGET", self._keys(key)[0], "epoch"] for key in wanted]
        with _translated("look at"):
            _, found, *epochs = await self._client.pipeline(commands)
        try:
            known = {
                key: int(epoch)
                for key, epoch in zip(wanted, epochs, strict=True)
                if epoch is not None
            }
        except ValueError as error:
            raise AlertStateError(
                f"states of alerts: an epoch in Redis is no number ({error}): let nothing else "
                f"write to {self._client.key('rules:state:*')}"
            ) from error
        return StoreGlance(birth=found.decode(), epochs=known)

    async def claim(self, key: UnitKey) -> AlertImage:
        """Become the owner; what cannot be read is logged and counted."""
        with _translated("take over a company's"):
            state, intents = await self._client.run(
                _CLAIM, keys=[*self._keys(key), self._units(key)], args=[key.company_id]
            )
        image = _image(_pairs(state), _pairs(intents))
        if image.damaged:
            _log.error(
                "states of alerts in Redis cannot be read; the others are used",
                extra={
                    "company_id": key.company_id,
                    "shard": key.shard,
                    "fields": image.damaged,
                },
            )
            await self._copy_aside(key, image.epoch)
        return image

    async def commit(self, key: UnitKey, epoch: int, change: AlertChange) -> None:
        """Keep a change."""
        fields: list[str | bytes] = []
        gone: list[str] = []
        for name, text in (change.base or {}).items():
            # A large company's takes long enough to hold up the doors.
            is_long = len(text) > _LONG_CHARS
            packed = await anyio.to_thread.run_sync(_pack, text) if is_long else _pack(text)
            fields += [f"b:{name}", packed]
        for name, piece in change.pieces.items():
            if piece is None:
                gone.append(f"p:{name}")
            else:
                fields += [f"p:{name}", _pack(piece)]
        intents = [part for event in change.intents for part in (event.event_id, event.to_json())]
        args: list[str | bytes | float] = [epoch, change.seq, int(change.base is not None)]
        args += [len(fields) // 2, *fields, len(gone), *gone, len(intents) // 2, *intents]
        with _translated("keep a company's"):
            done = await self._client.run(_COMMIT, keys=self._keys(key), args=args)
        self._check(key, done)

    async def told(self, key: UnitKey, event_ids: Collection[str]) -> None:
        """Forget intents."""
        if event_ids:
            with _translated("forget events that were told"):
                await self._client.call("HDEL", self._keys(key)[1], *event_ids)

    async def set_aside(self, key: UnitKey, epoch: int) -> None:
        """Copy the state to ``rules:aside``, in the place of an earlier copy."""
        self._check(key, await self._copy_aside(key, epoch))

    async def remove(self, key: UnitKey, epoch: int) -> None:
        """Remove a unit's keys; its epoch is kept for a day more."""
        with _translated("forget a company's"):
            done = await self._client.run(
                _REMOVE,
                keys=[*self._keys(key), self._units(key)],
                args=[epoch, key.company_id, _EPOCH_KEPT_SECONDS],
            )
        self._check(key, done)

    def _keys(self, key: UnitKey) -> list[str]:
        names = (str(key.shard), key.company_id)
        return [self._client.key("rules:state", *names), self._client.key("rules:tx", *names)]

    def _units(self, key: UnitKey) -> str:
        return self._client.key("rules:units", str(key.shard))

    async def _copy_aside(self, key: UnitKey, epoch: int) -> int:
        aside = self._client.key("rules:aside", str(key.shard), key.company_id)
        with _translated("keep a company's aside"):
            done: int = await self._client.run(
                _SET_ASIDE, keys=[self._keys(key)[0], aside], args=[epoch]
            )
        return done

    def _check(self, key: UnitKey, done: int) -> None:
        if not done:
            raise taken_over(key)


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _image(state: Mapping[bytes, bytes], intents: Mapping[bytes, bytes]) -> AlertImage:
    parts: dict[bytes, dict[str, str]] = {b"b": {}, b"p": {}}
    numbers = {b"epoch": 0, b"seq": 0}
    events: list[Event] = []
    damaged = 0
    for field, data in state.items():
        kind, _, name = field.partition(b":")
        try:
            if field in numbers:
                numbers[field] = int(data)
            else:
                parts[kind][name.decode()] = _unpack(data)
        except (KeyError, ValueError, zlib.error):
            damaged += 1
    for body in intents.values():
        try:
            events.append(Event.from_json(body))
        except DecodeError:
            damaged += 1
    return AlertImage(
        epoch=numbers[b"epoch"],
        seq=numbers[b"seq"],
        base=parts[b"b"],
        pieces=parts[b"p"],
        intents=tuple(sorted(events, key=lambda event: event.seq)),
        damaged=damaged,
    )


class RedisKeptLists:
    """`KeptLists` over one Redis, shared by the processes of a system.

    Args:
        client: The way to Redis; it stays the caller's to close.
    """

    def __init__(self, *, client: RedisClient) -> None:
        self._client = client

    async def load(self, name: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the items kept last; what cannot be read is logged, and counts as none."""
        with _translated(f"read the hub's last {name}"):
            data = await self._client.call("GET", self._key(name))
        if data is None:
            return None
        items = decode_list(name, data)
        if items is None:
            _log.error("the hub's last %s in Redis cannot be read", name)
        return items

    async def save(
        self, name: str, items: Sequence[Mapping[str, Any]], *, as_of: float = 0.0
    ) -> None:
        """Keep items in the place of older ones."""
        with _translated(f"keep the hub's last {name}"):
            await self._client.run(
                _KEEP,
                keys=[self._key(name), self._time_key(name)],
                args=[encode_list(name, items, as_of), repr(as_of)],
            )

    async def as_of(self, name: str) -> float | None:
        """Return of when the list is that is kept."""
        with _translated(f"read of when the hub's last {name} are"):
            count, data = await self._client.pipeline(
                [["EXISTS", self._key(name)], ["GET", self._time_key(name)]]
            )
        if not count:
            return None
        try:
            return float(data or 0)
        except ValueError:
            return 0.0

    async def now(self) -> float | None:
        """Return Redis' time."""
        with _translated("ask for the time"):
            seconds, micros = await self._client.call("TIME")
        return int(seconds) + int(micros) / 1_000_000

    def _key(self, name: str) -> str:
        return self._client.key("rules:kept", name)

    def _time_key(self, name: str) -> str:
        return self._client.key("rules:kept", name, "as_of")
