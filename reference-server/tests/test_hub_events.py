"""Events at the development hub: each once, an old fence refused whole, a lower seq idle."""

import random
import time
from itertools import permutations

import pytest
from hubs import BareHub
from sqlalchemy import insert, select

from ah_server.hub import (
    PREFIX,
    Bridge,
    EventLog,
    open_database,
)
from ah_server.hub._tables import meta, states
from ahwire import UUID7Generator
from ahwire.limits import MAX_FENCE

pytestmark = pytest.mark.anyio


class Hub(BareHub):
    def __init__(self, database):
        super().__init__(database, time)
        self.ids = UUID7Generator(time, random.Random(7))

    def event(self, kind="agent.down", seq=1, **values):
        group = kind.startswith("group.")
        place = {} if group else {"server_id": "web1", "agent_id": "ag1"}
        return {
            "event_id": self.ids.next(),
            "type": kind,
            "seq": seq,
            "occurred_at": "2026-11-30T10:00:00Z",
            "company_id": "acme",
            "rule_id": "group_down" if group else "agent_down",
            "series_key": "agent",
            "suppressed": False,
            **({"group_key": "g1"} if group else {}),
            **place,
            **values,
        }

    async def send(self, *events, fence=None):
        headers = {} if fence is None else {"X-AH-Fence": str(fence)}
        path = PREFIX + "/events"
        return await self.http.post(path, json={"events": events}, headers=headers)

    async def logged(self):
        return [one.event.event_id for one in await self.event_log.after(0, 1_000)]

    async def state(self):
        async with self.database.begin() as connection:
            rows = (await connection.execute(select(states))).mappings().all()
        return {(row["type"], row["seq"], row["event_id"]) for row in rows}


@pytest.fixture
async def hub(tmp_path):
    database = await open_database(tmp_path / "hub.sqlite")
    made = Hub(database)
    yield made
    await made.aclose()


@pytest.mark.fault
async def test_a_request_that_comes_again_is_recorded_once(hub):
    """C19: the hub took it and its answer was lost; also one event twice in one request."""
    events = [hub.event(seq=seq) for seq in (1, 2)]
    for _ in range(3):
        answer = await hub.send(*events, events[0], fence=7)
        assert answer.status_code == 200
        assert set(answer.json()["accepted"]) == {one["event_id"] for one in events}
    assert await hub.logged() == [one["event_id"] for one in events]


@pytest.mark.fault
@pytest.mark.parametrize("old", [0, 5, 1_800_000_000_000])
async def test_an_old_fence_takes_nothing_and_names_the_newest(hub, old):
    """C20: whole, also what it would reject; the newest stands over a restart of the hub."""
    newest = old + 1
    taken = hub.event()
    assert (await hub.send(taken, fence=newest)).status_code == 200
    answer = await hub.send(hub.event(), hub.event(seq="many"), taken, fence=old)
    assert answer.status_code == 412
    assert (answer.json()["code"], answer.json()["newest"]) == ("fenced", newest)
    assert await hub.logged() == [taken["event_id"]]
    again = EventLog(database=hub.database, clock=time)
    assert [one.event.event_id for one in await again.after(0, 10)] == [taken["event_id"]]
    assert (await hub.send(hub.event(), fence=newest)).status_code == 200
    assert (await hub.send(hub.event())).status_code == 200, "without a lease there is no fence"


@pytest.mark.parametrize("fence", [1, 10**15, MAX_FENCE])
async def test_a_fence_is_any_number_that_a_double_holds(hub, fence):
    assert (await hub.send(hub.event(), fence=fence)).status_code == 200
    answer = await hub.send(hub.event(), fence=fence - 1)
    assert (answer.status_code, answer.json()["newest"]) == (412, fence)


