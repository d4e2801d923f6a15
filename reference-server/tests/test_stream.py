"""The samples' way over real services: at the door in, by the admin door out, also after a stop."""

import time
import uuid
from pathlib import Path

import pytest
import redis
from servers import QUICK_BUS, running, until

from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.worker.redis import RedisDeadBatches

pytestmark = [pytest.mark.anyio, pytest.mark.service]


@pytest.fixture
def company():
    """A company of the test's own: the store is everybody's."""
    return f"c{uuid.uuid4().hex}"


def on(*, redis=None, victoria_metrics=None, nats=None, **more):
    data = {}
    if nats is not None:
        # Names of the test's own: the NATS is everybody's.
        prefix = f"t{uuid.uuid4().hex}"
        data["nats"] = {"url": nats.url, "prefix": prefix, "buffer_bytes": 64 << 20}
        data["bus"] = {"backend": "jetstream", "lease_seconds": 1.5}
    if redis is not None:
        # On a busy machine half a second is not much.
        addr = f"127.0.0.1:{redis.port}"
        data |= {"redis": {"addr": addr, "timeout_seconds": 3}, "bus": QUICK_BUS}
    if victoria_metrics is not None:
        data["tsdb"] = {"url": victoria_metrics.url, "durable_after_seconds": 0.5}
    for name, section in more.items():
        data[name] = {**data.get(name, {}), **section}
    return data


async def shown(server, store, count):
    async def look():
        store.force_flush()
        return await server.count() == count

    await until(look)


@pytest.fixture
def shared_bus(bus, request):
    """What `on` is told for a bus of that name."""
    fixtures = {"redis": ("redis", "private_redis"), "jetstream": ("nats", "nats_server")}
    if bus not in fixtures:
        return {}
    name, fixture = fixtures[bus]
    return {name: request.getfixturevalue(fixture)}


@pytest.mark.parametrize("bus", ["inproc", "redis", "jetstream"])
async def test_a_batch_is_read_back_also_by_the_next_server(
    tmp_path, company, shared_bus, victoria_metrics
):
    data = on(**shared_bus, victoria_metrics=victoria_metrics)
    async with running(tmp_path / "a", company=company, data=data) as server:
        token = await server.enrol()
        assert await server.send(token, 1.0, 2.0, 3.0) == 202
        await shown(server, victoria_metrics, 3)
        latest = await server.admin("series/latest", server_id="web1")
        (series,) = [
            one for one in latest.json()["series"] if one["labels"]["__name__"] == "ah_load"
        ]
        assert series["labels"]["l"] == 'é{}"'
        assert series["points"][0][1] == 3.0
    async with running(tmp_path / "a", company=company, data=data) as server:
        await shown(server, victoria_metrics, 3)
        assert await server.send(token, 4.0) == 202
        await shown(server, victoria_metrics, 4)
    assert not (tmp_path / "a" / "samples.log").exists()


@pytest.mark.parametrize("bus", ["redis", "jetstream"])
async def test_what_is_on_the_bus_at_a_stop_is_written_by_the_next_server(
    tmp_path, company, shared_bus, start_service
):
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer)
    data = on(
        **shared_bus,
        victoria_metrics=store,
        worker={"shutdown_flush_seconds": 0.1},
        tsdb={"retry_max_seconds": 0.2, "timeout_seconds": 2},
    )
    async with running(tmp_path / "a", company=company, data=data) as server:
        token = await server.enrol()
        assert await server.send(token, 1.0) == 202
        await shown(server, store, 1)
        store.stop()
        # Agents are let in all the same, because the bus keeps what they bring.
        assert await server.send(token, 2.0) == 202
        inside = await server.page("ingest", "/readyz")
        assert inside.status_code == 200
        assert inside.json()["checks"]["bus"] == "ok"
        admin = await server.page("admin", "/readyz")
        assert admin.status_code == 503
        assert "VictoriaMetrics" in admin.json()["checks"]["tsdb"]
        assert admin.json()["checks"]["bus"] == "ok"
        asked = await server.admin("series/latest", server_id="web1")
        assert asked.status_code == 503
        for path in ("", "/charts/cpu.svg", "/metrics/ah_load.svg"):
            page = await server.page("console", f"/companies/{company}/servers/web1{path}")
            assert page.status_code == 503
            assert "VictoriaMetrics" in page.text
    store.start()
    async with running(tmp_path / "a", company=company, data=data) as server:
        await shown(server, store, 2)
        assert (await server.page("admin", "/readyz")).status_code == 200


