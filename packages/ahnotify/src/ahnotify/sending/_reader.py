"""Reading two queues by weight, so that neither starves.

The law: while both queues have messages, `weight` instant ones are taken for one digest; while one
is empty, the other is taken without a pause. Counted here, not by broker priorities.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ahnotify._signal import Signal
from ahnotify.broker.base import Consumer, Delivery


class WeightedTurns:
    """Whose turn it is: pure. Each queue may take `weight` turns a round."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._left = dict(weights)

    def order(self) -> list[str]:
        """Queues to look at, those with turns left first."""
        names = list(self._weights)
        return [n for n in names if self._left[n] > 0] + [n for n in names if self._left[n] <= 0]

    def took(self, name: str) -> None:
        """A message of `name` was taken."""
        if self._left[name] <= 0:
            # The others had turns left and nothing to take: the round is over.
            self._left = dict(self._weights)
        self._left[name] -= 1
        if not any(left > 0 for left in self._left.values()):
            self._left = dict(self._weights)


class WeightedReader:
    """Hands out messages of several consumers by weight."""

    def __init__(self, consumers: Mapping[str, Consumer], weights: Mapping[str, int]) -> None:
        self._consumers = dict(consumers)
        self._turns = WeightedTurns({name: weights[name] for name in consumers})
        self._arrived = Signal()
        # One message a queue waits here at most; it stays leased by its consumer meanwhile.
        self._streams: dict[
            str, tuple[MemoryObjectSendStream[Delivery], MemoryObjectReceiveStream[Delivery]]
        ] = {name: anyio.create_memory_object_stream[Delivery](1) for name in consumers}

    async def pump(self, name: str) -> None:
        """Move messages of one consumer to where `next` sees them; run one for each."""
        send, _ = self._streams[name]
        while True:
            delivery = await self._consumers[name].receive()
            await send.send(delivery)
            self._arrived.fire()

    async def next(self) -> Delivery:
        """The next message; waits for one."""
        while True:
            arrived = self._arrived.listen()
            for name in self._turns.order():
                try:
                    delivery = self._streams[name][1].receive_nowait()
                except anyio.WouldBlock:
                    continue
                self._turns.took(name)
                return delivery
            await arrived.wait()

    def close(self) -> None:
        """Close the streams; what is in them is given back by its consumer's end."""
        for send, receive in self._streams.values():
            send.close()
            receive.close()
