"""What a node remembers is never older than its bound, and no change that is heard is undone."""

import anyio
import attrs
import pytest

from ahcollector.errors import HubUnavailableError, RegistryError, TemporaryHubError
from ahcollector.registry import (
    CachedRegistry,
    Change,
    Directory,
    MemoryRegistry,
    NegativeCache,
    Resolver,
    Verdict,
)
from ahcollector.testing import FakeClock
from ahwire import AgentRecord
from ahwire.hub import AgentState

pytestmark = pytest.mark.anyio


def record(number=1, **fields):
    return AgentRecord(
        **{
            "agent_id": f"a{number}",
            "company_id": "acme",
            "server_id": "s",
            "state": AgentState.ACTIVE,
            "token_hash": f"{number:064x}",
            "version": 1,
            **fields,
        }
    )


class Shared(MemoryRegistry):
    """The store of several nodes: counts look-ups, can hold them back, fail, and lose replies."""

    def __init__(self):
        super().__init__()
        self.lookups = 0
        self.down = False
        self.loses_replies = False
        self.holds = None

    async def lookup(self, token_hash):
        self.lookups += 1
        self.answers()
        entry = await super().lookup(token_hash)
        if self.holds is not None:
            await self.holds.wait()
        return entry

    async def put(self, record, *, now, renewal=False):
        self.answers()
        return await super().put(record, now=now, renewal=renewal)

    async def revoke(self, agent_id, *, now):
        entry = await super().revoke(agent_id, now=now)
        if self.loses_replies:
            raise RegistryError("the reply was lost")
        return entry

    def answers(self):
        if self.down:
            raise RegistryError("no answer")


class Node:
    def __init__(self, store, clock, **options):
        self.clock = clock
        self.negative = NegativeCache()
        self.registry = CachedRegistry(
            registry=store, negative=self.negative, clock=clock, **options
        )

    async def verdict(self, number=1):
        entry = await self.registry.lookup(f"{number:064x}")
        from datetime import UTC, datetime

        return None if entry is None else entry.verdict(datetime.fromtimestamp(0, UTC))


@pytest.fixture
def store():
    return Shared()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def node(store, clock):
    return Node(store, clock)


async def test_a_warm_look_up_asks_nobody_until_its_time_is_over(store, clock, node):
    await store.put(record(), now=0.0)
    for _ in range(5):
        assert await node.verdict() is Verdict.VALID
    assert store.lookups == 1
    clock.advance(14.999)
    assert await node.verdict() is Verdict.VALID
    assert store.lookups == 1
    clock.advance(0.001)
    assert await node.verdict() is Verdict.VALID
    assert store.lookups == 2


async def test_use_does_not_lengthen_the_time(store, clock, node):
    """Else an agent that sends often would never be seen to be revoked."""
    await store.put(record(), now=0.0)
    for _ in range(14):
        await node.verdict()
        clock.advance(1)
    await store.revoke("a1", now=1.0)
    clock.advance(1)
    assert await node.verdict() is Verdict.REVOKED


async def test_the_time_runs_from_before_the_reading(store, clock, node):
    await store.put(record(), now=0.0)
    store.holds = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(node.verdict)
        await anyio.wait_all_tasks_blocked()
        clock.advance(10)
        store.holds.set()
    clock.advance(5)
    await node.verdict()
    assert store.lookups == 2


async def test_what_is_unknown_is_not_remembered(store, node):
    assert await node.verdict() is None
    await store.put(record(), now=0.0)
    assert await node.verdict() is Verdict.VALID


async def test_a_change_that_is_heard_counts_at_once(store, node):
    await store.put(record(), now=0.0)
    await node.verdict()
    await store.revoke("a1", now=0.0)
    node.registry.forget(Change(agents=frozenset({"a1"}), hashes=frozenset()))
    assert await node.verdict() is Verdict.REVOKED


@pytest.mark.parametrize(
    "change",
    [
        Change(agents=frozenset({"a1"}), hashes=frozenset()),
        Change(agents=frozenset(), hashes=frozenset({f"{1:064x}"})),
        None,
    ],
    ids=["by agent", "by hash", "doubt"],
)
async def test_a_look_up_under_way_does_not_bring_back_what_was_revoked(store, node, change):
    """It read before the revocation and comes back after its message: the race of every cache."""
    await store.put(record(), now=0.0)
    store.holds = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(node.verdict)
        await anyio.wait_all_tasks_blocked()
        await store.revoke("a1", now=0.0)
        if change is None:
            node.registry.forget_all()
        else:
            node.registry.forget(change)
        store.holds.set()
    assert await node.verdict() is Verdict.REVOKED


