"""What only the presence in Redis has: several processes, lost replies, a Redis that goes away."""

import asyncio
import itertools
import json
import math

import anyio
import pytest

from ahcollector.errors import PresenceError
from ahcollector.presence import AgentRef, PresenceCounts, TransitionKind
from ahcollector.testing import FakeClock

pytestmark = [pytest.mark.anyio, pytest.mark.service]
T0 = 1_700_000_000.0
A = AgentRef(agent_id="agent-a", company_id="acme", server_id="web-1")
B = AgentRef(agent_id="agent-b", company_id="bolt", server_id="db-1")
DOWN, UP = TransitionKind.DOWN, TransitionKind.UP


def fleet(count):
    return [AgentRef(agent_id=f"a{n:05}", company_id="acme", server_id="s") for n in range(count)]


async def touch_all(presence, refs, now):
    async with anyio.create_task_group() as tasks:
        for ref in refs:
            tasks.start_soon(presence.touch, ref, now, None)


# --- several processes


async def test_two_scans_at_once_decide_and_hand_out_each_transition_once(shared):
    one, other = shared(), shared()
    await touch_all(one, fleet(300), T0)
    found = []

    async def scan(presence):
        while page := await presence.expire(T0 + 100, 7):
            found.extend(page)
            for transition in page:
                await presence.confirm(transition)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scan, one)
        tasks.start_soon(scan, other)
    assert sorted(transition.agent.agent_id for transition in found) == [
        ref.agent_id for ref in fleet(300)
    ]
    assert await one.pending_count() == 0


async def test_intents_of_a_process_that_died_are_handed_out_after_their_lease(shared):
    """The same ids, in their order, also those that came behind them meanwhile."""
    clock = FakeClock()
    one, other = shared(clock=clock), shared(clock=clock)
    await one.touch(A, T0, None)
    [down] = await one.expire(T0 + 100, 500)
    await other.touch(A, T0 + 101, None)
    assert await other.pending(500) == []
    assert await other.expire(T0 + 102, 500) == []
    assert await other.pending_count() == 2
    clock.advance(19.9)
    assert await other.pending(500) == []
    clock.advance(0.1)
    first, up = await other.pending(500)
    assert (first, up.kind) == (down, UP)
    assert await one.pending(500) == []
    await other.confirm(down)
    assert await one.pending(500) == []
    await other.confirm(up)
    await one.confirm(down)
    assert await one.pending_count() == 0


async def test_a_process_that_comes_back_under_its_name_goes_on_at_once(shared):
    clock = FakeClock()
    one = shared(clock=clock, name="one")
    await one.touch(A, T0, None)
    found = await one.expire(T0 + 100, 500)
    assert await shared(clock=clock, name="other").pending(500) == []
    assert await shared(clock=clock, name="one").pending(500) == found


async def test_a_lease_from_a_clock_that_was_ahead_binds_nobody(shared):
    """C17."""
    ahead, right = FakeClock(), FakeClock()
    ahead.step_wall(3_600)
    one, other = shared(clock=ahead), shared(clock=right)
    await one.touch(A, T0, None)
    found = await one.expire(T0 + 100, 500)
    lease = await one.drain_seen(500)
    assert await other.pending(500) == found
    assert (await other.drain_seen(500)).seen == lease.seen


async def test_a_lease_holds_although_the_other_clock_is_a_little_behind(shared):
    ahead, right = FakeClock(), FakeClock()
    ahead.step_wall(1.5)
    one, other = shared(clock=ahead), shared(clock=right)
    await one.touch(A, T0, None)
    assert len(await one.expire(T0 + 100, 500)) == 1
    assert len((await one.drain_seen(500)).seen) == 1
    assert await other.pending(500) == []
    assert (await other.drain_seen(500)).seen == ()


async def test_contacts_of_a_process_that_died_are_told_after_their_lease(shared):
    clock = FakeClock()
    one, other = shared(clock=clock), shared(clock=clock)
    await one.touch(A, T0, None)
    await one.touch(B, T0, None)
    await one.drain_seen(500)
    await other.touch(B, T0 + 5, None)
    lease = await other.drain_seen(500)
    assert [(seen.agent_id, seen.last_seen) for seen in lease.seen] == [("agent-b", T0 + 5)]
    await other.confirm_seen(lease)
    clock.advance(60)
    lease = await other.drain_seen(500)
    assert [(seen.agent_id, seen.last_seen) for seen in lease.seen] == [
        ("agent-a", T0),
        ("agent-b", T0 + 5),
    ]


