"""What a company's agents come to, between their silence and the outbox."""

import pytest
from agents_world import World, agent, group_settings, silence

from ahcollector.alerts import UnitKey
from ahcollector.detector import AGENTS_SHARD
from ahcollector.errors import AlertStateError, OutboxError
from ahwire import EventType

pytestmark = pytest.mark.anyio
GROUP = "group_down"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


async def started(*args, **options):
    world = World(*args, **options)
    await world.wait(12)
    assert await world.told() == []
    return world


async def test_single_downs_and_ups_go_out_at_once():
    world = await started()
    await world.lose(1)
    await world.lose(2)
    assert await world.told() == ["a1.down", "a2.down"]
    await world.find(2, 1)
    assert sorted(await world.told()) == ["a1.up", "a2.up"]


@pytest.mark.fault
async def test_a9_a_group_lists_who_is_in_it_and_is_updated():
    """A9: exactly the minimum forms it, single downs before stay, a later one joins."""
    world = await started(agents=10)
    await world.lose(1)
    await world.lose(2)
    assert await world.told() == ["a1.down", "a2.down"]
    await world.lose(3)
    [down, group] = await world.events()
    assert await world.told() == [f"a3.down:{GROUP}", "group.down"]
    assert group.labels == {"members": ["a1", "a2", "a3"], "members_count": 3}
    assert down.group_key == group.group_key
    await world.lose(4)
    [_, update] = await world.events()
    assert await world.told() == [f"a4.down:{GROUP}", "group.down"]
    assert (update.group_key, update.labels["members_count"]) == (group.group_key, 4)
    assert update.seq > group.seq
    assert update.event_id != group.event_id
    assert world.metric('ahc_events_emitted_total{type="agent.down"}') == 4
    assert world.metric('ahc_events_emitted_total{type="group.down"}') == 2


@pytest.mark.fault
async def test_a10_a_group_that_ends_with_two_down_tells_each_once():
    """A10: two individual downs, one each, under their own ids and above what was told."""
    world = await started(agents=10)
    await world.lose(1, 2, 3)
    first = await world.events()
    assert sorted(await world.told()) == [
        *(f"a{number}.down:{GROUP}" for number in (1, 2, 3)),
        "group.down",
    ]
    await world.find(3)
    again = await world.events()
    assert await world.told() == [
        f"a3.up:{GROUP}",
        "group.up",
        "a1.down!group_ended",
        "a2.down!group_ended",
    ]
    for number in (1, 2):
        [old] = [event for event in first if event.agent_id == f"a{number}"]
        [new] = [event for event in again if event.agent_id == f"a{number}"]
        assert new.event_id != old.event_id
        assert new.seq > old.seq
    assert world.metric('ahc_events_repeated_total{reason="group_ended"}') == 2
    assert world.metric('ahc_events_emitted_total{type="agent.down"}') == 3
    await world.find(1, 2)
    assert sorted(await world.told()) == ["a1.up", "a2.up"]


@pytest.mark.fault
async def test_a5_when_a_silence_ends_who_is_still_down_is_told_once():
    """A5: one event at once; who came back inside the silence is not told of at all."""
    world = await started()
    world.hush(silence("s1|s2"))
    await world.lose(1, 2, 3)
    assert sorted(await world.told()) == ["a1.down:silence:s1", "a2.down:silence:s1", "a3.down"]
    await world.find(2)
    assert await world.told() == ["a2.up:silence:s1"]
    world.hush()
    await world.wait(1)
    assert await world.told() == ["a1.down!silence_ended"]
    await world.wait(20)
    assert await world.told() == []
    await world.find(1)
    assert await world.told() == ["a1.up"]


@pytest.mark.fault
async def test_a5_resolved_inside_the_silence_and_down_again_is_told_once():
    """A5: the second down is the one that is owed."""
    world = await started()
    world.hush(silence("s1", ends=60))
    await world.lose(1)
    await world.find(1)
    await world.lose(1)
    assert await world.told() == [f"a1.{kind}:silence:s1" for kind in ("down", "up", "down")]
    await world.wait(60)
    assert await world.told() == ["a1.down!silence_ended"]