async def test_a_change_of_somebody_else_costs_a_look_up_nothing(store, node):
    """Else nothing could be remembered while a sync brings thousands of changes."""
    await store.put(record(), now=0.0)
    store.holds = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(node.verdict)
        await anyio.wait_all_tasks_blocked()
        node.registry.forget(Change(agents=frozenset({"a2"}), hashes=frozenset({"2" * 64})))
        store.holds.set()
    await node.verdict()
    assert store.lookups == 1


async def test_a_look_up_older_than_ten_thousand_changes_is_not_believed(store, node):
    await store.put(record(), now=0.0)
    store.holds = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(node.verdict)
        await anyio.wait_all_tasks_blocked()
        await store.revoke("a1", now=0.0)
        node.registry.forget(Change(agents=frozenset({"a1"}), hashes=frozenset()))
        for number in range(10_000):
            node.registry.forget(Change(agents=frozenset({f"b{number}"}), hashes=frozenset()))
        store.holds.set()
    assert await node.verdict() is Verdict.REVOKED
    assert len(node.registry._lately) == 10_000


async def test_a_write_whose_reply_was_lost_is_forgotten_here_all_the_same(store, node):
    await store.put(record(), now=0.0)
    await node.verdict()
    store.loses_replies = True
    with pytest.raises(RegistryError):
        await node.registry.revoke("a1", now=0.0)
    assert await node.verdict() is Verdict.REVOKED


async def test_a_record_that_changed_nothing_leaves_what_is_remembered(store, node):
    """A full sync puts every record again; it must not empty every node's cache."""
    await node.registry.put(record(), now=0.0)
    await node.verdict()
    await node.registry.put(record(), now=1.0)
    await node.verdict()
    assert store.lookups == 1


async def test_a_hash_that_another_agent_takes_is_forgotten_as_the_first_ones(store, node):
    await node.registry.put(record(1), now=0.0)
    await node.verdict(1)
    await store.put(record(2), now=0.0)
    await store.put(record(2, token_hash=f"{1:064x}"), now=0.0)
    put = await node.registry.put(record(2, token_hash=f"{1:064x}"), now=0.0)
    assert put.before == put.after
    entry = await node.registry.lookup(f"{1:064x}")
    assert entry.agent.agent_id == "a2"


async def test_a_change_clears_the_negative_entries_it_names_and_doubt_clears_all(clock, node):
    now = clock.monotonic()
    for word in "123":
        node.negative.add(word * 64, now=now)
    node.registry.forget(Change(agents=frozenset(), hashes=frozenset({"1" * 64})))
    assert [node.negative.holds(word * 64, now=now) for word in "123"] == [False, True, True]
    node.registry.forget_all()
    assert not node.negative.holds("2" * 64, now=now)


async def test_memory_is_bounded_and_the_least_used_go(store, clock):
    node = Node(store, clock, entries_max=3)
    for number in range(1, 5):
        await store.put(record(number), now=0.0)
    for number in (1, 2, 3, 1, 4):
        await node.verdict(number)
    assert len(node.registry) == 3
    assert len(node.registry._hashes) == 3
    store.lookups = 0
    await node.verdict(1)
    assert store.lookups == 0
    await node.verdict(2)
    assert store.lookups == 1


async def test_all_of_an_agents_tokens_go_together(store, node):
    await store.put(record(1, prev_token_hash="f" * 64), now=0.0)
    await node.verdict(1)
    await node.registry.lookup("f" * 64)
    assert len(node.registry) == 2
    await node.registry.revoke("a1", now=0.0)
    assert len(node.registry) == 0
    assert node.registry._hashes == {}


async def test_without_a_feed_there_is_nothing_to_hear(node):
    await node.registry.run()


class Feed:
    """Another node's changes."""

    async def changes(self, *, changed, doubt):
        doubt()
        self.changed = changed
        await anyio.sleep_forever()


async def test_run_hears_until_it_is_cancelled(store, clock):
    feed = Feed()
    node = Node(store, clock, feed=feed)
    await store.put(record(), now=0.0)
    await node.verdict()
    async with anyio.create_task_group() as group:
        group.start_soon(node.registry.run)
        await anyio.wait_all_tasks_blocked()
        assert len(node.registry) == 0, "what was there before it listened is in doubt"
        await node.verdict()
        feed.changed(Change(agents=frozenset({"a1"}), hashes=frozenset()))
        assert len(node.registry) == 0
        group.cancel_scope.cancel()


