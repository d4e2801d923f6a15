"""The sender between a memory outbox and a scripted hub, in fake time."""

import collections
import random

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.errors import (
    FencedHubError,
    OutboxError,
    PermanentHubError,
    TemporaryHubError,
)
from ahcollector.outbox import LocalLease, MemoryOutbox, OutboxSender
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.outbox import event
from ahwire.hub import EventsReply, RejectedEvent

pytestmark = pytest.mark.anyio


class ScriptedHub:
    """Takes events; a test sets what it refuses, rejects, forgets or fails with."""

    def __init__(self):
        self.taken = []
        self.requests = []
        self.fences = []
        self.fails = None
        self.poison = set()
        self.odd = set()
        self.flaps = 0
        self.rejects = set()
        self.forgets = set()
        self.fence_min = 0
        self.dies_after = False

    async def send_events(self, events, fence=None):
        numbers = [event.seq for event in events]
        self.requests.append(numbers)
        self.fences.append(fence)
        if self.fails is not None:
            raise self.fails
        if fence is not None and fence < self.fence_min:
            raise FencedHubError("fenced", newest=self.fence_min)
        if self.poison.intersection(numbers):
            raise PermanentHubError("bad event", status=400)
        if self.odd.intersection(numbers) or self.flaps > 0:
            self.flaps -= 1
            raise TemporaryHubError("hub answered 404", status=404)
        good = [n for n in numbers if n not in self.rejects | self.forgets]
        self.taken += [n for n in good if n not in self.taken]
        if self.dies_after:
            raise TemporaryHubError("connection reset")
        return EventsReply(
            accepted=tuple(event(n).event_id for n in good),
            rejected=tuple(
                RejectedEvent(event_id=event(n).event_id, reason="unknown agent")
                for n in numbers
                if n in self.rejects
            ),
        )


class World:
    def __init__(self, *, clock=None, outbox=None, **settings):
        self.clock = FakeClock() if clock is None else clock
        self.outbox = MemoryOutbox() if outbox is None else outbox
        self.hub = ScriptedHub()
        self.sender = OutboxSender(
            outbox=self.outbox, hub=self.hub, clock=self.clock, rng=random.Random(1), **settings
        )

    async def append(self, *numbers):
        await self.outbox.append([event(n) for n in numbers], self.clock.time())

    async def waiting(self):
        return [entry.event.seq for entry in await self.outbox.peek(1_000)]

    async def dead(self):
        return [(letter.reason) for letter in await self.outbox.dead_letters()]

    async def run(self, seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.sender.run)
            await self.clock.run_for(seconds)
            tasks.cancel_scope.cancel()


async def test_events_are_sent_in_order_and_acknowledged():
    world = World(batch_max=2)
    await world.append(1, 2, 3, 4, 5)
    await world.run(1)
    assert world.hub.requests == [[1, 2], [3, 4], [5]]
    assert await world.waiting() == []
    await world.append(6)
    await world.run(1.5)
    assert world.hub.taken == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("number", [0, 201])
async def test_a_batch_is_of_1_to_200_events(number):
    with pytest.raises(ValueError, match="batch_max"):
        World(batch_max=number)


async def test_at_most_200_events_a_request():
    world = World()
    await world.append(*range(450))
    await world.run(1)
    assert [len(request) for request in world.hub.requests] == [200, 200, 50]


async def test_a_temporary_failure_keeps_everything_and_backs_off():
    world = World()
    await world.append(1, 2)
    world.hub.fails = TemporaryHubError("503", status=503)
    await world.run(1_800)
    assert await world.waiting() == [1, 2]
    assert await world.dead() == []
    # Full jitter up to 300 s: some dozens of tries, not thousands.
    assert 8 <= len(world.hub.requests) <= 60
    world.hub.fails = None
    await world.run(301)
    assert world.hub.taken == [1, 2]
    assert await world.waiting() == []


async def test_the_hub_s_retry_after_is_waited_for():
    world = World()
    await world.append(1)
    world.hub.fails = TemporaryHubError("429", status=429, retry_after_seconds=120)
    assert (await world.sender.send_once()).wait_seconds >= 120


@given(
    asked=st.one_of(st.none(), st.floats(0, 1e12)),
    longest=st.floats(1.0, 3600.0),
    failures=st.integers(1, 12),
)
async def test_no_wait_is_longer_than_the_backoff_whatever_the_hub_asks_for(
    asked, longest, failures
):
    world = World(backoff_max_seconds=longest)
    await world.append(1)
    world.hub.fails = TemporaryHubError("503", status=503, retry_after_seconds=asked)
    for _ in range(failures):
        wait = (await world.sender.send_once()).wait_seconds
        assert min(asked or 0.0, longest) <= wait <= longest


