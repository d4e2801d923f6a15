"""C18: a process with older rules and silences takes a shard over and takes nothing back.

Two processes over one store and one outbox. Each has the hub's lists by a puller of its own and a
hub of its own, so that one can be behind: within the minute between two pulls, or for good.
"""

import anyio
import pytest
from alert_world import World, batch, owner, rule, silence, value_of

from ahcollector.alerts import (
    AlertSettings,
    HubLists,
    MemoryKeptLists,
    RulePuller,
    SilencePuller,
)
from ahcollector.bus import shard_for
from ahcollector.errors import AlertStateError, HubError, TemporaryHubError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing import FakeHub

pytestmark = [pytest.mark.anyio, pytest.mark.fault]

SHARD = shard_for("web-1")
OLD = rule("old", threshold=50)
NEW = rule("new", threshold=40)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Lost(MemoryKeptLists):
    """Keeps nothing, or cannot be asked."""

    fails = False
    is_lost = False

    async def load(self, name):
        if self.fails:
            raise AlertStateError("load fails")
        return None if self.is_lost else await super().load(name)

    async def as_of(self, name):
        if self.fails:
            raise AlertStateError("as_of fails")
        return None if self.is_lost else await super().as_of(name)


class Process:
    """A hub of its own, what was pulled from it, and an engine that judges by that."""

    def __init__(self, world, kept, hub=None):
        self.hub = hub or FakeHub()
        options = {"hub": self.hub, "kept": kept, "clock": world.clock}
        self.rules = RulePuller(**options)
        self.silences = SilencePuller(**options)
        self.world = world
        self.tenures = {}
        self.metrics = PrometheusMetrics()
        self.engine = owner(
            world,
            self.tenures,
            rules=lambda: self.rules.current,
            silences=lambda: self.silences.current,
            lists=HubLists(rules=self.rules, silences=self.silences),
            metrics=self.metrics,
        )

    async def pull(self):
        for puller in (self.rules, self.silences):
            try:
                await puller.pull()
            except HubError:
                await puller.catch_up()

    async def show(self, value):
        await self.engine.observed([batch(self.world.now, value)])


class Pair:
    def __init__(self, **options):
        self.world = World(**options)
        self.kept = Lost()
        self.one, self.two = (Process(self.world, self.kept) for _ in range(2))
        self.given = 0

    def give(self, process):
        self.given += 1
        for each in (self.one, self.two):
            each.tenures.clear()
        process.tenures[SHARD] = f"tenure {self.given}"

    async def pull(self, *processes, rules, silences=()):
        """The hub has these lists now; only those processes have heard of it."""
        self.world.clock.advance(1)
        for process in processes:
            process.hub.threshold_rules = tuple(rules)
            process.hub.company_silences = tuple(silences)
            await process.pull()

    async def step(self, process, value, seconds=10):
        self.world.clock.advance(seconds)
        await process.show(value)
        await process.engine.tick()

    async def told(self):
        return [
            (event.rule_id, event.type.value.partition(".")[2], event.reason, event.suppressed)
            for event in await self.world.events()
        ]


async def behind(**options):
    """The first process has a new rule and a silence, has judged by them, and is gone."""
    pair = Pair(settings=AlertSettings(flapping=None, **options))
    await pair.pull(pair.one, pair.two, rules=[OLD])
    pair.give(pair.one)
    await pair.pull(pair.one, rules=[OLD, NEW], silences=[hush()])
    await pair.step(pair.one, 60)
    told = [("old", "opened", "condition", True), ("new", "opened", "condition", False)]
    assert sorted(await pair.told()) == sorted(told)
    pair.give(pair.two)
    return pair


def hush():
    matchers = [{"label": "rule_id", "op": "eq", "value": "old"}]
    return silence(matchers=matchers, all=False)


async def test_process_that_is_behind_takes_what_the_other_kept():
    """B2-7: within the minute between two pulls nothing is ended and no silence is broken."""
    pair = await behind()
    before = len(await pair.told())
    await pair.step(pair.two, 61)
    await pair.step(pair.two, 62)
    assert len(await pair.told()) == before
    assert {one.rule_id for one in pair.two.rules.current.of("acme")} == {"old", "new"}
    await pair.step(pair.two, 30)
    assert (await pair.told())[before:] == [
        ("old", "resolved", "condition", True),
        ("new", "resolved", "condition", False),
    ]


async def test_process_whose_hub_fails_takes_what_the_other_kept():
    """B2-7: and it goes on with that for as long as its hub fails."""
    pair = await behind()
    pair.two.hub.fails = TemporaryHubError("no")
    before = len(await pair.told())
    for _ in range(100):
        await pair.two.pull()
        await pair.step(pair.two, 61, seconds=60)
    assert len(await pair.told()) == before


@pytest.mark.parametrize("way", ["fails", "is_lost"])
async def test_older_lists_take_nothing_back_until_newer_ones_are_there(way):
    """What was kept cannot be had: the unit goes on by the rules in its state."""
    pair = await behind()
    setattr(pair.kept, way, True)
    before = len(await pair.told())
    for value in (61, 62, 63):
        await pair.step(pair.two, value)
        assert len(await pair.told()) == before
    setattr(pair.kept, way, False)
    await pair.pull(pair.two, rules=[OLD, NEW], silences=[hush()])
    before = len(await pair.told())
    await pair.step(pair.two, 62)
    assert len(await pair.told()) == before
    await pair.pull(pair.two, rules=[OLD])
    await pair.step(pair.two, 62)
    assert (await pair.told())[before:] == [
        ("new", "resolved", "rule_removed", False),
        ("old", "opened", "silence_ended", False),
    ]


