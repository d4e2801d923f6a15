"""Every limit of a real VictoriaMetrics: at it a sample is read back, over it we refuse or count.

VictoriaMetrics answers that all is well to nearly everything that it drops. The table of
docs/how-to/run-victoriametrics.md names these tests.
"""

import math
import random
import socket
from itertools import count

import anyio
import attrs
import pytest
from hostile_texts import HOSTILE
from victoria_stage import counted, now_ms

from ahcollector.bus import InProcessBus
from ahcollector.clock import SystemClock
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.store import Aggregate
from ahcollector.store._lines import SERIES_BYTES_MAX, series_bytes
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing._contracts.store import samples
from ahcollector.worker import MemoryDeadBatches, Worker
from ahwire.limits import DEFAULT

pytestmark = [pytest.mark.anyio, pytest.mark.service]

# Not there where the package is tested alone.
VictoriaMetricsServer = pytest.importorskip("testkit.victoria_metrics").VictoriaMetricsServer

COMPANIES = (f"limits-{number}" for number in count())
PROTOCOLS = pytest.mark.parametrize("protocol", ["import", "remote_write"])
DAY = 86_400_000


@pytest.fixture
async def store(victoria_metrics):
    async with VictoriaMetricsStore(url=victoria_metrics.url, step_seconds_min=1) as store:
        yield store


async def newest(store, company):
    """What there is of web-1, by name: labels, time and value."""
    await store.flush()
    found = await store.latest(company, "web-1", since_ms=0)
    return [(one.labels, one.timestamp_ms, one.value) for one in found]


async def rises(store, reason):
    """Wait until the counters of the store tell of a drop: its page is a second old."""
    with anyio.fail_after(10):
        while not (found := (await store.drops.look()).get(reason, 0)):
            await anyio.sleep(0.2)
    return found


# --- labels


@PROTOCOLS
@pytest.mark.fault
async def test_thirty_labels_are_kept_without_any_flag_and_a_31st_is_refused(
    start_service, protocol
):
    """C4: 1.79 keeps the first 30 with the name and forgets the others in silence."""
    server = start_service(VictoriaMetricsServer, flags=["-maxLabelsPerTimeseries=30"])
    labels = tuple((f"l{n:02}", str(n)) for n in range(28))
    company, t = next(COMPANIES), now_ms()
    async with VictoriaMetricsStore(url=server.url, write_protocol=protocol) as store:
        await store.drops.look()
        with pytest.raises(PermanentStoreError, match="31 labels, over 30"):
            await store.write([samples([(t, 1.0)], company_id=company, labels=labels)])
        assert await newest(store, company) == []
        await store.write([samples([(t, 1.0)], company_id=company, labels=labels[:27])])
        [(found, _, _)] = await newest(store, company)
        assert found[3:] == labels[:27]
        await anyio.sleep(1.1)
        assert await store.drops.look() == {}