async def test_without_a_bus_that_keeps_them_batches_are_not_let_in_to_a_store_that_is_away(
    tmp_path, company, start_service
):
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer)
    async with running(tmp_path / "a", company=company, data=on(victoria_metrics=store)) as server:
        store.stop()
        for door in ("ingest", "admin"):
            reply = await server.page(door, "/readyz")
            assert reply.status_code == 503
            assert "VictoriaMetrics" in reply.json()["checks"]["tsdb"]
            assert "bus" not in reply.json()["checks"]


@pytest.mark.parametrize("carrier", ["redis", "jetstream"])
async def test_two_servers_write_to_one_store_whichever_an_agent_speaks_to(
    tmp_path, company, private_redis, nats_server, victoria_metrics, carrier
):
    # Who may send is in Redis either way.
    data = on(redis=private_redis, victoria_metrics=victoria_metrics)
    if carrier == "jetstream":
        data |= on(nats=nats_server)
    async with running(tmp_path / "a", company=company, data=data) as first:
        token = await first.enrol()
        hub = {
            "base_url": first.url("hub", ""),
            "token": first.assembly.hub_token.reveal(),
        }
        second_data = {**data, "hub": hub, "collector_id": "second"}
        async with running(tmp_path / "b", company=company, data=second_data) as second:
            for number in range(6):
                server = (first, second)[number % 2]
                assert await server.send(token, float(number), name=f"load{number % 3}") == 202
            for server in (first, second):

                async def all_six(server=server):
                    victoria_metrics.force_flush()
                    counts = [await server.count(metric=f"load{n}") for n in range(3)]
                    return counts == [2, 2, 2]

                await until(all_six)


async def test_a_step_under_half_a_minute_is_answered_400_and_charts_ask_for_none(
    tmp_path, company, victoria_metrics
):
    data = on(victoria_metrics=victoria_metrics)
    async with running(tmp_path / "a", company=company, data=data) as server:
        token = await server.enrol()
        assert await server.send(token, 1.0, 2.0) == 202
        await shown(server, victoria_metrics, 2)
        reply = await server.admin(
            "series/range",
            server_id="web1",
            metric="load",
            start_ms=0,
            end_ms=60_000,
            step_ms=29_999,
        )
        assert reply.status_code == 400
        assert "29999" in reply.text
        assert "30000" in reply.text
        for span in ("5m", "hour", "day", "week"):
            for name in ("ah_load", "load", "%22%7B%7D", "a" * 2000, "%00", "é"):
                path = f"/companies/{company}/servers/web1/metrics/{name}.svg?span={span}"
                chart = await server.page("console", path)
                assert chart.status_code == 200, (span, name, chart.text)


async def test_a_store_that_is_away_for_long_fills_the_bus_and_loses_nothing(
    tmp_path, company, private_redis, start_service
):
    """C8: agents are told to come again; what they were told is accepted stays, in order."""
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer)
    data = on(
        redis=private_redis,
        victoria_metrics=store,
        bus={"queue_per_shard": 3},
        tsdb={"max_batch_samples": 1, "retry_max_seconds": 0.2},
        ingest={"metrics_burst": 1000},
    )
    async with running(tmp_path / "a", company=company, data=data) as server:
        token = await server.enrol()
        store.stop()
        accepted = 0

        async def full():
            nonlocal accepted
            reply = await server.post(token, float(accepted))
            accepted += reply.status_code == 202
            return reply if reply.status_code != 202 else None

        refused = await until(full)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert accepted >= 3
        store.start()
        await shown(server, store, accepted)


