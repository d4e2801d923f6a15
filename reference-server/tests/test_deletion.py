"""C18: what was deleted stays deleted in a whole server, and its alerts end."""

import anyio
import pytest
from servers import clean_environment, running, until

from ahcollector.clock import SystemClock
from ahcollector.departures import FileDepartures
from ahcollector.store import MemoryStore, StoreSnapshot

pytestmark = [pytest.mark.anyio, pytest.mark.fault]
RULE = {
    "rule_id": "busy",
    "version": 1,
    "metric": "load",
    "op": "gt",
    "threshold": 50,
    "severity": "critical",
}
WAIT_SECONDS = 1.5
OPENED, FORGOTTEN = ("web1", "alert.opened", "condition"), ("web1", "alert.resolved", "forgotten")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    clean_environment(monkeypatch)


@pytest.fixture(params=["embedded", pytest.param("redis", marks=pytest.mark.service)])
def data(request):
    """Batches wait in the worker's hands long enough for a deletion."""
    made = {
        "alerting": {"scan_interval_seconds": 0.2},
        "outbox": {"flush_interval_seconds": 0.1},
        "tsdb": {"max_batch_wait_seconds": WAIT_SECONDS},
    }
    if request.param == "redis":
        redis = request.getfixturevalue("private_redis")
        made["redis"] = {"addr": f"127.0.0.1:{redis.port}"}
        made["bus"] = {"block_seconds": 0.1, "lease_seconds": 1.5, "claim_idle_seconds": 1}
    return made


async def ruled(server):
    await server.assembly.hub.lists.put("rules", {"rules": [RULE]})
    reply = await server.admin_root("POST", "reload/rules")
    assert reply.status_code == 200, reply.text


async def told(server):
    log = await server.assembly.hub.event_log.after(0, 1_000)
    events = [logged.event for logged in log if logged.event.type.value.startswith("alert.")]
    return [(event.server_id, event.type.value, event.reason) for event in events]


async def until_told(server, *wanted):
    async def look():
        found = await told(server)
        return len(found) >= len(wanted) and found

    assert await until(look) == list(wanted)


async def delete(server, path):
    reply = await server.admin_root("DELETE", path)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("path", ["companies/acme/servers/web1", "companies/acme"])
async def test_batch_that_waits_while_its_server_is_deleted_does_not_come_back(
    tmp_path, data, path
):
    """C18: it was accepted, and neither its series nor an alert comes of it."""
    async with running(tmp_path, data=data) as server:
        await ruled(server)
        token = await server.enrol()
        assert await server.send(token, 60.0) == 202
        assert (await delete(server, path))["agents"] == 1
        await until(lambda: server.metric("ahc_tsdb_batches_dropped_total"))
        await anyio.sleep(0.5)
        assert await server.count() == 0
        assert await told(server) == []
        dropped = 'ahc_tsdb_batches_dropped_total{reason="deleted"} 1.0'
        assert dropped in (await server.page("admin", "/metrics")).text
        # It is no ban: enrolled again under the same name, it is stored and judged.
        again = await server.enrol()
        assert await server.send(again, 70.0) == 202
        await until_told(server, OPENED)
        assert await server.count() == 1
        assert await server.metric("ahc_tsdb_batches_dropped_total") == 1


async def test_server_whose_last_agent_is_revoked_has_no_alerts_and_keeps_its_history(
    tmp_path, data
):
    """C18: nothing else would ever end them, and nobody has deleted what was acknowledged."""
    async with running(tmp_path, data=data) as server:
        await ruled(server)
        token = await server.enrol()
        await server.enrol()
        assert await server.send(token, 60.0) == 202
        await until_told(server, OPENED)
        reply = await server.admin_root("GET", "companies/acme/servers/web1/agents")
        first, second = (agent["agent_id"] for agent in reply.json()["agents"])
        await delete(server, f"agents/{first}")
        await anyio.sleep(1.0)
        assert await told(server) == [OPENED], "one of several ends nothing"
        await delete(server, f"agents/{second}")
        await until_told(server, OPENED, FORGOTTEN)
        assert await server.count() == 1


async def test_deletion_is_known_behind_a_restart(tmp_path):
    """C18: a batch that a bus or a dead letter brings later is told by the file."""
    async with running(tmp_path) as server:
        token = await server.enrol()
        assert await server.send(token, 60.0) == 202

        async def written():
            return await server.count() == 1

        await until(written)
        await delete(server, "companies/acme/servers/web1")
        # What a kill would find, now.
        store = MemoryStore(clock=SystemClock())
        keeper = StoreSnapshot(store=store, path=tmp_path / "samples.log", clock=SystemClock())
        assert await anyio.Path(tmp_path / "samples.log").exists()
        assert await keeper.load() == 0
    departures = await FileDepartures.open(tmp_path / "departures.log")
    assert set(await departures.of([("acme", "web1"), ("acme", "web2")])) == {("acme", "web1")}
