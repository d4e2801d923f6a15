"""The store beside a real VictoriaMetrics: limits, flags, deaths, and neighbours."""

import random
import struct
from itertools import count

import anyio
import httpx
import pytest
from hostile_texts import HOSTILE
from victoria_stage import counted, now_ms

from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.store import Aggregate
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing._contracts.store import samples
from ahwire.limits import MAX_LABEL_VALUE_BYTES, MAX_LABELS_PER_SERIES, MAX_NAME_BYTES

pytestmark = [pytest.mark.anyio, pytest.mark.service]

# Not there where the package is tested alone.
VictoriaMetricsServer = pytest.importorskip("testkit.victoria_metrics").VictoriaMetricsServer

COMPANIES = (f"company-{number}" for number in count())


def round_ms():
    return now_ms() // 60_000 * 60_000 - 600_000


@pytest.fixture
async def store(victoria_metrics):
    async with VictoriaMetricsStore(url=victoria_metrics.url, step_seconds_min=1) as store:
        yield store


async def test_hostile_ids_and_values_reach_their_own_series_only(store):
    """Each company, server and label value is a text that would like to be a query."""
    rng = random.Random(6)
    alphabet = "\"\\'`{}=,~!#()[]\n\t\x00 aé\U0001f600.*+"
    texts = HOSTILE + ["x" + "".join(rng.choices(alphabet, k=12)) for _ in range(80)]
    t = round_ms()
    await store.write(
        [
            samples([(t, float(n))], company_id=text, server_id=text, labels=(("l", text),))
            for n, text in enumerate(texts)
        ]
    )
    await store.flush()
    for n, text in enumerate(texts):
        [series] = await store.range(text, text, "cpu_percent", start_ms=t, end_ms=t, step_ms=1_000)
        assert series.points == ((t, float(n)),)
        assert series.labels == (
            ("__name__", "ah_cpu_percent"),
            ("company_id", text),
            ("server_id", text),
            ("l", text),
        )
        [sample] = await store.latest(text, text, since_ms=t)
        assert (sample.labels, sample.value) == (series.labels, float(n))
        [info] = await store.series(text)
        assert info.labels == series.labels
    for text in texts[::2]:
        assert await store.delete_company(text) == 1
    for n, text in enumerate(texts):
        assert len(await store.series(text)) == n % 2


async def test_what_is_read_is_what_was_sent_for_all_that_is_kept(store):
    """C3: whole numbers to 2**53, numbers of nine digits, and all others to twelve digits."""
    rng = random.Random(3)
    whole = [float(rng.randrange(-(2**53), 2**53)) for _ in range(500)]
    short = [float(f"{rng.randrange(-(10**9), 10**9)}e{rng.randint(-9, 3)}") for _ in range(500)]
    any_bits = [struct.unpack("d", rng.randbytes(8))[0] for _ in range(1_000)]
    other = [value for value in any_bits if 1e-290 < abs(value) < 1e308]
    company, t = next(COMPANIES), round_ms()
    for kind, values in (("whole", whole), ("short", short), ("other", other)):
        await store.write(
            [
                samples(
                    [(t, value)], company_id=company, server_id=kind, labels=(("n", f"{n:04}"),)
                )
                for n, value in enumerate(values)
            ]
        )
        await store.flush()
        found = [sample.value for sample in await store.latest(company, kind, since_ms=t)]
        assert len(found) == len(values)
        if kind == "other":
            for value, sent in zip(found, values, strict=True):
                assert abs(value - sent) <= 1e-12 * abs(sent)
        else:
            assert found == values