async def test_unit_is_judged_by_the_rules_in_its_state_while_it_waits():
    """Also over series that its last owner never saw; its restart is one more take-over."""
    pair = await behind()
    pair.kept.is_lost = True
    before = len(await pair.told())
    await pair.step(pair.two, 30)
    assert (await pair.told())[before:] == [
        ("old", "resolved", "condition", True),
        ("new", "resolved", "condition", False),
    ]
    await pair.step(pair.two, 45)
    assert (await pair.told())[before + 2 :] == [("new", "opened", "condition", False)]
    pair.give(pair.one)
    await pair.step(pair.one, 30)
    assert (await pair.told())[before + 3 :] == [("new", "resolved", "condition", False)]


async def test_unit_waits_for_newer_lists_for_a_bounded_time(caplog):
    pair = await behind(lists_wait_seconds=100)
    pair.kept.is_lost = True
    before = len(await pair.told())
    for _ in range(9):
        await pair.step(pair.two, 61)
        assert len(await pair.told()) == before
    for _ in range(3):
        await pair.step(pair.two, 61)
    assert (await pair.told())[before:] == [
        ("new", "resolved", "rule_removed", False),
        ("old", "opened", "silence_ended", False),
    ]
    assert value_of(pair.two.metrics, "ahc_rules_lists_old_total") == 1
    assert "judged by older rules" in caplog.text


async def test_newer_rules_count_though_the_silences_of_the_same_process_are_behind():
    """Each list for itself: the next owner must not end what the newest rules opened."""
    pair = await behind()
    pair.kept.is_lost = True
    newest = rule("newest", threshold=45)
    pair.world.clock.advance(1)
    pair.two.hub.threshold_rules = (OLD, NEW, newest)
    await pair.two.rules.pull()
    before = len(await pair.told())
    await pair.step(pair.two, 61)
    assert (await pair.told())[before:] == [("newest", "opened", "condition", False)]
    pair.give(pair.one)
    await pair.step(pair.one, 62)
    assert len(await pair.told()) == before + 1


async def test_version_that_goes_back_is_a_change_only_in_a_newer_list():
    pair = Pair(settings=AlertSettings(flapping=None))
    await pair.pull(pair.one, pair.two, rules=[rule("r", version=2, threshold=90)])
    pair.give(pair.one)
    await pair.pull(pair.one, rules=[rule("r", version=3, threshold=50)])
    await pair.step(pair.one, 60)
    pair.kept.is_lost = True
    pair.give(pair.two)
    await pair.step(pair.two, 60)
    assert [kind for _, kind, _, _ in await pair.told()] == ["opened"]
    await pair.pull(pair.two, rules=[rule("r", version=2, threshold=90)])
    await pair.step(pair.two, 60)
    assert (await pair.told())[1:] == [("r", "resolved", "rule_changed", False)]


async def test_list_that_was_kept_is_given_to_a_store_that_forgot_it():
    pair = Pair()
    await pair.pull(pair.one, rules=[OLD])
    pair.kept._lists.clear()
    await pair.one.pull()
    assert [item["rule_id"] for item in await pair.kept.load("rules")] == ["old"]


async def test_clock_that_goes_back_makes_no_list_older():
    """What was kept with a time in the future does not come back over what the hub says."""
    pair = Pair()
    await pair.pull(pair.one, rules=[OLD])
    pair.world.clock.step_wall(-86_400)
    await pair.pull(pair.one, rules=[NEW])
    await pair.one.engine.tick()
    assert [one.rule_id for one in pair.one.rules.current.of("acme")] == ["new"]
    assert [item["rule_id"] for item in await pair.kept.load("rules")] == ["new"]


class Slow(FakeHub):
    """Once slow, it answers when it is told to, as the list was when it was asked."""

    def __init__(self):
        super().__init__()
        self.asked, self.answers = anyio.Event(), None

    async def rules(self, etag):
        reply = await super().rules(etag)
        if self.answers is not None:
            self.asked.set()
            await self.answers.wait()
        return reply


@pytest.mark.parametrize("is_new", [True, False])
async def test_hub_that_is_slow_holds_up_no_alert_and_takes_nothing_back(is_new):
    """What another process kept comes while this one's pull is under way, and is newer."""
    pair, hub = Pair(), Slow()
    pair.two = Process(pair.world, pair.kept, hub)
    puller = pair.two.rules
    await pair.pull(pair.one, pair.two, rules=[OLD])
    hub.threshold_rules = (rule("odd"),) if is_new else (OLD,)
    hub.answers = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(puller.pull)
        await hub.asked.wait()
        await pair.pull(pair.one, rules=[OLD, NEW])
        with anyio.fail_after(5):
            await pair.two.engine.tick()
        assert len(puller.current.of("acme")) == 2
        hub.answers.set()
    assert [one.rule_id for one in puller.current.of("acme")] == ["old", "new"]
    hub.threshold_rules = (NEW,)
    pair.world.clock.advance(1)
    await puller.pull()
    assert [one.rule_id for one in puller.current.of("acme")] == ["new"]
