"""Dead batches in Redis, shared by all workers.

Keys, each behind the client's prefix:

| key | type | holds |
| --- | --- | --- |
| `wk:dead` | zset | ids of letters, in their order |
| `wk:dead:l:{id}` | hash | its `DeadBatch`; `by`, a fingerprint; `b`, an entry of the bus |
| `wk:dead:by` | hash | fingerprint of a batch to the id of its letter |
| `wk:dead:state` | hash | `last` id, and `bytes` of all letters |
| `wk:dead:damaged` | set | ids of letters that were found damaged |
| `wk:dead:damaged:{id}` | any | what was there instead of a letter |

Every change is one Lua script, so no crash leaves a half, and a put whose reply was lost may be
repeated: the same batch is one letter. A batch is compressed as on the bus, about a tenth of its
JSON. Durability is that of Redis: with ``appendfsync everysec`` up to two seconds may be lost at a
power cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ahcollector.bus._entries import decode, encode
from ahcollector.bus.base import SampleBatch
from ahcollector.errors import BusError, DeadBatchesError, RedisError, RedisRefusedError
from ahcollector.metrics import Metrics
from ahcollector.redis import RedisClient, Script
from ahcollector.worker._dead_counts import AGE, BYTES, COUNT, DeadCounts
from ahcollector.worker.deadletter import DeadBatch, canonical_ids, first_id, id_behind

__all__ = ["RedisDeadBatches"]


def _script(name: str) -> Script:
    return Script.load("ahcollector.worker", name, after=("dead",))


_PUT = _script("dead_put")
_PAGE = _script("dead_page")
_PURGE = _script("dead_purge")
_ASIDE = _script("dead_aside")

# Redis does nothing else meanwhile: as many take it some milliseconds.
_STEP_LETTERS: Final = 500
_BODY: Final = "b"
_TEXTS: Final = ("company_id", "server_id", "agent_id", "request_id", "reason")
_HEAD: Final = (*_TEXTS, "received", "samples", "at", "size")
# UTF-8 that also takes halves of characters, as entries of the bus do.
_CODEC: Final = ("utf-8", "surrogatepass")


class RedisDeadBatches:
    """`DeadBatches` over one Redis; see the module for keys.

    Args:
        client: The way to Redis; it stays the caller's to close.
        letters_max: Bound of their number, at least 1.
        bytes_max: Bound of their size as they are kept, in bytes.
        retention_seconds: Bound of their age; what is older goes at the next put.
        metrics: Where to count. What a put pushed out whose reply was lost is not counted.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        letters_max: int = 1_000,
        bytes_max: int = 64 * 1024 * 1024,
        retention_seconds: float = 30 * 86_400.0,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._letters_max = letters_max
        self._bytes_max = bytes_max
        self._retention_seconds = retention_seconds
        self._counts = DeadCounts(metrics)

    @property
    def total(self) -> int:
        """How many this process put."""
        return self._counts.total

    @property
    def dropped(self) -> int:
        """How many the bounds pushed out in puts of this process."""
        return self._counts.dropped

    @property
    def damaged(self) -> int:
        """How many this process found damaged."""
        return self._counts.damaged

    async def put(self, batch: SampleBatch, reason: str, now: float) -> None:
        """Keep a batch.

        Raises:
            DeadBatchesError: Redis gave no answer, refuses, or the batch can be no entry of a bus.
        """
        try:
            body = encode(batch)
        except BusError as error:
            raise DeadBatchesError(f"dead batches: cannot keep a batch: {error}") from error
        texts = (batch.company_id, batch.server_id, batch.agent_id, batch.request_id, reason)
        values = [text.encode(*_CODEC) for text in texts]
        size = len(body) + sum(map(len, values))
        if size > self._bytes_max:
            self._counts.put_too_large(batch, size, self._bytes_max)
            return
        aside, *dropped = await self._run(
            _PUT,
            "keep a batch",
            first_id(now),
            repr(now - self._retention_seconds),
            self._letters_max,
            self._bytes_max,
            hashlib.sha256(body).hexdigest(),
            size,
            *(part for pair in zip(_TEXTS, values, strict=True) for part in pair),
            *("received", batch.received_at_ms, "samples", batch.samples, "at", repr(now)),
            *(_BODY, body),
        )
        self._found_damaged(aside)
        self._counts.put(dict(zip((COUNT, BYTES, AGE), dropped, strict=True)))

    async def letters(self, *, after: str = "", limit: int = 100) -> list[DeadBatch]:
        """Return a page, without the batches; what is no letter is set aside."""
        found: list[DeadBatch] = []
        begin = str(id_behind(after))
        while len(found) < limit:
            count = min(limit - len(found), _STEP_LETTERS)
            flat = await self._run(_PAGE, "list letters", begin, count, *_HEAD)
            for name, fields in zip(flat[::2], flat[1::2], strict=True):
                letter = _letter(name, fields)
                if letter is None:
                    await self._set_aside(name)
                else:
                    found.append(letter)
                    begin = letter.letter_id
            if len(flat) < 2 * count:
                break
        return found

    async def read(self, letter_id: str) -> SampleBatch | None:
        """Return the batch of a letter; one that cannot be read is set aside."""
        if not canonical_ids([letter_id]):
            return None
        try:
            with _translated("read a letter"):
                body = await self._client.call("HGET", self._key("l", letter_id), _BODY)
            if body is not None:
                return decode(body)
        except BusError:
            pass
        except DeadBatchesError as error:
            if not _is_of_another_type(error):
                raise
        # Gone; or what is there is no letter.
        await self._set_aside(letter_id)
        return None

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters; what is no letter is set aside and stays."""
        if letter_ids is None:
            return await self._purge_all()
        names = canonical_ids(letter_ids)
        deleted = 0
        for begin in range(0, len(names), _STEP_LETTERS):
            _, count = await self._purge(names[begin : begin + _STEP_LETTERS])
            deleted += count
        return deleted

    async def _purge_all(self) -> int:
        with _translated("delete letters"):
            newest = await self._client.call("ZREVRANGE", self._key(), 0, 0, "WITHSCORES")
        deleted = 0
        while newest:
            looked_at, count = await self._purge([newest[1], "<=", _STEP_LETTERS])
            deleted += count
            if looked_at < _STEP_LETTERS:
                break
        return deleted

    async def _purge(self, arguments: Sequence[str | bytes | int]) -> tuple[int, int]:
        looked_at, deleted, aside = await self._run(_PURGE, "delete letters", *arguments)
        self._found_damaged(aside)
        return looked_at, deleted

    async def count(self) -> int:
        """Return how many there are."""
        with _translated("count letters"):
            return int(await self._client.call("ZCARD", self._key()))

    async def _set_aside(self, letter_id: str | bytes) -> None:
        self._found_damaged(await self._run(_ASIDE, "set a letter aside", letter_id))

    def _found_damaged(self, count: int) -> None:
        self._counts.found_damaged(count, self._key("damaged"))

    async def _run(self, script: Script, doing: str, *arguments: str | bytes | float) -> Any:
        with _translated(doing):
            return await self._client.run(
                script, keys=[self._key()], args=[self._client.prefix, *arguments]
            )

    def _key(self, *parts: str) -> str:
        return self._client.key("wk", "dead", *parts)


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise DeadBatchesError(f"dead batches: cannot {doing}: {error}") from error


def _is_of_another_type(error: DeadBatchesError) -> bool:
    cause = error.__cause__
    return isinstance(cause, RedisRefusedError) and cause.code == "WRONGTYPE"


def _letter(name: bytes, fields: Sequence[bytes | None]) -> DeadBatch | None:
    """Read a letter; None: it is none."""
    values = [value for value in fields if value is not None]
    if len(values) != len(_HEAD):
        return None
    try:
        letter_id = name.decode("ascii")
        company_id, server_id, agent_id, request_id, reason = (
            str(value, *_CODEC) for value in values[: len(_TEXTS)]
        )
        received, samples, at, size = values[len(_TEXTS) :]
        if canonical_ids([letter_id]) != [letter_id]:
            return None
        return DeadBatch(
            letter_id=letter_id,
            company_id=company_id,
            server_id=server_id,
            agent_id=agent_id,
            request_id=request_id,
            received_at_ms=int(received),
            samples=int(samples),
            reason=reason,
            dead_at=float(at),
            size_bytes=int(size),
        )
    except ValueError:
        return None