@pytest.mark.fault
async def test_a7_a_maintenance_window_owes_at_its_end_by_the_clock_of_its_place():
    """A7: the server is in Berlin, where it is 09:00; the window ends at 09:02, and comes again."""
    window = {
        "weekdays": ["fri", "sat"],
        "from": "09:00",
        "to": "09:02",
        "timezone": "Europe/Berlin",
    }
    world = await started()
    world.hush(silence("s1", recurrence=window))
    await world.lose(1)
    assert await world.told() == ["a1.down:silence:s1"]
    await world.wait(int(119 - world.now))
    assert await world.told() == []
    await world.wait(1)
    assert world.now == 120
    assert await world.told() == ["a1.down!silence_ended"]
    await world.find(1)
    assert await world.told() == ["a1.up"]


async def test_what_a_silence_hides_makes_no_group_until_it_ends():
    world = await started()
    world.hush(silence("s[123]"))
    await world.lose(1, 2, 3)
    assert sorted(await world.told()) == [f"a{number}.down:silence:s1" for number in (1, 2, 3)]
    world.hush()
    await world.wait(1)
    assert sorted(await world.told()) == [
        *(f"a{number}.down:{GROUP}" for number in (1, 2, 3)),
        "group.down",
    ]


async def test_a_silence_of_the_group_tells_it_when_it_ends():
    world = await started()
    matchers = [{"label": "type", "op": "re", "value": "group[.].*"}]
    world.hush(silence(all=False, matchers=matchers))
    await world.lose(1, 2, 3)
    assert "group.down:silence:s1" in await world.told()
    world.hush()
    await world.wait(1)
    assert await world.told() == ["group.down!silence_ended"]


async def test_settings_may_change_at_any_time_and_unknown_ones_change_nothing():
    world = await started(agents=5)
    world.settings = group_settings(least=2)
    await world.lose(1, 2)
    assert "group.down" in await world.told()
    world.settings = None
    world.start()
    await world.wait(12)
    assert await world.told() == [], "the default needs five"
    world.settings = group_settings(enabled=False)
    await world.wait(1)
    assert await world.told() == ["group.up", "a1.down!group_ended", "a2.down!group_ended"]


async def test_a_small_part_of_a_company_is_no_group():
    world = await started(agents=11)
    await world.lose(1, 2, 3)
    assert sorted(await world.told()) == ["a1.down", "a2.down", "a3.down"]


async def test_states_outlive_the_process():
    world = await started()
    world.hush(silence("s9"))
    await world.lose(1, 2, 3, 9)
    await world.told()
    world.start()
    await world.wait(8)
    assert await world.told() == []
    world.hush()
    await world.wait(1)
    # It joins the group that it finds.
    assert await world.told() == [f"a9.down:{GROUP}", "group.down"]
    world.start()
    await world.find(1, 2)
    assert (await world.told())[2:] == ["group.up", "a3.down!group_ended", "a9.down!group_ended"]


async def test_an_up_is_above_what_was_told_again_though_the_clock_went_back():
    """The owed down has a seq of now; an up that presence decides by an older clock is raised."""
    world = await started()
    world.hush(silence("s1", ends=3600))
    await world.lose(1)
    world.hush()
    world.clock.advance(1)
    await world.presence.beacon(world.clock.time())
    await world.presence.touch(agent(1), world.clock.time() - 0.9, None)
    await world.stage.carry(lambda _: nothing(), world.clock.time())
    await world.wait(1)
    [down, again, up] = await world.events()
    assert (again.type, again.reason) == (EventType.AGENT_DOWN, "silence_ended")
    assert down.seq < again.seq < up.seq


async def nothing():
    return []


async def test_an_outbox_that_is_full_keeps_intents_and_states():
    world = await started()
    full = OutboxError("full")
    append, world.outbox.append = world.outbox.append, fail_with(full)
    await world.lose(1, 2, 3)
    assert world.metric("ahc_events_retry") == 4, "three transitions and the group"
    assert await world.presence.pending_count() == 3
    report = await world.detector.scan()
    assert (report.emitted, report.complete) == (0, False)
    world.outbox.append = append
    report = await world.detector.scan()
    assert (report.emitted, report.complete) == (3, True)
    assert "group.down" in await world.told()
    assert world.metric("ahc_events_retry") == 0
    assert world.metric('ahc_events_lost_total{type="group.down"}') == 0


def fail_with(error):
    async def fail(*args, **kwargs):
        raise error

    return fail