async def test_the_log_tells_how_long_events_wait_and_what_the_hub_asked_for(caplog):
    """One line a row of failures, and one more where the hub asks for longer than it is given."""
    caplog.set_level("INFO", "ahcollector.outbox")
    world = World()
    await world.append(1)
    world.hub.fails = TemporaryHubError("503", status=503)
    turn = await world.sender.send_once()
    [line] = caplog.records
    assert line.wait_seconds == pytest.approx(turn.wait_seconds, abs=0.1)
    assert not hasattr(line, "asked_seconds")
    world.hub.fails = TemporaryHubError("503", status=503, retry_after_seconds=3600.0)
    for _ in range(3):
        await world.sender.send_once()
    [_, line] = caplog.records
    assert (line.wait_seconds, line.asked_seconds) == (300.0, 3600.0)
    assert line.error == (
        "503; the hub asks for longer than backoff_max_seconds, it is asked again in 300 s"
    )
    world.hub.fails = None
    await world.sender.send_once()
    await world.append(2)
    world.hub.fails = TemporaryHubError("503", status=503, retry_after_seconds=3600.0)
    await world.sender.send_once()
    await world.sender.send_once()
    assert [one.getMessage() for one in caplog.records[2:]] == [
        "the hub answers again",
        "events wait in the outbox",
    ]


async def test_failures_of_an_empty_outbox_that_are_long_past_make_no_event_wait(caplog):
    """Each is the first of its row: it is told, and the sender comes back in a moment."""
    world = World()
    stats = world.outbox.stats
    for _ in range(12):

        async def away(now):
            raise OutboxError("no answer")

        world.outbox.stats = away
        assert (await world.sender.send_once()).wait_seconds <= 1.0
        world.outbox.stats = stats
        world.clock.advance(3600)
        assert (await world.sender.send_once()).wait_seconds == 1.0
    assert [one.getMessage() for one in caplog.records] == ["events wait in the outbox"] * 12


async def test_an_answer_that_tells_nothing_of_some_events_is_told_with_the_way_out(caplog):
    world = World()
    await world.append(1, 2, 3)
    world.hub.forgets = {2, 3}
    await world.sender.send_once()
    [line] = caplog.records
    assert line.kind == "incomplete"
    assert line.error == (
        f"the hub's answer names 1 of 3 events, and not {event(2).event_id}: the others are sent "
        "again; see that the hub names each event of a request in accepted or rejected"
    )


async def test_an_answer_that_was_lost_is_asked_for_again_with_the_same_ids():
    """C19: the hub took it and died before its answer."""
    world = World()
    await world.append(1, 2)
    world.hub.dies_after = True
    await world.sender.send_once()
    assert await world.waiting() == [1, 2]
    world.hub.dies_after = False
    await world.sender.send_once()
    assert world.hub.requests == [[1, 2], [1, 2]]
    assert world.hub.taken == [1, 2]
    assert await world.waiting() == []


async def test_one_refused_event_stops_nobody():
    """C21: the first is refused; the 100 behind it are delivered."""
    world = World()
    await world.append(*range(101))
    world.hub.poison = {0}
    turn = await world.sender.send_once()
    assert (turn.sent, turn.dead) == (100, 1)
    assert world.hub.taken == list(range(1, 101))
    assert await world.dead() == ["refused: bad event"]
    assert await world.waiting() == []


async def test_an_event_that_only_itself_gets_a_bare_404_stops_nobody():
    """C21 with a hub that sends no error code: others pass, so it is the event and not the path."""
    world = World()
    await world.append(*range(1, 101))
    world.hub.odd = {1, 50}
    await world.run(1)
    assert world.hub.taken == [n for n in range(1, 101) if n not in {1, 50}]
    assert await world.waiting() == []
    assert await world.dead() == ["refused: hub answered 404"] * 2


@pytest.mark.parametrize("events", [1, 2, 100])
async def test_a_path_that_answers_a_bare_404_drops_nothing(events):
    world = World()
    await world.append(*range(1, events + 1))
    world.hub.odd = set(range(1, events + 1))
    turn = await world.sender.send_once()
    assert (turn.sent, turn.dead) == (0, 0)
    assert len(world.hub.requests) <= 9, "a few tries tell that it is the path"
    await world.run(3_600)
    assert await world.dead() == []
    world.hub.odd = set()
    await world.run(301)
    assert world.hub.taken == list(range(1, events + 1))


@pytest.mark.parametrize("flaps", range(1, 8))
async def test_a_path_that_comes_back_while_it_is_looked_into_costs_no_event(flaps):
    world = World()
    await world.append(1, 2, 3, 4, 5, 6, 7)
    world.hub.flaps = flaps
    await world.run(301)
    assert sorted(world.hub.taken) == [1, 2, 3, 4, 5, 6, 7]
    assert await world.dead() == []