@PROTOCOLS
@pytest.mark.parametrize("char", ["v", "\x01", "é"])
@pytest.mark.fault
async def test_labels_together_are_kept_up_to_what_its_index_holds(
    victoria_metrics, protocol, char
):
    """C4: one byte more than we allow is refused; 64 KiB it would drop, and count nowhere."""
    company, t = next(COMPANIES), now_ms()

    def batch(size):
        labels = [(f"l{n:02}", char * (4_096 // len(char.encode()))) for n in range(27)]
        name = samples([(t, 1.0)], company_id=company).series[0].labels
        while series_bytes((*name, *labels)) > size:
            labels.pop()
        left = size - series_bytes((*name, *labels))
        while left:
            chars = min(left - len("m00") - 2, 4_096)
            labels.append((f"m{len(labels):02}", "w" * chars))
            left -= series_bytes(labels[-1:])
        found = samples([(t, 1.0)], company_id=company, labels=tuple(labels))
        assert series_bytes(found.series[0].labels) == size
        return found

    async with VictoriaMetricsStore(url=victoria_metrics.url, write_protocol=protocol) as store:
        with pytest.raises(PermanentStoreError, match="64001 bytes of labels as they are kept"):
            await store.write([batch(SERIES_BYTES_MAX + 1)])
        whole = batch(SERIES_BYTES_MAX)
        await store.write([whole])
        [(found, at, _)] = await newest(store, company)
        assert (found, at) == (whole.series[0].labels, t)


@pytest.mark.fault
async def test_names_of_any_characters_are_kept_up_to_their_length(store):
    """C4: the door normalises names; the writer takes whatever text it is given."""
    company, t = next(COMPANIES), now_ms()
    names = sorted({*HOSTILE, "n" * 256, "é" * 128, "\U0001f600" * 64})
    for n in range(0, len(names), 20):
        labels = tuple((name, str(k)) for k, name in enumerate(names[n : n + 20]))
        batch = samples([(t, 1.0)], company_id=company, name=f"ah_{n}", labels=labels)
        await store.write([batch])
    found = {pair for labels, _, _ in await newest(store, company) for pair in labels[3:]}
    assert {name for name, _ in found} == set(names)


# --- times and values


@pytest.mark.fault
async def test_times_are_kept_to_the_edges_and_counted_beyond_them(start_service):
    """C7: the store's own counters see nothing, because nothing is sent that it would drop."""
    server = start_service(VictoriaMetricsServer, flags=["-retentionPeriod=2d"])
    company = next(COMPANIES)
    async with VictoriaMetricsStore(url=server.url, retention_seconds=2 * 86_400.0) as store:
        await store.drops.look()
        now = now_ms()
        inside = [now - 2 * DAY + 60_000, now + 2 * DAY - 60_000]
        beyond = [now - 2 * DAY - 1, 0, -1, now // 1_000, now + 2 * DAY + 60_000, 2**63 - 1]
        for n, at in enumerate(inside + beyond):
            await store.write([samples([(at, 1.0)], company_id=company, name=f"ah_{n}")])
        found = await newest(store, company)
        assert [at for _, at, _ in found] == inside
        assert store.dropped == {"too_old": 4, "in_future": 2}
        await anyio.sleep(1.1)
        assert await store.drops.look() == {}


@PROTOCOLS
@pytest.mark.fault
async def test_values_that_are_none_are_counted_and_their_neighbours_kept(
    victoria_metrics, protocol
):
    """C3: VictoriaMetrics drops a whole line for one of them; -0.0 and next to nothing become 0."""
    company, t = next(COMPANIES), now_ms() - 10_000
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.0]
    async with VictoriaMetricsStore(
        url=victoria_metrics.url, write_protocol=protocol, step_seconds_min=1
    ) as store:
        points = [(t + 1_000 * n, value) for n, value in enumerate(values)]
        await store.write(
            [
                samples(points, company_id=company),
                samples([(t, 1.7976931348623157e308)], company_id=company, name="ah_largest"),
            ]
        )
        assert store.dropped == {"non_finite": 3}
        await store.flush()
        [series] = await store.range(
            company,
            "web-1",
            "cpu_percent",
            start_ms=t,
            end_ms=points[-1][0],
            step_ms=1_000,
            aggregate=Aggregate.LAST,
        )
        assert series.points == tuple(zip([at for at, _ in points[3:]], [0, 0, 1.0], strict=True))
        [(_, _, largest)] = [
            one for one in await newest(store, company) if one[0][0][1] == "ah_largest"
        ]
        assert largest == pytest.approx(1.7976931348623157e308, rel=1e-12)


@pytest.mark.fault
async def test_of_two_values_at_one_time_one_is_kept(store):
    """C6: which one is the store's choice; nothing is counted twice."""
    company, t = next(COMPANIES), now_ms()
    await store.write([samples([(t, 1.0), (t, 2.0)], company_id=company)])
    await store.write([samples([(t, 2.0), (t, 1.0)], company_id=company)])
    await store.flush()
    assert await counted(store, company, t, step_ms=1_000) == 1.0


# --- how much at once


@pytest.mark.fault
async def test_a_long_series_is_several_messages_of_a_remote_write(start_service):
    """C4: a message over -maxInsertRequestSize is refused whole."""
    server = start_service(VictoriaMetricsServer, flags=["-maxInsertRequestSize=3MB"])
    company, t = next(COMPANIES), now_ms()
    first = t - 199_999 * 10
    points = [(first + n * 10, n + 0.125) for n in range(200_000)]
    async with VictoriaMetricsStore(
        url=server.url, write_protocol="remote_write", body_bytes_max=1_000_000
    ) as store:
        await store.write([samples(points, company_id=company)])
        await store.flush()
        assert await counted(store, company, t, step_ms=2_000_000) == 200_000.0


async def taken(store, batch):
    try:
        await store.write([batch])
    except TemporaryStoreError:
        return False
    return True


@PROTOCOLS
async def test_too_many_writers_at_once_are_told_to_come_later(start_service, protocol):
    """It is temporary: nothing is lost."""
    server = start_service(
        VictoriaMetricsServer,
        flags=["-maxConcurrentInserts=1", "-insert.maxQueueDuration=200ms"],
    )
    company, t = next(COMPANIES), now_ms()
    batch = samples([(t, 1.0)], company_id=company)
    async with VictoriaMetricsStore(url=server.url, write_protocol=protocol) as store:
        with socket.create_connection((server.host, server.port)) as slow:
            slow.sendall(b"POST /api/v1/import HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            # One that came first may still be in its hands.
            await anyio.sleep(0.2)
            with pytest.raises(TemporaryStoreError, match="503"):
                await store.write([batch])
        with anyio.fail_after(10):
            while not await taken(store, batch):
                await anyio.sleep(0.05)
        [(_, at, _)] = await newest(store, company)
        assert at == t


class FillingDisk(VictoriaMetricsServer):
    """One whose disk can be full at its next start."""

    full = True

    def _command(self):
        flag = ["-storage.minFreeDiskSpaceBytes=1000000000000000000"] if self.full else []
        return [*super()._command(), *flag]


@PROTOCOLS
async def test_a_full_disk_is_temporary_and_nothing_is_half_stored(start_service, protocol):
    """It is read-only then, and goes on answering queries."""
    server = start_service(FillingDisk)
    company, t = next(COMPANIES), now_ms()
    batches = [samples([(t + n, 1.0)], company_id=company, name=f"ah_{n}") for n in range(50)]
    async with VictoriaMetricsStore(url=server.url, write_protocol=protocol) as store:
        for call in (lambda: store.write(batches), store.check):
            with pytest.raises(TemporaryStoreError, match="read-only"):
                await call()
        await store.ping()
        assert await newest(store, company) == []
        server.full = False
        await anyio.to_thread.run_sync(server.restart)
        await store.write(batches)
        assert len(await newest(store, company)) == 50


async def test_a_worker_waits_with_all_it_has_until_the_disk_has_room(start_service):
    """Nothing is set aside."""
    server = start_service(FillingDisk)
    company, t = next(COMPANIES), now_ms()
    batches = [samples([(t + n, 1.0)], company_id=company, name=f"ah_{n}") for n in range(30)]
    bus, dead = InProcessBus(clock=SystemClock()), MemoryDeadBatches()
    async with VictoriaMetricsStore(url=server.url) as store, anyio.create_task_group() as tasks:
        worker = Worker(
            bus=bus,
            store=store,
            clock=SystemClock(),
            rng=random.Random(4),
            dead_batches=dead,
            flush_seconds=0.01,
            retry_max_seconds=0.2,
        )
        tasks.start_soon(worker.run)
        for batch in batches:
            await bus.publish(batch)
        await anyio.sleep(1)
        assert await newest(store, company) == []
        server.full = False
        await anyio.to_thread.run_sync(server.restart)
        with anyio.fail_after(20):
            while len(await newest(store, company)) < len(batches):
                await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert await dead.count() == 0


# --- flags of an operator that drop in silence


@pytest.mark.fault
async def test_series_over_a_limit_of_its_own_are_seen_by_the_watch(start_service):
    """C4: -storage.maxHourlySeries drops new series with a 204."""
    server = start_service(VictoriaMetricsServer, flags=["-storage.maxHourlySeries=50"])
    company, t = next(COMPANIES), now_ms()
    async with VictoriaMetricsStore(url=server.url) as store:
        [warning] = await store.check()
        assert "over 50 series in an hour (-storage.maxHourlySeries)" in warning
        await store.drops.look()
        await store.write(
            [samples([(t, 1.0)], company_id=company, name=f"ah_{n}") for n in range(99)]
        )
        dropped = await rises(store, "hourly_limit")
        # About fifty: the limit is kept by a filter that may take a series for a known one.
        assert 40 < dropped < 60
        assert len(await newest(store, company)) == 99 - dropped
        # Full, it drops the probe of another door too, and says so where we say that it is gone.
        with pytest.raises(TemporaryStoreError, match="did not show it"):
            await store.check(limits=attrs.evolve(DEFAULT, labels_per_series=5))


@pytest.mark.fault
async def test_samples_that_a_relabeling_drops_are_seen_by_the_watch(start_service, tmp_path):
    """C4."""
    rules = tmp_path / "relabel.yml"
    rules.write_text('- {action: drop, source_labels: [__name__], regex: "ah_secret.*"}')
    server = start_service(VictoriaMetricsServer, flags=[f"-relabelConfig={rules}"])
    company, t = next(COMPANIES), now_ms()
    async with VictoriaMetricsStore(url=server.url) as store:
        [warning] = await store.check()
        assert "by -relabelConfig" in warning
        await store.drops.look()
        await store.write([samples([(t, 1.0)], company_id=company, name="ah_secret")])
        assert await rises(store, "relabeled") == 1


@pytest.mark.fault
async def test_the_check_refuses_a_retention_shorter_than_the_doors_age(start_service):
    """C7: such samples were acknowledged and dropped in silence."""
    server = start_service(VictoriaMetricsServer, flags=["-retentionPeriod=2d"])
    async with VictoriaMetricsStore(url=server.url) as store:
        assert await store.check(held_seconds=7_200.0) == ()
        with pytest.raises(PermanentStoreError, match="longer -retentionPeriod"):
            await store.check(limits=attrs.evolve(DEFAULT, point_age_seconds=3 * 86_400.0))
        with pytest.raises(PermanentStoreError, match="longer -retentionPeriod"):
            await store.check(held_seconds=86_400.0)
    async with VictoriaMetricsStore(url=server.url, retention_seconds=3 * 86_400.0) as store:
        [warning] = await store.check()
        assert "for 2 days (-retentionPeriod=2d) and tsdb.retention_days says 3" in warning


@PROTOCOLS
@pytest.mark.parametrize(
    ("limits", "held_seconds"),
    [
        (DEFAULT, 0.0),
        (attrs.evolve(DEFAULT, labels_per_series=14, label_value_bytes=2_000), 7_200.0),
        (attrs.evolve(DEFAULT, name_bytes=250, label_value_bytes=1_000), 31 * 86_400.0),
    ],
)
async def test_the_check_reads_back_what_each_door_may_take(
    victoria_metrics, protocol, limits, held_seconds
):
    async with VictoriaMetricsStore(url=victoria_metrics.url, write_protocol=protocol) as store:
        for _ in range(2):
            assert await store.check(limits=limits, held_seconds=held_seconds) == ()


@pytest.mark.fault
async def test_the_check_warns_of_an_interval_in_which_only_one_sample_is_kept(start_service):
    """C6."""
    server = start_service(VictoriaMetricsServer, flags=["-dedup.minScrapeInterval=30s"])
    async with VictoriaMetricsStore(url=server.url) as store:
        [warning] = await store.check()
    assert "-dedup.minScrapeInterval=1ms and no longer interval" in warning


# --- queries


async def test_a_query_over_a_limit_is_an_error_that_names_it_and_no_part_of_an_answer(
    start_service,
):
    server = start_service(
        VictoriaMetricsServer,
        flags=[
            "-search.maxUniqueTimeseries=3",
            "-search.maxPointsPerTimeseries=100",
            "-search.maxSeries=3",
        ],
    )
    company, t = next(COMPANIES), now_ms()
    async with VictoriaMetricsStore(url=server.url) as store:
        batches = [
            samples([(t, 1.0)], company_id=company, labels=(("n", str(n)),)) for n in range(4)
        ]
        await store.write(batches)
        await store.flush()
        asked = {"start_ms": t - 60_000, "end_ms": t, "step_ms": 30_000}
        for call in (
            store.range(company, "web-1", "cpu_percent", **asked),
            store.range(company, "web-1", "x", **{**asked, "start_ms": t - 101 * 30_000}),
            store.range(company, "web-1", "x" * 16_384, **asked),
            store.series(company),
        ):
            with pytest.raises(PermanentStoreError, match=r"422.*-search\.max"):
                await call
        with pytest.raises(PermanentStoreError, match="422"):
            await store.latest(company, "web-1", since_ms=t - 2 * DAY)


async def test_a_company_of_more_series_than_can_be_listed_is_deleted(start_service, caplog):
    server = start_service(VictoriaMetricsServer, flags=["-search.maxSeries=3"])
    company, t = next(COMPANIES), now_ms()
    async with VictoriaMetricsStore(url=server.url) as store:
        await store.write(
            [samples([(t, 1.0)], company_id=company, name=f"ah_{n}") for n in range(4)]
        )
        assert await store.delete_company(company) == 0
        assert "raise -search.maxSeries" in caplog.text
        assert await newest(store, company) == []


async def test_a_deleted_series_that_comes_back_can_be_read(start_service):
    server = start_service(VictoriaMetricsServer)
    company, t = next(COMPANIES), now_ms()
    async with VictoriaMetricsStore(url=server.url) as store:
        for n in range(3):
            # The same sample as before its deletion, and one that is newer.
            await store.write([samples([(t, 1.0), (t + n, float(n))], company_id=company)])
            [(_, at, value)] = await newest(store, company)
            assert (at, value) == (t + n, float(n))
            assert await store.delete_company(company) == 1
            assert await newest(store, company) == []


@pytest.mark.fault
async def test_labels_that_look_alike_in_a_text_are_series_of_their_own(store):
    """C26."""
    company, t = next(COMPANIES), now_ms()
    own = [
        (("a", "bc"),),
        (("ab", "c"),),
        (("a", "b"), ("c", "d")),
        (("a", "b,c=d"),),
        (("a", 'b",c="d'),),
        (("a", "b\n"), ("c", "d")),
        (("a", "b\nc=d"),),
        (("a", "b\x00c\x01d"),),
        (("a", "b\x01c\x00d"),),
        (("a", "b\x00"), ("c", "\x01d")),
    ]
    await store.write(
        [
            samples([(t, float(n))], company_id=company, labels=labels)
            for n, labels in enumerate(own)
        ]
    )
    found = {labels[3:]: value for labels, _, value in await newest(store, company)}
    assert found == {labels: float(n) for n, labels in enumerate(own)}