def resolver_at(known, node, **options):
    directory = Directory(
        registry=node.registry,
        presence=known.presence,
        negative=node.negative,
        clock=known.clock,
    )
    return Resolver(
        **{
            "registry": node.registry,
            "directory": directory,
            "hub": known.hub,
            "negative": node.negative,
            "clock": known.clock,
            "metrics": known.metrics,
            **options,
        }
    )


async def test_look_ups_are_counted_by_where_the_answer_came_from(known, store):
    node = Node(store, known.clock)
    resolver = resolver_at(known, node)
    await store.put(record(), now=0.0)
    for _ in range(5):
        await resolver.resolve(f"{1:064x}")
    known.clock.advance(1)
    await resolver.resolve(f"{1:064x}")
    assert (known.lookups("cache"), known.lookups("store")) == (5, 1)


async def test_with_registry_and_hub_down_known_agents_are_503_after_their_time_and_never_401(
    known, store
):
    """What was cached is good to its end: longer, and a revocation would not count."""
    node = Node(store, known.clock)
    resolver = resolver_at(known, node)
    await store.put(record(), now=0.0)
    await resolver.resolve(f"{1:064x}")
    store.down = True
    known.hub.fails = TemporaryHubError("down")
    assert (await resolver.resolve(f"{1:064x}")).agent.agent_id == "a1"
    for _ in range(20):
        known.clock.advance(15)
        for number in (1, 2):
            with pytest.raises(HubUnavailableError):
                await resolver.resolve(f"{number:064x}")
    store.down = False
    assert (await resolver.resolve(f"{1:064x}")).agent.agent_id == "a1"


async def test_without_a_hub_a_registry_that_is_down_makes_nobody_unknown(known, store):
    resolver = resolver_at(known, Node(store, known.clock), hub=None)
    assert await resolver.resolve(f"{1:064x}") is None
    store.down = True
    with pytest.raises(HubUnavailableError, match="no hub"):
        await resolver.resolve(f"{1:064x}")


async def test_c22_what_the_hub_did_not_know_is_not_believed_while_the_registry_is_down(
    known, store
):
    """The message that the agent was enrolled meanwhile would have come through the registry."""
    resolver = resolver_at(known, Node(store, known.clock))
    assert await resolver.resolve(known.hub.hash_of("t")) is None
    known.hub.active("a9", "t")
    store.down = True
    assert (await resolver.resolve(known.hub.hash_of("t"))).agent.agent_id == "a9"


async def test_while_the_registry_is_down_the_hubs_word_is_remembered_at_the_node(known, store):
    """Else every request of every agent would be a question to the hub, and most be refused."""
    store.down = True
    resolver = resolver_at(known, Node(store, known.clock))
    known.hub.active("a1", "t")
    for _ in range(5):
        assert (await resolver.resolve(known.hub.hash_of("t"))).agent.agent_id == "a1"
    assert known.hub.calls == ["agent_by_token_hash"]
    failures = known.metrics.registry.get_sample_value("ahc_registry_put_failures_total")
    assert failures == 1
    known.clock.advance(15)
    await resolver.resolve(known.hub.hash_of("t"))
    assert len(known.hub.calls) == 2


async def test_the_hubs_word_is_not_remembered_when_the_agent_changed_meanwhile(known, store):
    node = Node(store, known.clock)
    resolver = resolver_at(known, node)
    known.hub.active("a1", "t")
    store.down = True
    known.hub.holds = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(resolver.resolve, known.hub.hash_of("t"))
        await anyio.wait_all_tasks_blocked()
        node.registry.forget(Change(agents=frozenset({"a1"}), hashes=frozenset()))
        known.hub.holds.set()
    assert len(node.registry) == 0


async def test_an_outage_of_the_registry_is_told_once_a_minute(known, store, caplog):
    store.down = True
    resolver = resolver_at(known, Node(store, known.clock), hub=None)
    for _ in range(200):
        with pytest.raises(HubUnavailableError):
            await resolver.resolve(f"{1:064x}")
    assert caplog.text.count("registry cannot be read") == 1


async def test_everything_else_goes_through(store, node):
    registry = node.registry
    await registry.set_cursor("c")
    assert await registry.cursor() == await store.cursor() == "c"
    await registry.put(attrs.evolve(record(), version=3), now=0.0)
    assert (await registry.get("a1")).newest_version == 3
    assert (await registry.count()).active == 1
    assert await registry.company_counts() == {"acme": 1}
