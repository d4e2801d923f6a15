"""The Redis presence does what the memory presence does, step by step, whatever is asked of it.

Two processes take turns on one prefix. A grace of theirs can die on its way over the agents: then
others go on with it, and nobody sees the difference.
"""

import asyncio
import itertools
import math
from contextlib import suppress

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ahcollector.errors import PresenceError
from ahcollector.presence import AgentRef, MemoryPresence, WatchRule
from ahcollector.testing import FakeClock

pytestmark = pytest.mark.service
AGENTS = st.builds(
    lambda number, company, server: AgentRef(
        agent_id=f'agent "{number}" é', company_id=f"co{company}", server_id=f"s{server}"
    ),
    st.integers(0, 4),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([1, 1, 1, 2]),
)
INTERVALS = st.sampled_from([None, None, None, 10.0, 30, 100 / 3, 300.0, 0.0, math.nan, math.inf])
RULES = st.one_of(
    st.none(),
    st.builds(
        WatchRule,
        interval_seconds=st.sampled_from([None, 45, 100 / 3, 0.0, math.nan]),
        down_min_seconds=st.sampled_from([None, 0, 600, 1e5, 100 / 3, -1.0, math.inf]),
        is_firm=st.sampled_from([True, True, False]),
    ),
)
PROCESSES = st.integers(0, 1)