@pytest.mark.parametrize(
    "fence", ["", "-1", "1.5", "x", str(MAX_FENCE + 1), str(2**63), "9" * 5_000, "\u0661"]
)
async def test_what_is_no_fence_is_refused(hub, fence):
    headers = {"X-AH-Fence": fence.encode()}
    path = PREFIX + "/events"
    answer = await hub.http.post(path, json={"events": [hub.event()]}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert "X-AH-Fence" in answer.json()["message"]
    assert await hub.logged() == []
    assert (await hub.send(hub.event(), fence=0)).status_code == 200, "it is not remembered"


async def test_a_fence_over_the_largest_that_an_earlier_version_took_shuts_nobody_out(hub):
    async with hub.database.begin() as connection:
        await connection.execute(insert(meta).values(name="fence", value=2**63 - 1))
    assert (await hub.send(hub.event(), fence=17)).status_code == 200
    answer = await hub.send(hub.event(), fence=16)
    assert (answer.status_code, answer.json()["newest"]) == (412, 17)


@pytest.mark.parametrize("order", list(permutations((3, 5, 9))))
async def test_an_event_with_a_lower_seq_is_recorded_and_changes_no_state(hub, order):
    """Whatever order they come in, the state is that of the highest seq."""
    kinds = {3: "agent.down", 5: "agent.up", 9: "agent.down"}
    events = {seq: hub.event(kind, seq) for seq, kind in kinds.items()}
    for seq in order:
        assert (await hub.send(events[seq])).status_code == 200
    assert await hub.logged() == [events[seq]["event_id"] for seq in order]
    assert await hub.state() == {("agent.down", 9, events[9]["event_id"])}


@pytest.mark.parametrize("order", list(permutations((3, 5, 9))))
async def test_what_comes_late_is_told_as_what_is_over(hub, order):
    """A dead letter that is replayed: people learn of it, and not as the newest state.

    Also when the bridge comes to all of them only afterwards, and when it looked in between.
    """
    kinds = {3: "agent.down", 5: "agent.up", 9: "agent.down"}
    events = {seq: hub.event(kind, seq) for seq, kind in kinds.items()}
    told = []

    async def publish(incident):
        told.append((incident.payload["seq"], incident.payload.get("superseded_by")))

    bridge = Bridge(
        event_log=hub.event_log, publish=publish, failures=OSError, clock=None, rng=random.Random(1)
    )
    for number, seq in enumerate(order):
        await hub.send(events[seq])
        await hub.send(events[seq])  # a repeat is none
        if number != 1:
            await bridge.step()
    newest = [max(order[:number], default=0) for number in range(3)]
    assert told == [
        (seq, kinds[before] if before > seq else None)
        for seq, before in zip(order, newest, strict=True)
    ]
    other = hub.event("agent.up", 1, agent_id="ag2")
    await hub.send(other)
    await bridge.step()
    assert told[-1] == (1, None), "each state has its own order"


async def test_a_file_without_the_table_of_late_events_gets_it(tmp_path):
    path = tmp_path / "older.sqlite"
    database = await open_database(path)
    async with database.begin() as connection:
        await connection.exec_driver_sql("DROP TABLE late_events")
    await database.aclose()
    again = Hub(await open_database(path))
    try:
        await again.send(again.event(seq=2))
        await again.send(again.event(seq=1))
        logged = await again.event_log.after(0, 10)
        assert [one.superseded_by for one in logged] == [None, "agent.down"]
    finally:
        await again.aclose()


async def test_each_key_has_a_state_of_its_own(hub):
    """Company, server, rule, series and agent; of groups company and group_key."""
    events = [
        hub.event(),
        hub.event(company_id="other"),
        hub.event(server_id="web2"),
        hub.event(agent_id="ag2"),
        hub.event("alert.opened", rule_id="r1", series_key="cpu"),
        hub.event("alert.opened", rule_id="r1", series_key="disk"),
        hub.event("group.down"),
        hub.event("group.down", group_key="g2"),
    ]
    await hub.send(*events)
    assert len(await hub.state()) == len(events)
    up = hub.event("group.up", 2)
    await hub.send(up)
    assert ("group.up", 2, up["event_id"]) in await hub.state()
    assert len(await hub.state()) == len(events)
