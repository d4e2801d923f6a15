"""vmalert and VictoriaMetrics, both real, against the same sums done naively in Python."""

import itertools
import json
import math
import random
import time

import anyio
import httpx
import pytest

from ahcollector.store import Aggregate
from ahcollector.store.victoria_metrics import VictoriaMetricsStore, rollup_rules
from ahcollector.testing._contracts.store import samples

pytestmark = [pytest.mark.anyio, pytest.mark.service]

# Not there where the package is tested alone.
VictoriaMetricsServer = pytest.importorskip("testkit.victoria_metrics").VictoriaMetricsServer
Vmalert = pytest.importorskip("testkit.vmalert").Vmalert

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WINDOWS = {"5m": 5 * MINUTE, "1h": HOUR}
NAIVE = {"sum": math.fsum, "count": len, "min": min, "max": max}


def generated(begin, *, seed=9):
    """Two hours and a half of several companies' servers, as {(company, server, labels): points}.

    Some have all cycles, some have gaps of whole windows; one has samples at the very edges of
    windows, a millisecond after them, and nothing else.
    """
    rng = random.Random(seed)
    found = {}
    for company, server in itertools.product(("acme", "bolt", "c.orp"), ("web-1", "db:2")):
        for labels in ((), (("mount", '/a "b"\\'),)):
            cycle = rng.choice([10_000, 30_000, 60_000])
            times = range(begin + rng.randrange(1, cycle), begin + 150 * MINUTE, cycle)
            gap = begin + rng.randrange(1, 20) * 5 * MINUTE
            found[company, server, labels] = [
                (at, rng.randrange(-(10**6), 10**6) / 100)
                for at in times
                if labels or not gap < at <= gap + 15 * MINUTE
            ]
    edges = [begin + n * 5 * MINUTE + more for n in range(30) for more in (0, 1)]
    found["edge", "e", ()] = [(at, float(n)) for n, at in enumerate(edges)]
    return found


