"""Fences at their ends: whatever the hub names, no event is lost and no lease is stopped."""

import json
import logging
import random

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.errors import FencedHubError
from ahcollector.hub import HttpHub
from ahcollector.metrics import OUTBOX_SEND_FAILURES, PrometheusMetrics
from ahcollector.outbox import LocalLease, MemoryOutbox, OutboxSender
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.outbox import event
from ahwire.hub import EventsReply
from ahwire.limits import MAX_FENCE

edges = st.sampled_from([0, 2**31, 2**52, 2**53, 2**63, 2**64, 10**30])
odd_json = st.one_of(
    st.builds(
        lambda edge, step, sign: sign * (edge + step),
        edges,
        st.integers(-3, 3),
        st.sampled_from([1, -1]),
    ),
    st.integers(),
    st.integers(2**51, 2**54),
    st.booleans(),
    st.floats(),
    st.text(max_size=40),
    st.none(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


class World:
    """A sender and a hub over HTTP; `answers` are the bodies of its next 412s."""

    def __init__(self, lease=None):
        self.clock, self.metrics = FakeClock(), PrometheusMetrics()
        self.outbox, self.answers, self.fences = MemoryOutbox(), [], []
        self.lease = LocalLease(clock=self.clock) if lease is None else lease
        self.hub = HttpHub(
            base_url="http://hub.test",
            token="t",
            clock=self.clock,
            transport=httpx.MockTransport(self.answer),
        )
        self.sender = OutboxSender(
            outbox=self.outbox,
            hub=self.hub,
            clock=self.clock,
            rng=random.Random(1),
            lease=self.lease,
            metrics=self.metrics,
        )

    def answer(self, request):
        self.fences.append(int(request.headers["x-ah-fence"]))
        if self.answers:
            return httpx.Response(412, content=json.dumps(self.answers.pop(0)).encode())
        ids = tuple(one["event_id"] for one in json.loads(request.content)["events"])
        return httpx.Response(200, content=EventsReply(accepted=ids, rejected=()).to_json())

    def failures(self, kind):
        value = self.metrics.registry.get_sample_value(OUTBOX_SEND_FAILURES.name, {"kind": kind})
        return value or 0


@given(told=st.lists(odd_json, max_size=6))
def test_whatever_the_hub_names_the_events_go_when_it_takes_them_again(told):
    """C20: each refusal is counted, each next fence is a higher one that the wire carries."""

    async def scenario():
        world = World()
        await world.outbox.append([event(1), event(2)], world.clock.time())
        world.answers = [{"code": "fenced", "newest": newest} for newest in told]
        for _ in told:
            turn = await world.sender.send_once()
            assert (turn.sent, turn.dead) == (0, 0)
        assert (await world.sender.send_once()).sent == 2
        assert world.failures("fenced") + world.failures("fence_senseless") == len(told)
        assert world.fences == sorted(set(world.fences))
        assert all(0 <= fence < MAX_FENCE for fence in world.fences)
        followed = [n for n in told if type(n) is int and 0 <= n < 2**52]
        assert world.fences[-1] > max(followed, default=0)

    anyio.run(scenario)


test_whatever_the_hub_names_the_events_go_when_it_takes_them_again = pytest.mark.fault(
    test_whatever_the_hub_names_the_events_go_when_it_takes_them_again
)


@pytest.mark.anyio
async def test_a_senseless_newest_is_told_once_in_a_row_as_an_error(caplog):
    """Also behind failures of another kind: it needs a person at the hub."""
    world = World()
    await world.outbox.append([event(1)], world.clock.time())
    world.answers = [{"newest": 5}, *[{"newest": 2**63 - 1}] * 3]
    with caplog.at_level(logging.WARNING, logger="ahcollector.outbox"):
        for _ in range(4):
            await world.sender.send_once()
    assert [(one.levelname, one.kind) for one in caplog.records] == [
        ("WARNING", "fenced"),
        ("ERROR", "fence_senseless"),
    ]
    assert "set the hub's counter of fences back" in caplog.records[1].error
    assert world.failures("fence_senseless") == 3


@pytest.mark.anyio
async def test_a_senseless_newest_of_another_hub_is_not_followed_either():
    """A `Hub` of somebody else may pass on what it read."""
    world = World()
    await world.outbox.append([event(1)], world.clock.time())

    async def refuses(events, fence=None):
        raise FencedHubError("fenced", newest=2**63 - 1)

    world.hub.send_events, send = refuses, world.hub.send_events
    await world.sender.send_once()
    assert world.failures("fence_senseless") == 1
    world.hub.send_events = send
    assert (await world.sender.send_once()).sent == 1
    assert world.fences[-1] < 2**52