async def test_a_failure_while_the_bad_one_is_sought_keeps_the_rest():
    world = World()
    await world.append(1, 2, 3)
    world.hub.poison = {2}
    send = world.hub.send_events

    async def failing(events, fence=None):
        if [event.seq for event in events] == [3]:
            raise TemporaryHubError("503", status=503)
        return await send(events, fence)

    world.hub.send_events = failing
    turn = await world.sender.send_once()
    assert (turn.sent, turn.dead) == (1, 1)
    assert await world.waiting() == [3]


async def test_rejected_events_become_dead_letters():
    world = World()
    await world.append(1, 2, 3)
    world.hub.rejects = {2}
    await world.sender.send_once()
    assert world.hub.taken == [1, 3]
    assert await world.dead() == ["rejected: unknown agent"]
    assert await world.waiting() == []


async def test_events_the_answer_does_not_name_are_kept():
    world = World()
    await world.append(1, 2, 3)
    world.hub.forgets = {2}
    turn = await world.sender.send_once()
    assert turn.sent == 2
    assert await world.waiting() == [2]
    world.hub.forgets = set()
    await world.sender.send_once()
    assert world.hub.taken == [1, 3, 2]


async def test_what_the_hub_did_not_take_in_a_day_expires():
    world = World()
    await world.append(1)
    world.hub.fails = TemporaryHubError("down")
    world.clock.advance(86_000)
    await world.append(2)
    world.clock.advance(401)
    turn = await world.sender.send_once()
    assert turn.dead == 1
    assert await world.dead() == ["expired"]
    assert await world.waiting() == [2]


DAY = 86_400.0


@pytest.mark.fault
@pytest.mark.parametrize("jump", [25 * 3600.0, -25 * 3600.0, 400 * DAY, -400 * DAY])
@pytest.mark.parametrize("is_before", [True, False])
async def test_a_jump_of_the_clock_sends_nothing_to_the_dead_letters_untried(jump, is_before):
    """Before the process began, or while it lives; the hub answers all the time."""
    world = World()
    await world.append(1, 2)
    world.clock.step_wall(jump if is_before else 0.0)
    again = World(clock=world.clock, outbox=world.outbox)
    world.clock.step_wall(0.0 if is_before else jump)
    assert (await again.sender.send_once()).sent == 2
    assert await again.dead() == []


@pytest.mark.fault
async def test_what_the_clock_jumped_by_is_no_age_of_an_event():
    """The hub is away meanwhile; a day that passed expires it, and no other one does."""
    world = World()
    world.hub.fails = TemporaryHubError("503", status=503)
    await world.append(1)
    world.clock.step_wall(25 * 3600)
    await world.append(2)
    world.clock.advance(DAY - 1)
    await world.sender.send_once()
    assert await world.dead() == []
    world.clock.advance(2)
    await world.sender.send_once()
    assert await world.dead() == ["expired"]
    # By the clock as it is now the second is as old; it is kept by as much longer as that jumped.
    world.clock.advance(25 * 3600 - 10)
    await world.sender.send_once()
    assert await world.waiting() == [2]
    world.clock.advance(20)
    await world.sender.send_once()
    assert await world.waiting() == []


@pytest.mark.fault
async def test_a_process_that_begins_under_a_wrong_clock_tries_for_a_while():
    """One 503 in the moment of its start costs nothing; a hub that stays away does."""
    before = World()
    await before.append(1)
    before.clock.step_wall(25 * 3600)
    world = World(clock=before.clock, outbox=before.outbox)
    world.hub.fails = TemporaryHubError("503", status=503)
    for _ in range(3):
        await world.sender.send_once()
        world.clock.advance(99)
    assert await world.waiting() == [1]
    world.clock.advance(4)
    assert (await world.sender.send_once()).dead == 1
    assert await world.dead() == ["expired"]


@pytest.mark.parametrize("jump", [-25 * 3600.0, 0.0])
async def test_after_a_jump_back_an_event_expires_too_if_later(jump):
    world = World()
    world.hub.fails = TemporaryHubError("503", status=503)
    await world.append(1)
    world.clock.step_wall(jump)
    world.clock.advance(DAY - jump - 1)
    await world.sender.send_once()
    assert await world.waiting() == [1]
    world.clock.advance(2)
    await world.sender.send_once()
    assert await world.dead() == ["expired"]


@pytest.mark.parametrize(
    "failure",
    [FencedHubError("fenced", newest=5), FencedHubError("x", newest=None, is_senseless=True)],
)
async def test_a_lease_that_is_lost_makes_nothing_too_old(failure):
    """Another sends it, or a person has to mend the hub: it is no fault of the event."""
    world = World(lease=LocalLease(clock=FakeClock()))
    await world.append(1)
    world.hub.fails = failure
    world.clock.advance(10 * DAY)
    await world.sender.send_once()
    assert await world.waiting() == [1]
    world.hub.fails = None
    assert (await world.sender.send_once()).sent == 1