def naive(points, width, first, last):
    """Each window's aggregates, by the time it ends at: samples in (end - width, end]."""
    result = {}
    for end in range(-(-first // width) * width, last + 1, width):
        values = [value for at, value in points if end - width < at <= end]
        if values:
            result[end] = {how: float(function(values)) for how, function in NAIVE.items()}
    return result


def stored(server, name):
    """Every rollup of a metric as it is stored: {(window, aggregate, labels): {time: value}}."""
    answer = httpx.get(
        f"{server.url}/api/v1/export",
        params={"match[]": f'{{__name__=~"{name}:.*"}}', "reduce_mem_usage": "1"},
        timeout=30,
    )
    found = {}
    for line in answer.text.splitlines():
        row = json.loads(line)
        window, how = row["metric"].pop("__name__").removeprefix(f"{name}:").split("_")
        key = window, how, tuple(sorted(row["metric"].items()))
        for at, value in zip(row["timestamps"], row["values"], strict=True):
            assert at not in found.setdefault(key, {}), "a window was recorded twice"
            found[key][at] = value
    return found


async def test_every_window_of_every_series_is_recorded_once_and_right(start_service, tmp_path):
    server = start_service(VictoriaMetricsServer)
    begin = round(time.time() * 1000) // DAY * DAY - 40 * DAY
    data = generated(begin)
    rules = tmp_path / "rollups.yml"
    rules.write_text(rollup_rules(["load"]))
    async with VictoriaMetricsStore(url=server.url) as store:
        await store.write(
            [
                samples(points, company_id=company, server_id=web, name="ah_load", labels=labels)
                for (company, web, labels), points in data.items()
            ]
        )
        await store.flush()
        last = begin + 3 * HOUR
        vmalert = Vmalert()
        await anyio.to_thread.run_sync(
            lambda: vmalert.replay(rules, url=server.url, start_ms=begin, end_ms=last)
        )
        await store.flush()

        found = stored(server, "ah_load")
        expected = {}
        for (company, web, labels), points in data.items():
            own = tuple(sorted((("company_id", company), ("server_id", web), *labels)))
            for window, width in WINDOWS.items():
                for end, values in naive(points, width, begin, last).items():
                    for how, value in values.items():
                        expected.setdefault((window, how, own), {})[end] = value
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            assert found[key] == pytest.approx(values, rel=1e-9, abs=1e-9), key

        # Averages over two hours, of hours that have not the same number of samples.
        for (company, web, labels), points in data.items():
            series = await store.range(
                company,
                web,
                "load",
                start_ms=begin + 2 * HOUR,
                end_ms=last,
                step_ms=2 * HOUR,
                aggregate=Aggregate.AVG,
            )
            [average] = [one.points for one in series if one.labels[3:] == labels]
            values = [value for at, value in points if begin < at <= begin + 2 * HOUR]
            assert average[0][0] == begin + 2 * HOUR
            assert average[0][1] == pytest.approx(math.fsum(values) / len(values), rel=1e-9)


# --- from what a range is answered

LAYERS = {"ah_x": 1.0, "ah_x:5m_max": 5.0, "ah_x:1h_max": 60.0}


async def filled(store, names, now, factor=1.0):
    """Give each layer a value of its own, one an hour for 61 days."""
    times = range(now // HOUR * HOUR - 61 * DAY, now, HOUR)
    for name in names:
        points = [(at, LAYERS[name] * factor) for at in times]
        await store.write([samples(points, name=name)])
    await store.flush()


async def answer(store, now, *, days, step_ms):
    """The value that one step has, which tells where it came from."""
    start = now // HOUR * HOUR - days * DAY
    found = await store.range(
        "acme",
        "web-1",
        "x",
        start_ms=start,
        end_ms=start + step_ms,
        step_ms=step_ms,
        aggregate=Aggregate.MAX,
    )
    values = {value for series in found for _, value in series.points}
    assert len(values) <= 1
    return values.pop() if values else None


async def test_the_age_of_a_range_chooses_its_rollups_and_samples_are_the_last_resort(
    start_service,
):
    server = start_service(VictoriaMetricsServer)
    now = round(time.time() * 1000)
    async with VictoriaMetricsStore(url=server.url) as store:
        await filled(store, LAYERS, now)
        for days, step_ms, expected in (
            (60, HOUR, 60.0),
            (60, DAY, 60.0),
            (60, 5 * MINUTE, 5.0),
            (60, 30_000, 1.0),
            (20, DAY, 5.0),
            (20, 5 * MINUTE, 5.0),
            (20, 5 * MINUTE - 1, 1.0),
            (6, HOUR, 1.0),
        ):
            found = await answer(store, now, days=days, step_ms=step_ms)
            assert found == expected, (days, step_ms)
        for gone in ("ah_x:1h_max", "ah_x:5m_max"):
            await store._http.post_form(
                "/api/v1/admin/tsdb/delete_series", {"match[]": f'{{__name__="{gone}"}}'}
            )
            assert await answer(store, now, days=60, step_ms=HOUR) == 1.0
        assert await answer(store, now, days=20, step_ms=HOUR) == 1.0


async def test_rollups_of_an_hour_are_asked_of_the_long_store_alone(start_service):
    near, far = start_service(VictoriaMetricsServer), start_service(VictoriaMetricsServer)
    now = round(time.time() * 1000)
    async with (
        VictoriaMetricsStore(url=near.url, long_url=far.url) as store,
        VictoriaMetricsStore(url=far.url) as beside,
    ):
        await filled(store, LAYERS, now)
        # Nothing there: the samples answer, and not the rollups of the near one.
        assert await answer(store, now, days=60, step_ms=HOUR) == 1.0
        await filled(beside, ["ah_x:1h_max"], now, factor=10.0)
        assert await answer(store, now, days=60, step_ms=HOUR) == 600.0
        assert await answer(store, now, days=20, step_ms=HOUR) == 5.0
        await anyio.to_thread.run_sync(far.stop)
        assert await answer(store, now, days=20, step_ms=HOUR) == 5.0
        await anyio.to_thread.run_sync(far.start)
        assert await store.delete_company("acme") == 1
        assert await answer(store, now, days=60, step_ms=HOUR) is None


async def test_eleven_thousand_points_are_answered_and_no_more(start_service):
    server = start_service(VictoriaMetricsServer)
    now = round(time.time() * 1000)
    step = 30_000
    async with VictoriaMetricsStore(url=server.url) as store:
        start = now - 10_999 * step
        await store.write([samples([(start + n * step, float(n)) for n in range(11_000)])])
        await store.flush()
        asked = {"start_ms": start, "end_ms": now, "step_ms": step}
        [series] = await store.range("acme", "web-1", "cpu_percent", **asked)
        assert series.points == tuple((start + n * step, float(n)) for n in range(11_000))
        for refused in ({"start_ms": start - step}, {"step_ms": step - 1}, {"end_ms": now + step}):
            with pytest.raises(ValueError, match=r"at most 11000|at least 30000"):
                await store.range("acme", "web-1", "cpu_percent", **{**asked, **refused})
