"""The consumer of one lease of one shard: made, read, acknowledged on, and deleted.

A work queue has one consumer a shard. Its name holds the fence of the lease, and a number that
rises when its owner makes it anew. Who takes a shard deletes those of older fences and makes its
own; JetStream refuses that while another one is there, so it is never made beside another. What an
older owner still sends, an acknowledgement too, names a consumer that is no more, and does nothing.

Entries come in the order of the stream, numbered by the consumer. A number that is missing, a
connection that was lost, or an answer that never came end its use: it is deleted and made anew, and
hands over again, from the first, all that is not acknowledged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import anyio
import attrs

from ahcollector._nats_config import NatsMessage
from ahcollector.bus._jetstream_api import (
    CONSUMER_EXISTS,
    JetStreamApi,
    JetStreamRefusedError,
    nanoseconds,
    translated,
)
from ahcollector.bus._jetstream_setup import Names
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError, NatsError
from ahcollector.nats import Inbox

__all__ = ["LARGE_TOGETHER", "Delivered", "Predecessor", "ShardConsumer"]

_NAME: Final = re.compile(r"s([0-9]{1,2})-([0-9]{1,18})-([0-9]{1,9})-[0-9a-f]{6}", re.ASCII)
# For ever: an entry is delivered again when its consumer is made anew, and never by a timer.
_ACK_WAIT_SECONDS: Final = 365 * 86_400
_SLACK_SECONDS: Final = 5.0
# Of all shards together so much may be under way, and NATS cuts a connection off that has 64 MB to
# come. A larger entry is asked for by itself, when there is room.
_PULL_BYTES: Final = 256 << 10
LARGE_TOGETHER: Final = 8
"""How many entries that are larger than a pull may be under way on one connection."""

_TOO_LARGE: Final = "Exceeds MaxBytes"


@attrs.frozen(kw_only=True)
class Delivered:
    """An entry as its consumer delivered it.

    Attributes:
        seq: Its place in the stream.
        place: Where it is acknowledged.
        time: When JetStream took it, Unix seconds.
    """

    seq: int
    place: str
    data: bytes
    time: float


@attrs.frozen(kw_only=True)
class Predecessor:
    """A consumer that is to be deleted before one of our own is made.

    Attributes:
        before: How far it delivered, where its owner is another one that did not delete it; else 0.
    """

    name: str
    before: int


class ShardConsumer:
    """The consumer of one lease.

    Args:
        shard: The shard.
        fence: Of the lease.
        tag: Six hexadecimal digits of the worker.
        pull_seconds: How long it waits for entries at a time.
        pull_entries: How many come at a time, at most.
        room: Taken while an entry is under way that is larger than a pull.
        came: Told what is delivered.
        changed: Told when it may be read again, or must be made anew.
    """

    def __init__(
        self,
        *,
        api: JetStreamApi,
        names: Names,
        clock: AsyncClock,
        shard: int,
        fence: int,
        tag: str,
        pull_seconds: float,
        pull_entries: int,
        room: anyio.Semaphore,
        came: Callable[[Delivered], None],
        changed: Callable[[], None],
    ) -> None:
        self.is_bound = False
        self.is_pulling = False
        self._api = api
        self._stream = names.stream
        self._subject = names.shard(shard)
        self._clock = clock
        self._shard = shard
        self._fence = fence
        self._tag = tag
        self._pull_seconds = pull_seconds
        self._pull_entries = pull_entries
        self._came = came
        self._changed = changed
        self._made = 0
        self._name = ""
        self._inbox: Inbox | None = None
        self._room = room
        self._has_room = self._is_large = False
        self._large_bytes = 0
        self._seen = 0
        self._asked = self._left = 0
        self._pull_ends = 0.0
        self.was_in_vain = False

    # --- made and deleted

    async def predecessors(self) -> list[Predecessor] | None:
        """Return what is in the way of one of our own; None: a newer owner is there."""
        found: list[Predecessor] = []
        for one in await self._api.consumers(self._stream):
            config = one.get("config", {})
            name = str(one.get("name", ""))
            match = _NAME.fullmatch(name)
            if match is None:
                # Somebody looks at the stream by hand: made for its subject it would be in the way.
                continue
            shard, fence = int(match[1]), int(match[2])
            if shard != self._shard or config.get("filter_subject") != self._subject:
                continue
            if fence > self._fence:
                return None
            delivered = int(one.get("delivered", {}).get("stream_seq", 0))
            before = delivered if fence < self._fence else 0
            found.append(Predecessor(name=name, before=before))
        return found

    async def bind(self, predecessors: list[Predecessor], *, is_valid: Callable[[], bool]) -> bool:
        """Delete those and make one of our own; False: another one came between, look again.

        Args:
            predecessors: What is in the way.
            is_valid: Whether the lease is held: asked last before it is made.
        """
        self.unbind()
        for one in predecessors:
            await self._api.delete_consumer(self._stream, one.name)
        if not is_valid():
            return False
        self._made += 1
        # Known before it is asked for: whether it is there or not, it is to be deleted at the end.
        name = self._name = f"s{self._shard}-{self._fence}-{self._made}-{self._tag}"
        # More than a message, or one that is as large would never come.
        self._large_bytes = max(2 << 20, 2 * await self._api.payload_bytes_max())
        inbox = await self._api.inbox(self._hear, self._doubt)
        try:
            await self._api.ask(
                f"CONSUMER.DURABLE.CREATE.{self._stream}.{name}",
                {"stream_name": self._stream, "config": self._config(name)},
            )
        except BusError as error:
            inbox.close()
            if isinstance(error, JetStreamRefusedError) and error.number in CONSUMER_EXISTS:
                await self._tell_strangers()
                return False
            raise
        self._inbox = inbox
        self._seen = 0
        self.is_bound = not inbox.is_lost
        return self.is_bound

    def _config(self, name: str) -> dict[str, object]:
        return {
            "durable_name": name,
            "filter_subject": self._subject,
            "deliver_policy": "all",
            "replay_policy": "instant",
            "ack_policy": "explicit",
            "ack_wait": nanoseconds(_ACK_WAIT_SECONDS),
            "max_deliver": -1,
            "max_ack_pending": -1,
        }

    async def _tell_strangers(self) -> None:
        for one in await self._api.consumers(self._stream):
            name = str(one.get("name", ""))
            wanted = one.get("config", {}).get("filter_subject")
            if _NAME.fullmatch(name) is None and wanted in {None, "", self._subject}:
                raise BusError(
                    f"bus: consumer {name} of stream {self._stream} takes what is shard "
                    f"{self._shard}'s: it is none of the workers'; delete it (nats consumer rm)"
                )

    def unbind(self) -> None:
        """Stop to use the consumer; it is there until it is deleted."""
        self.is_bound = self._is_large = False
        self._end_pull()
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None

    async def delete(self) -> None:
        """Delete what was made for this lease last: its owner leaves it in good order."""
        self.unbind()
        if self._name:
            await self._api.delete_consumer(self._stream, self._name)

    # --- read

    async def pull(self) -> None:
        """Ask for entries; they come by `came`, up to as many as a pull has."""
        inbox = self._inbox
        assert inbox is not None, "it is read while it is bound"
        is_large, self._is_large = self._is_large, False
        if is_large:
            await self._room.acquire()
            self._has_room = True
            if self._inbox is not inbox:
                self._end_pull()
                return
        self._asked = self._left = 1 if is_large else self._pull_entries
        request = {
            "batch": self._asked,
            "max_bytes": self._large_bytes if is_large else _PULL_BYTES,
            "expires": nanoseconds(self._pull_seconds),
        }
        self._pull_ends = self._clock.monotonic() + self._pull_seconds + _SLACK_SECONDS
        self.is_pulling = True
        self.was_in_vain = False
        try:
            with translated("read the bus"):
                subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
                await inbox.ask(subject, json.dumps(request).encode())
        except BusError:
            self._doubt()
            raise
        except BaseException:
            # Cancelled: the tenure has ended, and the room is for others, asked or not.
            self._end_pull()
            raise

    def look(self) -> None:
        """Doubt a pull that should have come to its end."""
        if self.is_pulling and self._clock.monotonic() > self._pull_ends:
            self._doubt()

    async def is_empty(self) -> bool:
        """Return whether all that its shard holds was delivered, and has come."""
        info = await self._api.ask(f"CONSUMER.INFO.{self._stream}.{self._name}")
        delivered = int(info.get("delivered", {}).get("consumer_seq", 0))
        return int(info.get("num_pending", 0)) == 0 and delivered == self._seen

    def _hear(self, message: NatsMessage) -> None:
        if not message.reply:
            is_untouched = self._left == self._asked
            said = message.headers.get("Description", "") if message.status == "409" else ""
            # What is behind some that came is asked for in the common way first.
            self._is_large = is_untouched and _TOO_LARGE in said
            self.was_in_vain = is_untouched and message.status != "408" and not self._is_large
            self._end_pull()
            if "Deleted" in said:
                self.is_bound = False
            self._changed()
            return
        number, delivered = _delivered(message)
        if number != self._seen + 1:
            self._doubt()
            return
        self._seen = number
        self._left -= 1
        if self._left == 0:
            self._end_pull()
        self._came(delivered)

    def _end_pull(self) -> None:
        self.is_pulling = False
        if self._has_room:
            self._has_room = False
            self._room.release()

    def _doubt(self) -> None:
        self.unbind()
        self._changed()

    # --- acknowledged

    async def acknowledge(self, places: list[str]) -> bool:
        """Acknowledge deliveries and return whether the consumer took them; False: it is gone.

        The last one is confirmed, and with it those sent before it: they arrive in this order.

        Raises:
            BusError: Nobody knows.
        """
        inbox = self._inbox
        if inbox is None:
            return False
        try:
            for place in places[:-1]:
                await inbox.send(place, b"+ACK")
            await inbox.request(places[-1], b"+ACK")
        except NatsError as error:
            if not error.is_nobody:
                raise BusError(f"bus: cannot acknowledge entries: {error}") from error
            if self._inbox is inbox:
                self._doubt()
            return False
        return True


def _delivered(message: NatsMessage) -> tuple[int, Delivered]:
    """Return the consumer's number of a delivery, and the delivery.

    Where it is acknowledged tells it: ``$JS.ACK.stream.consumer.tries.seq.number.time.left``; newer
    servers put a domain and an account before the stream, and one more word at the end.
    """
    words = message.reply.split(".")
    _, seq, number, time = words[4:8] if len(words) == 9 else words[6:10]
    return int(number), Delivered(
        seq=int(seq), place=message.reply, data=message.data, time=int(time) / 1e9
    )