class SameAsMemory(RuleBasedStateMachine):
    def __init__(self, presences):
        super().__init__()
        self.runner = asyncio.Runner()
        self.presences = presences
        numbers = itertools.count()
        self.memory = MemoryPresence(event_ids=lambda: f"memory-{next(numbers):06}")
        # Their clock stands still, so that no lease ends.
        self.shared = [
            presences(name="both", clock=FakeClock(), walk_agents_max=2, touch_items_max=3)
            for _ in range(2)
        ]
        self.now = 1_700_000_000.0
        self.page = []
        self.leases = []

    def do(self, process, method, *args, **kwargs):
        """Call both and return what they say."""
        return (
            self.runner.run(getattr(self.memory, method)(*args, **kwargs)),
            self.runner.run(getattr(self.shared[process], method)(*args, **kwargs)),
        )

    @rule(seconds=st.sampled_from([0.0005, 0.001, 0.25, 29.9995, 30.0, 60.0, 90.0, 300.0, 1e4]))
    def wait(self, seconds):
        self.now += seconds

    @rule(seconds=st.sampled_from([-46_800.0, -3_600.0, 3_600.0, 46_800.0]))
    def step_the_clock(self, seconds):
        self.now += seconds

    @rule(
        process=PROCESSES,
        agent=AGENTS,
        interval=INTERVALS,
        skew=st.sampled_from([0, 0, 0, -0.0005, -40, 3_600]),
        waits=st.sampled_from([0.0, 0.0, 300.0, 59.9995]),
        told=RULES,
    )
    def touch(self, process, agent, interval, skew, waits, told):
        more = {"waits_seconds": waits, "rule": told}
        self.do(process, "touch", agent, self.now + skew, interval, **more)

    @rule(process=PROCESSES, agents=st.lists(AGENTS, min_size=2, max_size=7), interval=INTERVALS)
    def touch_at_once(self, process, agents, interval):
        for agent in agents:
            self.runner.run(self.memory.touch(agent, self.now, interval))

        async def all_of_them():
            async with asyncio.TaskGroup() as tasks:
                for agent in agents:
                    tasks.create_task(self.shared[process].touch(agent, self.now, interval))

        self.runner.run(all_of_them())

    @rule(process=PROCESSES, agent=AGENTS, interval=INTERVALS, told=RULES)
    def ensure(self, process, agent, interval, told):
        self.do(process, "ensure", agent, self.now, interval, rule=told)

    @rule(process=PROCESSES, agent=AGENTS)
    def remove(self, process, agent):
        self.do(process, "remove", agent.agent_id, self.now, "removed")

    @rule(process=PROCESSES, limit=st.integers(0, 6))
    def expire(self, process, limit):
        self.look(*self.do(process, "expire", self.now, limit))

    @rule(process=PROCESSES, limit=st.integers(0, 6))
    def pending(self, process, limit):
        self.look(*self.do(process, "pending", limit))

    def look(self, expected, found):
        assert [attrs.evolve(one, event_id="") for one in found] == [
            attrs.evolve(one, event_id="") for one in expected
        ]
        self.page = list(zip(expected, found, strict=True))

    @rule(process=PROCESSES, place=st.integers(0, 5))
    def confirm(self, process, place):
        if place >= len(self.page):
            return
        refused = []
        for presence, transition in zip(
            (self.memory, self.shared[process]), self.page[place], strict=True
        ):
            try:
                self.runner.run(presence.confirm(transition))
            except PresenceError as error:
                refused.append("is not its oldest" in str(error))
        assert refused in ([], [True, True])

    @rule(
        process=PROCESSES,
        ended=st.sampled_from([0.0, 5.0, 1_000.0, -50.0]),
        blind=st.sampled_from([0.0, 20.0, 900.0, math.inf]),
        bound=st.sampled_from([300.0, 300.0, 10.0]),
    )
    def grace(self, process, ended, blind, bound):
        self.do(process, "grace", **self.blindness(ended, blind, bound))

    @rule(process=PROCESSES, blind=st.sampled_from([0.0, 900.0]), calls=st.integers(1, 4))
    def grace_that_dies_on_its_way(self, process, blind, calls):
        client = self.presences.client(self.shared[process])
        begun = self.runner.run(client.call("HGET", client.key("pres", "grace"), "n"))
        client.fails = {client.calls + number: "reply lost" for number in range(calls, 20)}
        with suppress(PresenceError):
            self.runner.run(self.shared[process].grace(**self.blindness(0.0, blind, 300.0)))
        client.fails = {}
        if self.runner.run(client.call("HGET", client.key("pres", "grace"), "n")) != begun:
            self.runner.run(self.memory.grace(**self.blindness(0.0, blind, 300.0)))

    def blindness(self, ended, blind, bound):
        return {
            "now": self.now,
            "ended_at": self.now - ended,
            "blind_seconds": blind,
            "blind_max_seconds": bound,
        }

    @rule(limit=st.integers(0, 5))
    def drain(self, limit):
        expected, found = self.do(0, "drain_seen", limit)
        assert found.seen == expected.seen
        self.leases.append((expected, found))

    @rule(process=PROCESSES, place=st.integers(0, 3), taken=st.booleans())
    def end_a_lease(self, process, place, taken):
        if place < len(self.leases):
            method = "confirm_seen" if taken else "release_seen"
            for presence, lease in zip(
                (self.memory, self.shared[process]), self.leases.pop(place), strict=True
            ):
                self.runner.run(getattr(presence, method)(lease))

    @rule(process=PROCESSES, company=st.sampled_from([None, "co1", "co2"]))
    def list_and_count(self, process, company):
        expected, found = self.do(process, "agents", company_id=company, limit=2)
        assert found == expected
        if expected:
            after = expected[-1].agent.agent_id
            expected, found = self.do(process, "agents", company_id=company, after=after)
            assert found == expected
        for what in ("counts", "company_counts", "pending_count"):
            expected, found = self.do(process, what)
            assert found == expected

    @invariant()
    def shows_the_same(self):
        expected, found = self.do(0, "agents")
        assert found == expected

    async def sets_agree(self):
        """Every agent is in the sets of its company and its state, and in no other."""
        client = self.presences.client(self.shared[0])
        found = {}
        for kind in ("ids", "up", "down"):
            for company in ("", ":co1", ":co2"):
                key = client.key("pres", kind + company)
                command = ("SMEMBERS", key) if kind == "down" else ("ZRANGE", key, 0, -1)
                found[kind + company] = set(await client.call(*command))
        for company in ("", ":co1", ":co2"):
            assert not found[f"up{company}"] & found[f"down{company}"]
            assert found[f"up{company}"] | found[f"down{company}"] == found[f"ids{company}"]
        assert found["ids:co1"] | found["ids:co2"] == found["ids"]
        assert set(await client.call("ZRANGE", client.key("pres", "due"), 0, -1)) == found["up"]

    def teardown(self):
        self.expire(0, 100)
        ids = [transition.event_id for _, transition in self.page]
        assert len(ids) == len(set(ids))
        self.drain(100)
        self.list_and_count(1, None)
        self.runner.run(self.sets_agree())
        self.runner.run(self.presences.__aexit__())
        self.runner.close()


def show(presences_on, server, *, examples):
    run_state_machine_as_test(
        lambda: SameAsMemory(presences_on(server)),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        ),
    )


def test_two_processes_on_redis_do_what_memory_does(presences_on, redis_server):
    show(presences_on, redis_server, examples=40)


@pytest.mark.nightly
def test_two_processes_on_redis_do_what_memory_does_500_times(presences_on, redis_server):
    show(presences_on, redis_server, examples=500)