async def test_a_confirmation_after_the_lease_ended_takes_nothing_from_its_new_holder(shared):
    clock = FakeClock()
    one, other = shared(clock=clock), shared(clock=clock)
    await one.touch(A, T0, None)
    late = await one.drain_seen(500)
    clock.advance(60)
    lease = await other.drain_seen(500)
    assert lease.seen == late.seen
    await one.confirm_seen(late)
    await one.release_seen(late)
    assert (await other.drain_seen(500)).seen == ()
    await other.release_seen(lease)
    assert (await other.drain_seen(500)).seen == lease.seen


async def test_one_of_two_ingest_processes_that_restarts_makes_no_darkness(shared):
    one, two = shared(name="one"), shared(name="two")
    for second in (0, 5, 10):
        await one.beacon(T0 + second)
        await two.beacon(T0 + second + 1)
    again = shared(name="one")
    await again.beacon(T0 + 12)
    await two.beacon(T0 + 16)
    sight = await one.ingest_sight()
    assert (sight.since, sight.dark_seconds) == (T0, None)
    again, two = shared(name="one"), shared(name="two")
    await two.beacon(T0 + 20)
    await again.beacon(T0 + 21)
    sight = await one.ingest_sight()
    assert (sight.since, sight.dark_seconds) == (T0 + 20, 4)


async def test_beacons_written_at_once_are_all_counted(shared):
    processes = [shared(name=f"p{number}") for number in range(8)]
    async with anyio.create_task_group() as tasks:
        for process in processes:
            tasks.start_soon(process.beacon, T0)
    client = shared.client(processes[0])
    ledger = json.loads(await client.call("GET", client.key("pres", "ingest")))
    assert len(ledger["witnesses"]) == 8


async def test_a_ledger_of_beacons_that_cannot_be_read_means_that_nobody_knows(shared):
    presence = shared()
    client = shared.client(presence)
    await client.call("SET", client.key("pres", "ingest"), "noise")
    assert await presence.ingest_sight() is None
    await presence.beacon(T0)
    assert (await presence.ingest_sight()).dark_seconds is None


async def test_clocks_an_hour_apart_at_two_processes(shared):
    """C17. The newest receipt gives the deadline; last_seen never goes back."""
    one, other = shared(), shared()
    await other.touch(A, T0 + 3_600, None)
    await one.touch(A, T0, None)
    [shown] = await one.agents()
    assert (shown.last_seen, shown.deadline) == (T0 + 3_600, T0 + 90)
    [down] = await one.expire(T0 + 91, 500)
    assert (down.kind, down.last_seen) == (DOWN, T0 + 3_600)
    await other.touch(A, T0 + 3_700, None)
    await one.confirm(down)
    [up] = await other.pending(500) or await one.pending(500)
    assert up.seq > down.seq