async def test_what_the_answers_never_name_expires():
    world = World()
    await world.append(1, 2)
    world.hub.forgets = {2}
    world.clock.advance(DAY + 1)
    turn = await world.sender.send_once()
    assert (turn.sent, turn.dead) == (1, 1)
    assert await world.dead() == ["expired"]


async def test_letters_beyond_their_retention_go_while_all_goes_well():
    world = World()
    await world.append(1)
    await world.outbox.dead([event(1).event_id], "rejected", world.clock.time(), None)
    world.clock.advance(31 * DAY)
    await world.sender.send_once()
    assert await world.dead() == []


async def test_a_fence_goes_with_each_request_and_a_412_keeps_every_event():
    world = World()
    lease = LocalLease(clock=world.clock)
    world.sender = OutboxSender(
        outbox=world.outbox,
        hub=world.hub,
        clock=world.clock,
        rng=random.Random(1),
        lease=lease,
    )
    first = round(world.clock.time() * 1000)
    await world.append(1)
    await world.sender.send_once()
    assert world.hub.fences == [first]
    world.hub.fence_min = first + 1_000_000
    await world.append(2)
    await world.sender.send_once()
    assert await world.waiting() == [2]
    await world.sender.send_once()
    assert world.hub.fences == [first, first, first + 1_000_001]
    assert world.hub.taken == [1, 2]


async def test_a_fence_that_the_outbox_refuses_drops_the_lease():
    """C20: another sender acknowledged with a newer fence meanwhile."""
    world = World()
    world.sender._lease = LocalLease(clock=world.clock)
    await world.append(1)
    newer = round(world.clock.time() * 1000) + 50
    await world.outbox.ack(["unknown"], newer)
    await world.sender.send_once()
    assert await world.waiting() == [1]
    await world.sender.send_once()
    assert await world.waiting() == []
    assert world.hub.fences[-1] == newer + 1


async def test_an_outbox_that_fails_is_tried_again():
    world = World()
    await world.append(1)
    peek = world.outbox.peek

    async def failing(limit):
        raise OutboxError("disk")

    world.outbox.peek = failing
    turn = await world.sender.send_once()
    assert turn.wait_seconds <= 1
    world.outbox.peek = peek
    await world.sender.send_once()
    assert world.hub.taken == [1]


async def test_events_appended_before_the_stop_are_sent_in_a_last_turn():
    world = World()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.sender.run)
        await world.clock.run_for(0.5)
        await world.append(1)
        tasks.cancel_scope.cancel()
    assert world.hub.taken == [1]


async def test_a_hub_that_hangs_does_not_hold_up_the_stop():
    world = World(last_send_seconds=0.05)

    async def hangs(events, fence=None):
        await anyio.sleep_forever()

    world.hub.send_events = hangs
    await world.append(1)
    with anyio.fail_after(3.0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.sender.run)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert await world.waiting() == [1]


async def test_20_senders_with_a_million_events_do_not_push_the_hub_over():
    """C25: the hub is back after 28 minutes; requests a second, peak over mean at most 3."""
    per_second = collections.Counter()
    for number in range(20):
        clock = FakeClock()
        begin = clock.time()
        outbox = CountingOutbox(50_000)
        sender = OutboxSender(
            outbox=outbox,
            hub=DownUntil(clock, begin + 28 * 60),
            clock=clock,
            rng=random.Random(number),
        )
        while outbox.left:
            now = clock.time() - begin
            turn = await sender.send_once()
            per_second[int(now)] += turn.sent > 0
            clock.advance(turn.wait_seconds + REQUEST_SECONDS)
    per_second = +per_second
    assert sum(per_second.values()) == 5_000
    took = max(per_second) - min(per_second) + 1
    assert max(per_second.values()) <= 3 * sum(per_second.values()) / took
    assert took <= 700


REQUEST_SECONDS = 0.05


class DownUntil:
    """A hub that takes everything from an instant on."""

    def __init__(self, clock, instant):
        self.clock, self.instant = clock, instant

    async def send_events(self, events, fence=None):
        if self.clock.time() < self.instant:
            raise TemporaryHubError("down")
        return EventsReply(accepted=tuple(event.event_id for event in events), rejected=())


class CountingOutbox(MemoryOutbox):
    """A backlog that costs no memory: 200 events stand for all."""

    def __init__(self, count):
        super().__init__()
        self.left = count
        self.page = None

    async def peek(self, limit):
        if self.page is None:
            await self.append([event(n) for n in range(200)], 2e9)
            self.page = await super().peek(200)
        return self.page[: min(limit, self.left)]

    async def ack(self, event_ids, fence):
        self.left -= len(event_ids)
        return len(event_ids)

    async def stats(self, now):
        return attrs.evolve(await super().stats(now), depth=self.left)
