"""What tests of buses share: a handler that notes what it gets, and a subscription for a block."""

import anyio

from ahcollector.bus import SHARDS


def number_of(delivery):
    return int(delivery.batch.request_id, 16)


async def until(condition, seconds=20):
    with anyio.fail_after(seconds):
        while not await condition():
            await anyio.sleep(0.01)


class Hands:
    """A handler that notes what it gets."""

    def __init__(self, *, acks=True):
        self.acks = acks
        self.taken = []

    async def __call__(self, delivery):
        self.taken.append(delivery)
        if self.acks:
            await delivery.ack()

    @property
    def numbers(self):
        return [number_of(one) for one in self.taken]

    async def have(self, count):
        async def enough():
            return len(self.taken) >= count

        await until(enough)


class subscribed:  # noqa: N801 - read as a function: `async with subscribed(bus, hands)`
    """A subscription for as long as the block lasts."""

    def __init__(self, bus, handler, shards=range(SHARDS)):
        self._work = (bus.subscribe, shards, handler)

    async def __aenter__(self):
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(*self._work)

    async def __aexit__(self, *error):
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(*error)
