"""The sender and its lease: asked for before each request, given up when it is of no use."""

import random

import anyio
import pytest

from ahcollector.errors import OutboxError, PermanentHubError, TemporaryHubError
from ahcollector.metrics import (
    OUTBOX_DEAD_LETTERS_DROPPED,
    OUTBOX_DEPTH,
    OUTBOX_SEND_FAILURES,
    PrometheusMetrics,
)
from ahcollector.outbox import MemoryOutbox, OutboxBounds, OutboxSender
from ahcollector.testing import FakeClock, FakeHub
from ahcollector.testing._contracts.outbox import event

pytestmark = pytest.mark.anyio


class ScriptedLease:
    """Gives the fences of a list, the last for ever; notes what it is asked."""

    def __init__(self, *fences):
        self.fences = list(fences)
        self.asked = []
        self.fails_to_drop = False

    async def hold(self):
        self.asked.append("hold")
        fence = self.fences[0]
        if len(self.fences) > 1:
            del self.fences[0]
        if isinstance(fence, Exception):
            raise fence
        return fence

    async def drop(self, newest):
        self.asked.append(("drop", newest))
        if self.fails_to_drop:
            raise OutboxError("Redis is gone")


class World:
    def __init__(self, *fences, **bounds):
        self.clock, self.hub, self.metrics = FakeClock(), FakeHub(), PrometheusMetrics()
        self.outbox = MemoryOutbox(bounds=OutboxBounds(**bounds))
        self.lease = ScriptedLease(*fences)
        self.sender = OutboxSender(
            outbox=self.outbox,
            hub=self.hub,
            clock=self.clock,
            rng=random.Random(1),
            lease=self.lease,
            metrics=self.metrics,
        )

    async def append(self, *numbers):
        await self.outbox.append([event(number) for number in numbers], self.clock.time())

    async def waiting(self):
        return [entry.event.seq for entry in await self.outbox.peek(1_000)]

    def value(self, metric, **labels):
        return self.metrics.registry.get_sample_value(metric.name, labels)

    async def run(self, seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.sender.run)
            await self.clock.run_for(seconds)
            tasks.cancel_scope.cancel()


async def test_without_the_lease_nothing_is_sent():
    world = World(None)
    await world.append(1)
    await world.run(10)
    assert world.hub.calls == []
    assert await world.waiting() == [1]


async def test_it_is_asked_for_before_each_request():
    world = World(7)
    await world.append(*range(5))

    async def refuses(events, fence=None):
        world.lease.asked.append(len(events))
        raise PermanentHubError("no", status=400)

    world.hub.send_events = refuses
    await world.sender.send_once()
    assert world.lease.asked == ["hold", "hold", 5, *["hold", 1] * 5]


@pytest.mark.parametrize("then", [None, 8])
async def test_a_lease_that_was_lost_in_the_middle_of_a_turn_ends_it(then, caplog):
    """The rest is for whoever has it now; nothing is sent with a fence that is not held."""
    world = World(7, 7, then)
    await world.append(1, 2, 3)
    refused = []

    async def refuses(events, fence=None):
        refused.append(len(events))
        raise PermanentHubError("no", status=400)

    world.hub.send_events = refuses
    turn = await world.sender.send_once()
    assert refused == [3]
    assert (turn.sent, turn.dead) == (0, 0)
    assert await world.waiting() == [1, 2, 3]
    assert world.value(OUTBOX_SEND_FAILURES, kind="lease_lost") == 1
    [line] = caplog.records
    for words in (
        "fence 7",
        "whoever has it",
        "1.5 times the hub's timeout",
        "lease_seconds of the lease",
    ):
        assert words in line.error


async def test_it_is_given_up_before_a_long_wait_and_at_the_end():
    world = World(7)
    await world.append(1)
    world.hub.fails = TemporaryHubError("503", status=503, retry_after_seconds=60.0)
    await world.run(1)
    assert world.lease.asked == ["hold", "hold", ("drop", None), "hold", "hold", ("drop", None)]


async def test_it_is_kept_while_all_goes_well():
    world = World(7)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.sender.run)
        await world.append(1, 2)
        await world.clock.run_for(30)
        assert set(world.lease.asked) == {"hold"}
        tasks.cancel_scope.cancel()
    assert world.lease.asked[-1] == ("drop", None)


async def test_a_lease_that_cannot_be_given_up_stops_nobody():
    world = World(7)
    world.lease.fails_to_drop = True
    await world.append(1)
    await world.run(2)
    assert await world.waiting() == []


async def test_a_lease_that_nobody_can_give_keeps_every_event():
    world = World(OutboxError("Redis is gone"), 7)
    await world.append(1)
    turn = await world.sender.send_once()
    assert turn.sent == 0
    assert world.value(OUTBOX_SEND_FAILURES, kind="outbox") == 1
    assert (await world.sender.send_once()).sent == 1


async def test_the_depth_is_told_also_where_another_sends():
    world = World(7, 7, None)
    await world.append(1, 2)
    world.hub.fails = TemporaryHubError("503", status=503)
    await world.sender.send_once()
    assert world.value(OUTBOX_DEPTH) == 2
    await world.outbox.ack([event(1).event_id], None)
    await world.sender.send_once()
    assert world.value(OUTBOX_DEPTH) == 1


async def test_letters_that_were_pushed_out_are_counted_by_whoever_sends():
    world = World(7, 7, 7, None, 7, dead_max=1)

    async def bury(*numbers):
        await world.append(*numbers)
        ids = [event(number).event_id for number in numbers]
        await world.outbox.dead(ids, "rejected", world.clock.time(), None)

    await bury(1, 2)  # before the first look: counted by whoever sent then
    await world.sender.send_once()
    assert not world.value(OUTBOX_DEAD_LETTERS_DROPPED)
    await bury(3, 4, 5)
    await world.sender.send_once()
    assert world.value(OUTBOX_DEAD_LETTERS_DROPPED) == 3
    await world.sender.send_once()
    await bury(6)
    await world.sender.send_once()  # another has the lease and counts it
    await world.sender.send_once()
    assert world.value(OUTBOX_DEAD_LETTERS_DROPPED) == 3