@pytest.mark.parametrize("late_ms", [0, 1])
async def test_a_sign_of_life_at_the_deadline_while_scans_run(shared, late_ms):
    """C16. Nothing, or down and then up; never up before down, at whichever process."""
    processes = [shared(name="same"), shared(name="same")]
    deadline = T0 + 90
    for number in range(20):
        ref = AgentRef(agent_id=f"a{number}", company_id="acme", server_id="s")
        await processes[0].touch(ref, T0, None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(processes[number % 2].expire, deadline + late_ms / 1000, 500)
            tasks.start_soon(processes[1].touch, ref, deadline + late_ms / 1000, None)
            tasks.start_soon(processes[0].expire, deadline + late_ms / 1000, 500)
        found = await processes[0].pending(500)
        kinds = [transition.kind for transition in found]
        assert kinds in ([], [DOWN, UP]) if late_ms else kinds == []
        assert [one.seq for one in found] == sorted({one.seq for one in found})
        for transition in found:
            await processes[0].confirm(transition)


# --- commands that fail


async def life(shared, on_call=None, how=None):
    """An agent goes down and comes up; at one command something happens. Return what was told."""
    presence = shared(name="one", clock=FakeClock())
    client = shared.client(presence)
    if on_call is not None:
        client.fails = {on_call: how}
    told = {}

    async def keep_on(method, *args):
        while True:
            try:
                return await method(*args)
            except PresenceError:
                continue

    async def carry(now):
        for transition in await keep_on(presence.expire, now, 500):
            # An outbox: what it has, it ignores.
            assert told.setdefault(transition.event_id, transition) == transition
            await keep_on(presence.confirm, transition)

    ref = AgentRef(agent_id=f"agent-{on_call}-{how}", company_id="acme", server_id="s")
    await keep_on(presence.touch, ref, T0, None)
    await carry(T0 + 100)
    await keep_on(presence.touch, ref, T0 + 110, None)
    await carry(T0 + 120)
    await carry(T0 + 300)
    await keep_on(presence.remove, ref.agent_id, T0 + 310, "removed")
    await carry(T0 + 320)
    assert await keep_on(presence.pending_count) == 0
    return list(told.values()), client.calls


@pytest.mark.parametrize("how", ["not executed", "reply lost"])
async def test_any_command_can_fail_and_every_transition_is_told_under_one_id(shared, how):
    """C10, C18. Executed or not: nothing is decided twice, and nothing is lost."""
    calm, calls = await life(shared)
    expected = [(DOWN, None), (UP, None), (DOWN, None), (UP, "removed")]
    assert [(one.kind, one.reason) for one in calm] == expected
    assert calls >= 15
    for call in range(calls):
        told, _ = await life(shared, call, how)
        assert [(one.kind, one.reason) for one in told] == expected, call
        assert [one.seq for one in told] == [one.seq for one in calm]


async def test_cancelled_at_every_await_nothing_is_lost_or_done_twice(shared):
    """C13. A caller is cancelled after any number of steps of the loop, and asks again."""
    presence = shared(name="one", clock=FakeClock())
    for steps in itertools.count():
        ref = AgentRef(agent_id=f"agent-{steps}", company_id="acme", server_id="s")
        cancelled = 0

        async def hurried(method, *args, steps=steps):
            nonlocal cancelled
            task = asyncio.ensure_future(method(*args))
            for _ in range(steps):
                await asyncio.sleep(0)
            if not task.done():
                cancelled += 1
                task.cancel()
            await asyncio.wait([task])
            return await method(*args)

        await hurried(presence.touch, ref, T0, None)
        await hurried(presence.ensure, ref, T0, None)
        [down] = await hurried(presence.expire, T0 + 100, 500)
        await hurried(presence.confirm, down)
        await hurried(presence.touch, ref, T0 + 110, None)
        [up] = await hurried(presence.pending, 500)
        await hurried(presence.confirm, up)
        assert (down.kind, up.kind) == (DOWN, UP)
        await hurried(presence.beacon, T0 + steps)
        await hurried(presence.remove, ref.agent_id, T0 + 120, "removed")
        assert await presence.pending_count() == 0
        if not cancelled:
            break
    assert steps > 3
    assert await presence.counts() == PresenceCounts(agents=0, down=0)


async def test_a_redis_that_gives_no_answer_is_a_presence_error_that_says_so(shared):
    presence = shared()
    shared.client(presence).fails = {"always": "not executed"}
    lease = await shared().drain_seen(1)
    for call in (
        presence.touch(A, T0, None),
        presence.ensure(A, T0, None),
        presence.remove("agent-a", T0, "removed"),
        presence.expire(T0, 1),
        presence.pending(1),
        presence.pending_count(),
        presence.grace(now=T0, ended_at=T0, blind_seconds=1, blind_max_seconds=1),
        presence.beacon(T0),
        presence.ingest_sight(),
        presence.drain_seen(1),
        presence.confirm_seen(lease),
        presence.release_seen(lease),
        presence.counts(),
        presence.company_counts(),
        presence.agents(),
        presence.ping(),
    ):
        with pytest.raises(PresenceError, match="injected"):
            await call
    shared.client(presence).fails = {}
    await presence.ping()


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
async def test_a_time_that_is_none_is_refused_before_it_is_sent(shared, now):
    presence = shared()
    for call in (
        presence.touch(A, now, None),
        presence.ensure(A, now, None),
        presence.remove("agent-a", now, "removed"),
        presence.expire(now, 1),
        presence.beacon(now),
        presence.grace(now=now, ended_at=0, blind_seconds=1, blind_max_seconds=1),
    ):
        with pytest.raises(ValueError, match="Unix seconds"):
            await call


async def test_an_id_that_is_no_text_fails_its_own_contact_only(shared):
    presence = shared()
    broken = AgentRef(agent_id="agent-\ud800", company_id="acme", server_id="s")
    errors = []

    async def touch(ref):
        try:
            await presence.touch(ref, T0, None)
        except PresenceError as error:
            errors.append(str(error))

    async with anyio.create_task_group() as tasks:
        for ref in (A, broken, B):
            tasks.start_soon(touch, ref)
    assert len(errors) == 1
    assert "UTF-8" in errors[0]
    assert (await presence.counts()).agents == 2


# --- many agents


async def test_a_grace_over_ten_thousand_agents_is_applied_in_pages(shared):
    """Redis does something else between them."""
    presence = shared()
    refs = fleet(10_000)
    for begin in range(0, len(refs), 500):
        await touch_all(presence, refs[begin : begin + 500], T0)
    client = shared.client(presence)
    before = client.calls
    await presence.grace(now=T0, ended_at=T0, blind_seconds=900, blind_max_seconds=300)
    assert client.calls - before == 1 + 10_000 // 200 + 1
    assert await presence.expire(T0 + 419, 500) == []
    found = await presence.expire(T0 + 421, 500)
    assert len(found) == 500


async def test_a_scan_finishes_a_grace_that_died_on_its_way_before_it_decides(shared):
    one, other = shared(walk_agents_max=2), shared(walk_agents_max=2)
    await touch_all(one, fleet(9), T0)
    await one.touch(A, T0 + 3_600, None)
    client = shared.client(one)
    client.fails = {client.calls + 2: "not executed"}
    with pytest.raises(PresenceError):
        await one.grace(now=T0 + 100, ended_at=T0 + 100, blind_seconds=9, blind_max_seconds=300)
    assert await other.expire(T0 + 101, 500) == []
    assert await other.expire(T0 + 250, 500) == []
    # The one whose deadline a clock ahead had set is brought back too.
    assert len(await other.expire(T0 + 251, 500)) == 10


async def test_a_scan_in_which_nobody_is_due_is_one_command_and_takes_no_event_id(shared):
    def no_id():
        raise AssertionError("an id was made")

    presence = shared(event_ids=no_id)
    await touch_all(presence, fleet(100), T0)
    client = shared.client(presence)
    before = client.calls
    assert await presence.expire(T0 + 89, 500) == []
    assert client.calls - before == 1


async def test_touches_that_come_together_are_few_commands(shared):
    presence = shared()
    await touch_all(presence, fleet(400), T0)
    client = shared.client(presence)
    before = client.calls
    await touch_all(presence, fleet(400), T0 + 1)
    assert client.calls - before <= 3


async def test_the_seq_of_a_removed_agent_is_kept_for_30_days_and_nothing_else_is_left(
    shared, keys_of
):
    presence = shared()
    await presence.touch(A, T0, 45.0)
    await presence.expire(T0 + 1_000, 500)
    await presence.remove(A.agent_id, T0 + 1_001, "removed")
    for transition in await presence.pending(500):
        await presence.confirm(transition)
    client = shared.client(presence)
    key = client.key("pres", "a", A.agent_id)
    assert await client.call("HGETALL", key) in (
        {b"seq": b"1700001001000", b"removed": b"1700001001.0"},
        [b"seq", b"1700001001000", b"removed", b"1700001001.0"],
    )
    assert 29 * 86_400 < await client.call("TTL", key) <= 30 * 86_400
    assert await keys_of(client) == {"pres:a:agent-a", "pres:n"}
    await presence.touch(A, T0, None)
    assert await client.call("TTL", key) == -1
