"""More agents fall silent in one scan than a page holds: one list a group, and nobody is lost."""

import contextlib
import itertools

import anyio
import attrs
import pytest
from agents_world import World, group_settings
from lit_fuse import Crash, Fuse, InjectedError, Wired, raiser

from ahcollector.alerts import MemoryAlertStateStore
from ahcollector.errors import AlertStateError, OutboxError, PresenceError
from ahcollector.presence import AgentRef
from ahwire import EventType
from ahwire.limits import MAX_GROUP_MEMBERS

pytestmark = pytest.mark.anyio
AGENTS = 1_700
BETA = AgentRef(agent_id="a", company_id="beta", server_id="s")


async def all_silent(agents=AGENTS, others=(), **options):
    world = World(agents, **options)
    world.agents += others
    world.settings = group_settings(5, 0.3)
    await world.wait(12)
    assert await world.told() == []
    world.deaf = {ref.agent_id for ref in world.agents}
    for _ in range(9):
        world.clock.advance(1)
        await world.presence.beacon(world.clock.time())
    world.clock.advance(1)
    await world.presence.beacon(world.clock.time())
    return world


async def carry(world, stage):
    now = world.clock.time()
    return await stage.carry(lambda limit: world.presence.expire(now, limit), now)


def groups(events):
    return [event for event in events if event.type is EventType.GROUP_DOWN]


async def test_a9_a_group_that_grows_over_pages_is_told_when_it_forms_and_at_the_end():
    """A9: individual downs, the group as soon as there is one, and one list for all that joined."""
    world = await all_silent()
    report = await world.detector.scan()
    assert (report.emitted, report.complete) == (AGENTS, True)
    events = await world.events()
    formed, last = groups(events)
    # 30 % of 1,700 are reached in the second page; those of the first went out singly.
    assert formed.labels["members_count"] == 1_000
    assert last.labels["members_count"] == AGENTS
    assert len(last.labels["members"]) == MAX_GROUP_MEMBERS
    assert events[-1] == last
    downs = [event for event in events if event.type is EventType.AGENT_DOWN]
    assert len({event.agent_id for event in downs}) == len(downs) == AGENTS
    assert sum(not event.suppressed for event in downs) == 500
    await world.wait(2)
    assert await world.events() == events


@pytest.mark.parametrize("companies", [1, 40])
async def test_others_have_their_turns_within_each_page(companies):
    """A batch at the door waits for a part of a page, and never for a scan."""
    world = World(0)
    world.settings = group_settings(5, 0.3)
    world.agents += [
        AgentRef(agent_id=f"a{n}", company_id=f"c{n % companies}", server_id=f"s{n}")
        for n in range(AGENTS)
    ]
    await world.wait(12)
    world.deaf = {ref.agent_id for ref in world.agents}
    for _ in range(10):
        world.clock.advance(1)
        await world.presence.beacon(world.clock.time())
    sizes = [0]

    async def door():
        while True:
            sizes.append((await world.outbox.stats(0.0)).depth)
            await anyio.sleep(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door)
        await anyio.sleep(0)
        await world.detector.scan()
        tasks.cancel_scope.cancel()
    pages = 4
    assert len(sizes) > 4 * pages
    assert max(after - before for before, after in itertools.pairwise(sizes)) <= 500 + companies


async def test_the_list_of_a_group_of_long_ids_fits_into_a_request_many_times():
    """1,000 members of 128 characters, the longest there are, under the 5 MB of a request."""
    world = await all_silent()
    await world.detector.scan()
    [_, last] = groups(await world.events())
    ids = [f"{number:0128}" for number in range(MAX_GROUP_MEMBERS)]
    longest = attrs.evolve(last, labels={"members": ids, "members_count": 10**6})
    assert len(longest.to_json()) < 140_000


@pytest.mark.fault
@pytest.mark.parametrize("what", ["killed", "call fails"])
async def test_c18_any_call_between_two_pages_can_fail_and_the_list_still_comes(what):
    """C18: the list of who joined is owed over a crash, and told once the pages are through."""
    at = 0
    while True:
        world = await all_silent()
        real = {name: vars(world)[name] for name in ("presence", "store", "outbox")}
        fuse = Fuse()
        for name, error in (
            ("presence", PresenceError),
            ("store", AlertStateError),
            ("outbox", OutboxError),
        ):
            setattr(world, name, Wired(real[name], fuse, error("injected")))
        stage, _ = world.process()
        fuse.light(at, raiser(Crash() if what == "killed" else InjectedError()))
        with contextlib.suppress(Crash, PresenceError):
            await carry(world, stage)
        is_out = fuse.left is not None
        fuse.light(None, None)
        if what == "killed":
            vars(world).update(real)
            stage, _ = world.process()
        for _ in range(2):
            carried = await carry(world, stage)
        assert carried.complete
        events = await world.events()
        downs = [event.agent_id for event in events if event.type is EventType.AGENT_DOWN]
        assert sorted(downs) == sorted(ref.agent_id for ref in world.agents), at
        *_, last = groups(events)
        assert last.labels["members_count"] == AGENTS, at
        assert len({event.group_key for event in groups(events)}) == 1, at
        assert await world.presence.pending_count() == 0
        if is_out:
            break
        at += 13
    assert at > 20


async def test_the_list_does_not_wait_for_another_company_whose_states_cannot_be_stored():
    class Failing(MemoryAlertStateStore):
        async def commit(self, key, epoch, change):
            if key.company_id == "beta":
                raise AlertStateError("beta cannot be stored")
            await super().commit(key, epoch, change)

    # So many that the last page of acme is a full one, behind which only beta's is left.
    agents = 499 + 500 + 500
    world = await all_silent(agents, others=[BETA], store=Failing())
    report = await world.detector.scan()
    assert (report.emitted, report.complete) == (agents, False)
    *_, last = groups(await world.events())
    assert last.labels["members_count"] == agents
