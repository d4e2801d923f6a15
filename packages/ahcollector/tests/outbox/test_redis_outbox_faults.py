"""The outbox in a Redis that is killed, and two processes' outboxes at once.

Redis syncs its file at every write here (``appendfsync always``): what a call returned is there
after kill -9, and a call that raised may be repeated.
"""

import anyio
import pytest

from ahcollector.errors import OutboxError
from ahcollector.outbox import OutboxBounds
from ahcollector.testing._contracts.outbox import T0, event
from ahcollector.testing.contracts import OutboxContract

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.anyio]


class TestOutboxInAKilledRedis(OutboxContract):
    durable = True

    @pytest.fixture(autouse=True)
    async def _redis(self, mortal, killed, outboxes_at, anyio_backend):
        self.server, self.killed = mortal, killed
        async with outboxes_at(mortal.port) as self.outboxes:
            yield

    async def new(self, bounds=OutboxBounds(dead_max=100)):  # noqa: B008 - frozen
        from ahcollector.outbox.redis import RedisOutbox

        self.bounds = bounds
        outbox = RedisOutbox(client=self.outboxes.client(), bounds=bounds)
        return self.killed(outbox, self.server, failure=OutboxError, kill_at={2, 4, 7, 11})

    async def reopen(self, outbox):
        return await self.new(self.bounds)


async def test_what_returned_is_there_after_kill_9_in_the_middle(mortal, outboxes_at):
    """Events appended, acknowledged and buried by four writers while Redis dies again and again."""
    appended, raised, taken, settled = set(), set(), set(), set()
    async with outboxes_at(mortal.port) as new:

        async def write(outbox, first):
            for number in range(first, first + 150):
                try:
                    await outbox.append([event(number)], T0)
                    appended.add(number)
                except OutboxError:
                    raised.add(number)

        async def settle(outbox):
            while True:
                try:
                    found = [entry.event for entry in await outbox.peek(5)]
                    taken.update(one.seq for one in found)
                    await outbox.ack([one.event_id for one in found[:3]], None)
                    settled.update(one.seq for one in found[:3])
                    await outbox.dead([one.event_id for one in found[3:]], "rejected", T0, None)
                    settled.update(one.seq for one in found[3:])
                except OutboxError:
                    await anyio.sleep(0.002)

        for turn in range(3):
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(settle, new())
                    async with anyio.create_task_group() as writers:
                        for writer in range(4):
                            first = turn * 1_000 + writer * 150
                            writers.start_soon(write, new(), first)
                        while len(appended) < 100 + 300 * turn:
                            await anyio.sleep(0.001)
                        await anyio.to_thread.run_sync(mortal.kill)
                    mortal.start()
                    tasks.cancel_scope.cancel()
        assert raised
        outbox = new()
        await outbox.append([event(number) for number in raised], T0)
        waiting, dead = set(), set()
        while page := await outbox.peek(1_000):
            waiting |= {entry.event.seq for entry in page}
            await outbox.ack([entry.event.event_id for entry in page], None)
        for letter in await outbox.dead_letters(limit=10_000):
            dead.add(int(letter.letter_id[-12:], 16))
        assert appended | raised == waiting | dead | taken
        # What was settled stays so; in the middle of a kill it may be settled or not.
        assert not settled & waiting
        assert not waiting & dead


@pytest.mark.parametrize("clients", [2, 5])
async def test_who_appends_the_same_events_at_once_appends_them_once(outboxes, clients):
    news = []

    async def append(outbox):
        for begin in range(0, 200, 10):
            news.append(await outbox.append([event(n) for n in range(begin, begin + 25)], T0))

    async with anyio.create_task_group() as tasks:
        for _ in range(clients):
            tasks.start_soon(append, outboxes())
    found = [entry.event.seq for entry in await outboxes().peek(1_000)]
    assert sorted(found) == list(range(215))
    assert sum(news) == 215