@pytest.mark.parametrize("protocol", ["import", "remote_write"])
async def test_a_series_at_every_limit_of_the_door_is_kept_whole(victoria_metrics, protocol):
    """C4."""
    async with VictoriaMetricsStore(
        url=victoria_metrics.url, write_protocol=protocol, step_seconds_min=1
    ) as store:
        company, t = next(COMPANIES), round_ms()
        labels = tuple(
            (f"l{n:02}".ljust(MAX_NAME_BYTES, "n"), "é" * (MAX_LABEL_VALUE_BYTES // 2))
            for n in range(MAX_LABELS_PER_SERIES)
        )
        name = "ah_".ljust(MAX_NAME_BYTES + 3, "m")
        await store.write([samples([(t, 0.1)], company_id=company, name=name, labels=labels)])
        await store.flush()
        [sample] = await store.latest(company, "web-1", since_ms=t)
    assert (sample.timestamp_ms, sample.value) == (t, 0.1)
    assert sample.labels[3:] == labels


async def test_a_series_longer_than_a_line_may_be_is_read_whole(start_service):
    """C4: 500,000 points are 12 MB, and longer lines than 10 MB are skipped with a 204."""
    server = start_service(VictoriaMetricsServer, flags=["-import.maxLineLen=10485760"])
    company, t = next(COMPANIES), round_ms()
    first = t - 499_999 * 10
    points = [(first + n * 10, n + 0.125) for n in range(500_000)]
    async with VictoriaMetricsStore(url=server.url) as store:
        await store.write([samples(points, company_id=company)])
        await store.flush()
        assert await counted(store, company, t, step_ms=5_000_000) == 500_000.0


async def test_an_instant_is_exact_to_the_millisecond(store):
    company = next(COMPANIES)
    times = [1_796_000_000_000 - 86_400_000 + n * 1_001 for n in range(1_000)]
    # Of each step the last instant and the first: a millisecond less of anything loses one.
    points = [(t - ago, 1.0) for t in times for ago in (1_000, 0)]
    await store.write([samples(points, company_id=company)])
    await store.flush()
    found = await store.range(
        company,
        "web-1",
        "cpu_percent",
        start_ms=times[0],
        end_ms=times[-1],
        step_ms=1_001,
        aggregate=Aggregate.COUNT,
    )
    assert list(found[0].points) == [(t, 2.0) for t in times]


async def test_the_newest_sample_is_found_however_long_ago(store):
    """Within an hour among the samples themselves, before it by its time."""
    company, now = next(COMPANIES), now_ms()
    for age_ms, name in ((60_001, "ah_new"), (7_200_003, "ah_old"), (86_400_007, "ah_older")):
        points = [(now - age_ms - 1_000, 1.0), (now - age_ms, 2.0)]
        await store.write([samples(points, company_id=company, name=name)])
    ahead = [(now + 120_000, 7.0), (now, 6.0)]
    await store.write([samples(ahead, company_id=company, name="ah_ahead")])
    await store.flush()
    expected = {
        "ah_ahead": (now + 120_000, 7.0),
        "ah_new": (now - 60_001, 2.0),
        "ah_old": (now - 7_200_003, 2.0),
        "ah_older": (now - 86_400_007, 2.0),
    }
    for since_ms, names in (
        (None, ["ah_ahead", "ah_new"]),
        (now - 7_200_003, ["ah_ahead", "ah_new", "ah_old"]),
        (now - 7_200_002, ["ah_ahead", "ah_new"]),
        (0, ["ah_ahead", "ah_new", "ah_old", "ah_older"]),
    ):
        found = await store.latest(company, "web-1", since_ms=since_ms)
        assert {sample.labels[0][1]: (sample.timestamp_ms, sample.value) for sample in found} == {
            name: expected[name] for name in names
        }


async def test_a_series_that_is_deleted_at_once_is_gone(store):
    """Only visible series are deleted, so what waits is shown first."""
    company = next(COMPANIES)
    await store.write([samples([(now_ms(), 1.0)], company_id=company)])
    assert await store.delete_server(company, "web-1") == 1
    await store.flush()
    assert await store.series(company) == []


async def test_a_deletion_takes_the_rollups_along_and_does_not_count_them(store):
    company, t = next(COMPANIES), now_ms()
    for name in ("ah_x", "ah_x:5m_sum", "ah_x:1h_count"):
        await store.write([samples([(t, 1.0)], company_id=company, name=name)])
    await store.flush()
    assert [info.labels[0][1] for info in await store.series(company)] == ["ah_x"]
    assert [one.labels[0][1] for one in await store.latest(company, "web-1")] == ["ah_x"]
    assert await store.delete_company(company) == 1
    for name in ("ah_x:5m_sum", "ah_x:1h_count"):
        assert not await store.range(company, "web-1", name, start_ms=t, end_ms=t, step_ms=1_000)


async def test_a_new_series_shows_by_itself_within_half_a_minute(store):
    """`flush` is for tests: nothing else calls it between a write and a query."""
    company = next(COMPANIES)
    await store.write([samples([(now_ms(), 1.0)], company_id=company)])
    with anyio.fail_after(30):
        while not await store.latest(company, "web-1"):
            await anyio.sleep(0.2)


# --- the check at the start


async def test_the_check_finds_nothing_wrong_however_often_it_runs(store):
    assert await store.check() == ()
    assert await store.check() == ()


async def test_a_redis_on_that_port_is_no_victoria_metrics(private_redis):
    url = f"http://127.0.0.1:{private_redis.port}"
    async with VictoriaMetricsStore(url=url) as store:
        with pytest.raises(TemporaryStoreError, match="or speaks no HTTP") as error:
            await store.ping()
    assert "see that it is VictoriaMetrics" in str(error.value)


async def test_what_the_check_writes_is_not_counted(victoria_metrics):
    metrics = PrometheusMetrics()
    async with VictoriaMetricsStore(url=victoria_metrics.url, metrics=metrics) as store:
        await store.check()
        written = metrics.registry.get_sample_value
        assert written("ahc_tsdb_samples_written_total") == 0
        await store.write([samples([(now_ms(), 1.0)], company_id=next(COMPANIES))])
        assert written("ahc_tsdb_samples_written_total") == 1


@pytest.mark.parametrize("protocol", ["import", "remote_write"])
async def test_the_check_warns_when_a_repeated_sample_counts_twice(start_service, protocol, caplog):
    """C6."""
    server = start_service(VictoriaMetricsServer, flags=["-dedup.minScrapeInterval=0s"])
    async with VictoriaMetricsStore(url=server.url, write_protocol=protocol) as store:
        [warning] = await store.check()
    assert "counts a sample that is written again once more" in warning
    assert "-dedup.minScrapeInterval=1ms" in warning
    assert warning in caplog.text


async def test_the_check_refuses_a_store_that_cuts_labels(start_service):
    """C4: such a store answers that all is well."""
    server = start_service(VictoriaMetricsServer, flags=["-maxLabelsPerTimeseries=20"])
    async with VictoriaMetricsStore(url=server.url) as store:
        with pytest.raises(PermanentStoreError, match="-maxLabelsPerTimeseries=64"):
            await store.check(timeout_seconds=20)


# --- deaths


@pytest.mark.fault
async def test_killed_and_restarted_it_takes_the_same_again_and_has_it_once(start_service):
    """C6: what came in the last seconds is lost by a kill, and may be written again."""
    server = start_service(VictoriaMetricsServer)
    company, t = next(COMPANIES), round_ms()
    batches = [
        samples([(t + n * 1_000 + k, float(n)) for k in range(5)], company_id=company)
        for n in range(100)
    ]
    async with VictoriaMetricsStore(url=server.url, step_seconds_min=1) as store:
        await store.write(batches[:40])
        await anyio.to_thread.run_sync(server.snapshot)
        await store.write(batches[40:70])
        await anyio.to_thread.run_sync(server.kill)
        for call in (
            store.ping,
            lambda: store.write(batches[70:]),
            lambda: store.latest(company, "web-1"),
            lambda: store.delete_company(company),
        ):
            with pytest.raises(TemporaryStoreError, match="cannot be reached"):
                await call()
        await anyio.to_thread.run_sync(server.start)
        await store.ping()
        await store.flush()
        assert await total(store, company, t) >= 200.0, "what a snapshot had is there"
        await store.write(batches)
        await store.flush()
        assert await total(store, company, t) == 500.0
        await anyio.to_thread.run_sync(server.restart)
        await store.flush()
        assert await total(store, company, t) == 500.0, "an orderly end loses nothing"


async def total(store, company, t):
    return await counted(store, company, t + 200_000, step_ms=300_000)


@pytest.mark.fault
async def test_a_store_that_hangs_is_temporary_within_the_time_allowed(start_service):
    server = start_service(VictoriaMetricsServer)
    async with VictoriaMetricsStore(url=server.url, timeout_seconds=0.5) as store:
        await store.ping()
        await anyio.to_thread.run_sync(server.pause)
        try:
            with pytest.raises(TemporaryStoreError, match=r"within 0\.5 s"):
                await store.write([samples([(now_ms(), 1.0)])])
        finally:
            await anyio.to_thread.run_sync(server.resume)
        await store.ping()


# --- who asks


async def test_basic_auth_is_what_the_real_server_wants(start_service):
    server = start_service(
        GuardedServer, flags=["-httpAuth.username=collector", "-httpAuth.password=pässword"]
    )
    async with VictoriaMetricsStore(
        url=server.url, username="collector", password="pässword"
    ) as store:
        assert await store.check() == ()
    async with VictoriaMetricsStore(url=server.url, username="collector", password="no") as store:
        with pytest.raises(TemporaryStoreError, match=r"401.*check the store's username"):
            await store.write([samples([(now_ms(), 1.0)])])


async def test_tls_needs_the_right_authority(start_service, certificate):
    server = start_service(
        TlsServer, flags=["-tls", f"-tlsCertFile={certificate}", f"-tlsKeyFile={certificate}"]
    )
    url = server.url.replace("http://", "https://")
    async with VictoriaMetricsStore(url=url, tls_ca_file=certificate) as store:
        await store.ping()
        await store.write([samples([(now_ms(), 1.0)])])
    async with VictoriaMetricsStore(url=url) as store:
        with pytest.raises(TemporaryStoreError, match="cannot be reached"):
            await store.ping()


def says_ok(url, **options):
    try:
        return httpx.get(f"{url}/health", **options).text == "OK"
    except httpx.HTTPError as error:
        raise OSError(str(error)) from error


class GuardedServer(VictoriaMetricsServer):
    def _answers(self):
        return says_ok(self.url, auth=("collector", "pässword"))


class TlsServer(VictoriaMetricsServer):
    def _answers(self):
        return says_ok(self.url.replace("http://", "https://"), verify=False)