@pytest.mark.parametrize("call", ["units", "claim", "commit", "told"])
async def test_a_store_that_gives_no_answer_keeps_everything_back_and_loses_nothing(call, caplog):
    world = await started()
    method = getattr(world.store, call)
    setattr(world.store, call, fail_with(AlertStateError("no answer")))
    world.start()
    await world.wait(8)
    await world.lose(1, 2, 3)
    assert world.metric(f'ahc_rules_state_failures_total{{call="{call}"}}') > 0
    assert ("states of agents is" in caplog.text) or ("cannot be kept" in caplog.text)
    setattr(world.store, call, method)
    await world.wait(1)
    assert sorted(await world.told()) == [
        *(f"a{number}.down:{GROUP}" for number in (1, 2, 3)),
        "group.down",
    ]
    assert await world.presence.pending_count() == 0
    await world.wait(5)
    assert await world.told() == []


class Turn:
    """A turn as the test says."""

    def __init__(self):
        self.tenure = None

    async def hold(self):
        return self.tenure

    async def drop(self):
        self.tenure = None


@pytest.mark.fault
async def test_c20_a_process_that_worked_on_without_its_turn_changes_nothing():
    """C20: it has a page of intents in hand while another process works them."""
    world = await started()
    old, heir = Turn(), Turn()
    old.tenure = 1
    stage, detector = world.process(turn=old)
    world.stage, world.detector = stage, detector
    await world.wait(7)
    commit, late = world.store.commit, []

    async def stand_still(key, epoch, change):
        """Where the old one is stopped: decided, and not stored."""
        world.store.commit = commit
        heir.tenure = 1
        _, second = world.process(turn=heir)
        world.detector = second
        await world.wait(8)
        late.append(await world.told())
        await world.find(1, 2, 3)
        late.append(await world.told())
        await commit(key, epoch, change)

    world.store.commit = stand_still
    world.deaf = {"a1", "a2", "a3"}
    await world.wait(12)
    assert late[0] == [*(f"a{number}.down:{GROUP}" for number in (1, 2, 3)), "group.down"]
    assert late[1][-1] == "group.up"
    old.tenure = 2
    await detector.scan()
    await world.wait(3)
    assert await world.told() == []


async def test_a_page_in_hand_that_another_process_worked_meanwhile_moves_nothing():
    """It has no unit yet; the other one took the down and the up of it, and confirmed both."""
    world = await started()
    stage, _ = world.process()
    world.deaf = {"a1"}
    hands = []

    async def fetch(limit):
        if hands:
            return []
        hands.append(await world.presence.expire(world.clock.time(), limit))
        await world.detector.scan()
        await world.find(1)
        return hands[0]

    world.presence.confirm, confirm = nothing_of, world.presence.confirm
    await world.lose(1)
    world.presence.confirm = confirm
    assert await world.told() == ["a1.down"]
    await stage.carry(fetch, world.clock.time())
    assert len(hands[0]) == 1
    await world.wait(3)
    assert await world.told() == ["a1.up"]
    await world.lose(2, 3)
    assert sorted(await world.told()) == ["a2.down", "a3.down"], "a1 counts for no group"


async def nothing_of(transition):
    pass


async def test_the_turn_is_given_up_and_another_takes_it():
    world = await started()
    turn = Turn()
    stage, detector = world.process(turn=turn)
    report = await detector.scan()
    assert report.complete
    assert not await stage.is_mine()
    assert world.metric("ahc_detector_turn") == 0
    turn.tenure = 1
    assert await stage.is_mine()
    assert world.metric("ahc_detector_turn") == 1
    await stage.drop()
    assert turn.tenure is None


async def test_a_company_of_which_nothing_happened_for_long_is_forgotten():
    world = await started()
    await world.lose(1)
    await world.find(1)
    key = UnitKey(shard=AGENTS_SHARD, company_id="acme")
    assert await world.store.units([AGENTS_SHARD]) == [key]
    world.clock.advance(31 * 86_400)
    await world.detector.scan()
    assert await world.store.units([AGENTS_SHARD]) == []


async def test_a_company_that_another_process_took_is_not_forgotten_but_read_anew():
    world = await started()
    await world.lose(1)
    await world.find(1)
    await world.store.claim(UnitKey(shard=AGENTS_SHARD, company_id="acme"))
    world.clock.advance(31 * 86_400)
    await world.detector.scan()
    assert len(await world.store.units([AGENTS_SHARD])) == 1
    assert (await world.detector.scan()).complete
    assert await world.store.units([AGENTS_SHARD]) == []


async def test_500_downs_of_one_scan_are_one_group():
    world = await started(agents=520)
    await world.lose(*range(510))
    events = await world.events()
    groups = [event for event in events if event.type is EventType.GROUP_DOWN]
    assert len(events) == 510 + len(groups)
    assert len(groups) <= 2
    assert groups[-1].labels["members_count"] == 510
    assert sum(event.suppressed for event in events) == 510