async def test_a_batch_set_aside_is_seen_and_sent_again_by_any_server(
    tmp_path, company, private_redis, victoria_metrics
):
    data = on(redis=private_redis, victoria_metrics=victoria_metrics)
    async with running(tmp_path / "a", company=company, data=data) as server:
        now_ms = time.time_ns() // 1_000_000
        labels = (("__name__", "ah_load"), ("company_id", company), ("server_id", "web1"))
        batch = SampleBatch(
            company_id=company,
            server_id="web1",
            agent_id="a1",
            request_id="r1",
            received_at_ms=now_ms,
            series=(StoredSeries(labels=labels, points=((now_ms, 1.0),)),),
        )
        # As the worker of another server sets it aside.
        elsewhere = RedisDeadBatches(client=server.assembly.collector.redis)
        await elsewhere.put(batch, "refused", time.time())
        listed = await server.admin_root("GET", "worker/dead")
        assert [one["request_id"] for one in listed.json()["letters"]] == ["r1"]
        replayed = await server.admin_root("POST", "worker/dead/replay")
        assert replayed.status_code == 200, replayed.text
        await shown(server, victoria_metrics, 1)
        assert not (tmp_path / "a" / "dead-batches.log").exists()


@pytest.mark.parametrize(
    "bus",
    [
        "redis",
        pytest.param("jetstream", marks=pytest.mark.nightly),
        pytest.param("inproc", marks=pytest.mark.nightly),
    ],
)
async def test_what_a_killed_store_had_just_taken_is_written_again(
    tmp_path, company, shared_bus, start_service
):
    from testkit import VictoriaMetricsServer

    store = start_service(VictoriaMetricsServer)
    data = on(
        **shared_bus,
        victoria_metrics=store,
        tsdb={"durable_after_seconds": 5, "retry_max_seconds": 0.2},
    )
    async with running(tmp_path / "a", company=company, data=data) as server:
        token = await server.enrol()
        before = await server.metric("ahc_tsdb_samples_written_total")
        for number in range(3):
            assert await server.send(token, float(number), name=f"load{number}") == 202

        async def written():
            return await server.metric("ahc_tsdb_samples_written_total") == before + 3

        await until(written)
        store.kill()
        store.start()

        async def all_three():
            store.force_flush()
            counts = [await server.count(metric=f"load{number}") for number in range(3)]
            return counts == [1, 1, 1]

        await until(all_three)
        assert await server.metric("ahc_tsdb_rewritten_total") >= 3


RIGHTS = "~ah:* &ah:* +@all -@admin -@dangerous +config|get +info"


async def test_the_rights_of_the_guide_suffice_for_bus_and_dead_batches(
    tmp_path, company, private_redis, victoria_metrics
):
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-redis.md"
    if guide.exists():
        assert f"\nuser ah-server on >PASSWORD {RIGHTS}\n" in guide.read_text("utf-8")
    with redis.Redis(port=private_redis.port) as root:
        root.execute_command("ACL", "SETUSER", "ah-server", "on", ">PASSWORD", *RIGHTS.split())
    data = on(
        redis=private_redis,
        victoria_metrics=victoria_metrics,
    )
    data["redis"] |= {"username": "ah-server", "password": "PASSWORD"}
    async with running(tmp_path / "a", company=company, data=data) as server:
        token = await server.enrol()
        assert await server.send(token, 1.0, 2.0) == 202
        await shown(server, victoria_metrics, 2)
        for part in ("bus", "worker"):
            listed = await server.admin_root("GET", f"{part}/dead")
            assert listed.status_code == 200, listed.text
