"""What the door does with series it knows: none is parsed, none is judged less, none is lost."""

import pytest

from ahcollector.budget import BudgetKeeper, FileBudgetStore, MemoryBudgetStore, SeriesBudget
from ahcollector.ingest import IngestLimits
from ahcollector.ingest._batches import BatchIntake
from ahcollector.ingest._gate import Pass
from ahcollector.presence.base import AgentRef
from ahcollector.registry.base import TokenEntry
from ahcollector.testing import FakeClock
from ahwire.agent_pb2 import AgentStats, Series
from ahwire.codec import compress
from ahwire.hub import AgentState

pytestmark = pytest.mark.anyio


def door(make_world, store):
    """A world whose budget is kept in a store."""
    clock = FakeClock(1_790_000_000.0)
    budget = SeriesBudget(per_hour=1, first_hour=2)
    keeper = BudgetKeeper(budget=budget, store=store, clock=clock)
    world = make_world(budget=budget, clock=clock, keeper=keeper)
    world.hub.active("agent-1", world.token)
    world.keeper = keeper
    return world


async def test_restarted_door_takes_known_series_and_refuses_the_same_new_ones(
    make_world, tmp_path, ack
):
    before = door(make_world, FileBudgetStore(directory=tmp_path))
    batch = before.batch(*[before.series(f"m{index}") for index in range(3)])
    assert [one.index for one in ack(await before.send(batch)).rejected] == [2]
    await before.keeper.tell()
    after = door(make_world, FileBudgetStore(directory=tmp_path))
    answer = ack(await after.send(batch))
    assert [(one.index, one.code) for one in answer.rejected] == [(2, "series_limit")]
    assert answer.accepted_points == 2
    text = after.metrics.exposition().decode()
    assert "ahc_ingest_series_refused_total 1.0" in text


async def test_series_another_door_began_are_accepted_in_the_order_of_the_batch(make_world, ack):
    store = MemoryBudgetStore()
    one, two = door(make_world, store), door(make_world, store)
    await one.send(one.batch(one.series("m0"), one.series("m1")))
    await two.send(two.batch(two.series("m1")))
    await one.keeper.tell()
    await two.keeper.tell()
    answer = ack(await two.send(two.batch(*[two.series(f"m{index}") for index in (2, 0, 1)])))
    assert [one.index for one in answer.rejected] == [0]
    (_, published) = two.bus.batches
    assert [series.labels[0][1] for series in published.series] == ["ah_m0", "ah_m1"]


@pytest.mark.parametrize("times", [1, 3])
async def test_known_and_unknown_series_of_one_batch_are_judged_alike(world, ack, times):
    for turn in range(times):
        world.clock.advance(30)
        batch = world.batch(
            world.series("a", 1.0, [("x", "1")]),
            world.series("b", 0.0, [("x", "1")]),
            world.series(f"new{turn}"),
            world.series("a", float("nan"), [("x", "1")]),
            world.series("a", 1.0, [("x", "1")], ts_ms=1),
            world.series("a", 1.0, [("company_id", "globex"), ("x", "2")]),
            stats=AgentStats(interval_seconds=60),
        )
        answer = ack(await world.send(batch))
        assert answer.ack_seq == batch.seq
        assert [(one.index, one.code) for one in answer.rejected] == [
            (3, "not_finite"),
            (4, "too_old"),
        ]
        tenant = (("company_id", "acme"), ("server_id", "web-1"))
        assert [series.labels for series in world.bus.batches[-1].series] == [
            (("__name__", "ah_a"), *tenant, ("x", "1")),
            (("__name__", "ah_b"), *tenant, ("x", "1")),
            (("__name__", f"ah_new{turn}"), *tenant),
            (("__name__", "ah_a"), *tenant, ("x", "2")),
        ]
        assert [series.points[0][1] for series in world.bus.batches[-1].series] == [1, 0, 1, 1]
    (agent,) = await world.presence.agents()
    assert agent.interval_seconds == 60.0


async def test_unreadable_series_in_the_middle_refuses_the_whole_body(world):
    """C1: what stands before it was read already, and must not be on the bus all the same."""
    good = world.batch(world.series("a")).SerializeToString()
    bad = b"\x1a\x04\x0a\x02\xff\xfe"
    for _ in range(2):
        response = await world.client.post(
            "/agent/v1/metrics",
            content=compress(good + bad + good),
            headers={**world.headers(), "Content-Encoding": "gzip"},
        )
        assert response.status_code == 400
        assert response.headers["x-ah-code"] == "bad_request"
    assert world.bus.batches == []


async def test_two_agents_with_equal_series_stay_in_their_tenants(world):
    world.hub.active("agent-2", "another-token", company_id="globex", server_id="db-1")
    for _ in range(2):
        for token in (world.token, "another-token"):
            await world.send(world.batch(world.series("m", 1.0, [("x", "1")])), token=token)
    tenants = [
        (batch.company_id, *(value for _, value in batch.series[0].labels[1:3]))
        for batch in world.bus.batches
    ]
    assert tenants == [("acme", "acme", "web-1"), ("globex", "globex", "db-1")] * 2


async def test_fields_in_an_unusual_order_are_read_too(world, ack):
    """A sender of another library may write points before labels, and the batch's end first."""
    series = world.series("a", 1.0, [("x", "1")])
    turned = Series(points=series.points).SerializeToString()
    turned += Series(name="a", labels=series.labels).SerializeToString()
    field = b"\x1a" + bytes([len(turned)]) + turned
    for seq in (1, 2):
        answer = ack(await world.send(b"\x28\x01" + field + b"\x08" + bytes([seq])))
        assert (answer.ack_seq, answer.accepted_points) == (seq, 1)
    assert world.bus.batches[0].series == world.bus.batches[1].series
    assert world.bus.batches[0].series[0].labels[-1] == ("x", "1")


async def test_series_the_budget_refused_are_not_remembered_and_none_are_lost_for_it(world):
    """An agent over its budget would push out what others send."""
    budget = SeriesBudget(per_hour=1, first_hour=2)
    intake = BatchIntake(
        bus=world.bus,
        budget=budget,
        clock=world.clock,
        limits=IngestLimits(),
        metrics=world.metrics,
    )
    agent = AgentRef(agent_id="agent-1", company_id="acme", server_id="web-1")
    token = TokenEntry(agent=agent, state=AgentState.ACTIVE, expires_at=None, version=1)
    passed = Pass(agent=agent, token=token, token_hash="0" * 64)
    batch = world.batch(*[world.series(f"m{number}") for number in range(5)])
    for _ in range(2):
        outcome = await intake.take(passed, batch, request_id="0" * 16, config_etag="")
        assert [(one.index, one.code) for one in outcome.ack.rejected] == [
            (place, "series_limit") for place in (2, 3, 4)
        ]
        assert len(intake._validator) == 2
