"""What a store knows reaches the budget in time, and what is new reaches the store."""

import logging

import anyio
import pytest

from ahcollector.budget import BudgetKeeper, FileBudgetStore, MemoryBudgetStore, SeriesBudget
from ahcollector.errors import BudgetStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing import FakeClock
from ahwire.batch import SeriesKey

pytestmark = pytest.mark.anyio

START = 1_790_000_000.0
HOUR = 3600


class TestStore(MemoryBudgetStore):
    """A store that fails, or hangs, when it is told to."""

    __test__ = False

    def __init__(self):
        super().__init__()
        self.fails = False
        self.hangs = False
        self.loads = []

    async def _answer(self):
        if self.hangs:
            await anyio.sleep_forever()
        if self.fails:
            raise BudgetStoreError("no answer")

    async def load(self, agent_id, *, now):
        self.loads.append(agent_id)
        await self._answer()
        return await super().load(agent_id, now=now)

    async def take(self, changes, *, now):
        await self._answer()
        return await super().take(changes, now=now)

    async def forget(self, agent_ids):
        await self._answer()
        await super().forget(agent_ids)


class Node:
    """One process of an ingest door, as far as its budget goes."""

    def __init__(self, store, clock, *, per_hour=2, first_hour=4, **options):
        self.clock = clock
        self.metrics = PrometheusMetrics()
        self.budget = SeriesBudget(
            per_hour=per_hour,
            first_hour=first_hour,
            metrics=self.metrics,
            **options,
        )
        self.keeper = BudgetKeeper(
            budget=self.budget, store=store, clock=clock, metrics=self.metrics, answer_seconds=0.05
        )

    async def send(self, *names, agent="a"):
        """As `BatchIntake` does; returns what was refused."""
        keys = [SeriesKey.of(name, ()) for name in names]
        await self.keeper.prepare(agent)
        over = self.budget.refused(agent, keys, now=self.clock.time())
        if over and await self.keeper.ask_again(agent):
            over = self.budget.refused(agent, keys, now=self.clock.time())
        return [names[place] for place in over]

    def failures(self, call):
        return self.metrics.registry.get_sample_value(
            "ahc_ingest_budget_failures_total", {"call": call}
        )


@pytest.fixture
def clock():
    return FakeClock(START)


@pytest.fixture
def store():
    return TestStore()


async def test_restart_makes_no_known_series_new(clock, tmp_path):
    names = ["p", "q", "r", "s"]
    before = Node(FileBudgetStore(directory=tmp_path), clock)
    assert await before.send(*names) == []
    await before.keeper.tell()
    after = Node(FileBudgetStore(directory=tmp_path), clock)
    assert await after.send(*names, "t") == ["t"], "nor does the first hour begin anew"
    clock.advance(2 * HOUR)
    assert await after.send(*names, "t", "u", "v") == ["v"]


async def test_without_a_store_a_restart_makes_them_new(clock):
    """The counterpart, which shows that the test above can fail."""
    assert await Node(MemoryBudgetStore(), clock).send("p", "q", "r", "s") == []
    assert await Node(MemoryBudgetStore(), clock).send("t", "u", "v", "w") == []


async def test_what_is_begun_is_told_every_few_seconds_and_at_the_stop(clock, store):
    node = Node(store, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node.keeper.run)
        await anyio.wait_all_tasks_blocked()
        await node.send("p")
        clock.advance(5)
        await anyio.wait_all_tasks_blocked()
        assert len((await store.load("a", now=START)).hours) == 1
        await node.send("q")
        tasks.cancel_scope.cancel()
    assert len((await store.load("a", now=START)).hours) == 2


async def test_series_that_comes_every_cycle_is_told_once_an_hour(clock, store):
    node = Node(store, clock)
    told = []
    take = store.take

    async def counting(changes, *, now):
        told.extend(change.hours for change in changes)
        return await take(changes, now=now)

    store.take = counting
    for _ in range(2 * 120):
        await node.send("p")
        await node.keeper.tell()
        clock.advance(30)
    # START lies inside an hour, so two hours touch three.
    assert [len(hours) for hours in told] == [1, 1, 1]


