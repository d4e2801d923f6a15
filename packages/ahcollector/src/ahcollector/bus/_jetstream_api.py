"""What is asked of JetStream: one method a question, in JSON as its API documents it.

The API is spoken directly and not through a library's objects, so that no field is dropped that
one version of them does not know, and nothing is asked twice.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from ahcollector._nats_config import NatsMessage
from ahcollector.errors import BusError, NatsError
from ahcollector.nats import Inbox, NatsClient

__all__ = [
    "CONSUMER_EXISTS",
    "FULL",
    "NOT_FOUND",
    "NO_ROOM",
    "WRONG_REVISION",
    "JetStreamApi",
    "JetStreamRefusedError",
    "Kept",
    "nanoseconds",
    "translated",
]

WRONG_REVISION: Final = 10071
FULL: Final = 10077
NO_ROOM: Final = 10047
CONSUMER_EXISTS: Final = frozenset({10099, 10100})
"""Another consumer has these entries: a work queue hands each to one."""
NOT_FOUND: Final = frozenset({10014, 10037, 10057, 10059})
"""No such consumer, message (two numbers), or stream."""


class JetStreamRefusedError(BusError):
    """JetStream answered with an error: it did not do it.

    Attributes:
        number: Its number of the error.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


@attrs.frozen(kw_only=True)
class Kept:
    """A message as a stream keeps it.

    Attributes:
        seq: Its place in the stream.
        time: When it came, in JetStream's own writing.
    """

    seq: int
    data: bytes
    headers: Mapping[str, str]
    time: str


class JetStreamApi:
    """Asks JetStream. Every method raises BusError when it gives no answer, or refuses.

    Args:
        client: The NATS.
    """

    def __init__(self, *, client: NatsClient) -> None:
        self._client = client
        self.prefix = client.prefix

    async def ask(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask what the API calls ``$JS.API.<verb>`` and return the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        with translated(verb):
            message = await self._client.request(f"$JS.API.{verb}", data)
        return _answer(verb, message)

    async def put(self, subject: str, data: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Append a message to the stream of its subject; return ``seq``, perhaps ``duplicate``."""
        with translated(f"put on {subject}"):
            message = await self._client.request(subject, data, headers=headers)
        return _answer(f"put on {subject}", message)

    async def get(self, stream: str, **which: str | int) -> Kept | None:
        """Return a message: `seq`, `last_by_subj`, or `next_by_subj` from a `seq` on; or None."""
        try:
            found = (await self.ask(f"STREAM.MSG.GET.{stream}", which))["message"]
        except JetStreamRefusedError as error:
            # That the stream is gone is no answer to this.
            if error.number == 10037:
                return None
            raise
        return Kept(
            seq=int(found["seq"]),
            data=_bytes(found.get("data", "")),
            headers=_headers(_bytes(found.get("hdrs", ""))),
            time=str(found.get("time", "")),
        )

    async def delete(self, stream: str, seq: int) -> bool:
        """Delete a message; False: it is not there."""
        try:
            await self.ask(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
        except JetStreamRefusedError as error:
            if error.number in {10037, 10057}:
                return False
            raise
        return True

    async def consumers(self, stream: str) -> list[dict[str, Any]]:
        """Return what there is to know about all consumers of a stream."""
        found: list[dict[str, Any] | None] = []
        while True:
            page = await self.ask(f"CONSUMER.LIST.{stream}", {"offset": len(found)})
            some = page.get("consumers") or []
            found += some
            if not some or len(found) >= int(page.get("total", 0)):
                # One that goes just now may have an empty place in the list.
                return [one for one in found if one is not None]

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer, if it is there."""
        try:
            await self.ask(f"CONSUMER.DELETE.{stream}.{name}")
        except JetStreamRefusedError as error:
            if error.number not in NOT_FOUND:
                raise

    async def inbox(self, heard: Callable[[NatsMessage], None], lost: Callable[[], None]) -> Inbox:
        """Return an inbox on the connection of now."""
        with translated("read the bus"):
            return await self._client.inbox(heard, lost)

    async def payload_bytes_max(self) -> int:
        """Return how large a message may be, headers included."""
        with translated("connect"):
            return await self._client.payload_bytes_max()


def nanoseconds(seconds: float) -> int:
    """Return seconds as JetStream writes them."""
    return round(seconds * 1e9)


def _answer(what: str, message: NatsMessage) -> dict[str, Any]:
    try:
        answer = json.loads(message.data)
        error = answer.get("error")
    except (ValueError, AttributeError) as broken:
        raise BusError(f"bus: JetStream's answer to {what} is no JSON object") from broken
    if error:
        number = int(error.get("err_code", 0))
        raise JetStreamRefusedError(
            f"bus: JetStream refuses {what}: {error.get('description', 'no reason')} ({number})",
            number=number,
        )
    return dict(answer)


def _headers(block: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error as error:
        raise BusError("bus: JetStream's answer holds bytes that are none") from error


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn `NatsError` into `BusError`."""
    try:
        yield
    except NatsError as error:
        raise BusError(f"bus: cannot {doing}: {error}") from error