async def test_series_that_another_process_began_are_not_refused_here(clock, store):
    one, two = Node(store, clock, first_hour=2), Node(store, clock, first_hour=2)
    assert await one.send("p") == []
    assert await two.send("q") == []
    await one.keeper.tell()
    await two.keeper.tell()
    assert await two.send("p", "q", "r") == ["r"], "p is known by now, and the hour's two are begun"
    await one.keeper.tell()
    clock.advance(5)
    assert await one.send("p", "q", "r") == ["r"]


async def test_processes_share_the_budget_but_for_what_they_begin_between_two_tellings(
    clock, store
):
    nodes = [Node(store, clock, first_hour=10) for _ in range(3)]
    begun = 0
    for turn in range(20):
        for number, node in enumerate(nodes):
            names = [f"m{turn}_{number}_{index}" for index in range(2)]
            begun += len(names) - len(await node.send(*names))
        for node in nodes:
            await node.keeper.tell()
        clock.advance(5)
    # Each sees the others' from its last telling: they can go over by what two begin in a turn.
    assert 10 <= begun <= 10 + 2 * 2
    assert (await store.load("a", now=clock.time())).window.begun == begun


async def test_while_the_store_gives_no_answer_nobody_is_refused(clock, store, caplog):
    names = [f"m{index}" for index in range(50)]
    before = Node(store, clock, first_hour=50)
    await before.send(*names)
    await before.keeper.tell()
    store.fails = True
    after = Node(store, clock, first_hour=5)
    with caplog.at_level(logging.INFO, "ahcollector.budget"):
        assert await after.send(*names, "new") == []
        assert after.failures("load") == 1
        assert await after.send("another", agent="b") == []
        assert store.loads.count("b") == 0, "a store that failed is not asked at once again"
        clock.advance(5)
        store.fails = False
        assert await after.send(*names, "new", "newer") == ["newer"]
        assert caplog.text.count("known series cannot be kept") == 1
        assert caplog.text.count("known series are kept again") == 1


async def test_store_that_hangs_holds_a_batch_up_for_a_moment_only(clock, store):
    store.hangs = True
    node = Node(store, clock)
    with anyio.fail_after(5):
        assert await node.send("p") == []
        assert await node.send("q") == []
    assert node.failures("load") == 1


async def test_what_the_store_did_not_take_is_told_again(clock, store):
    node = Node(store, clock)
    await node.send("p", "q")
    store.fails = True
    await node.keeper.tell()
    assert node.failures("take") == 1
    await node.send("r")
    store.fails = False
    await node.keeper.tell()
    found = await store.load("a", now=START)
    assert (len(found.hours), found.window.begun) == (3, 3)
    assert await node.send("s", "t") == ["t"], "what was told twice was begun once"


async def test_cancelled_telling_leaves_nothing_out(clock, store):
    node = Node(store, clock)
    await node.send("p")
    store.hangs = True
    with anyio.move_on_after(0.01):
        await node.keeper.tell()
    store.hangs = False
    await node.keeper.tell()
    assert len((await store.load("a", now=START)).hours) == 1


async def test_agent_that_is_gone_is_forgotten_in_the_store(clock, store):
    node = Node(store, clock)
    await node.send("p")
    await node.keeper.tell()
    node.keeper.agent_gone("a")
    assert await node.send("q", "r", "s", "t") == [], "it is new, although the store still has it"
    store.fails = True
    await node.keeper.tell()
    assert node.failures("forget") == 1
    store.fails = False
    await node.keeper.tell()
    assert len((await store.load("a", now=START)).hours) == 4


async def test_agent_that_memory_had_no_room_for_is_known_to_the_store(clock, store):
    node = Node(store, clock, series_max=5)
    for agent in "abc":
        await node.send("p", "q", agent=agent)
        await node.keeper.tell()
    assert len(node.budget) == 4
    clock.advance(HOUR)
    assert await node.send("p", "q", "r", "s", "t", agent="a") == ["t"]
    assert node.failures("forgotten") is None


async def test_many_callers_of_one_agent_load_it_once(clock, store):
    node = Node(store, clock)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(node.send, "p")
    assert store.loads == ["a"]
