"""The rule file for vmalert: what it says, that vmalert takes it, and that it records the truth."""

import time
from functools import partial
from itertools import product

import anyio
import pytest

from ahcollector.store import Aggregate, MemoryStore
from ahcollector.store.victoria_metrics import VictoriaMetricsStore, rollup_rules
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.store import samples

# Not there where the package is tested alone.
yaml = pytest.importorskip("yaml")

AGGREGATES = ("sum", "count", "min", "max")
HOUR = 3_600_000
DAY = 24 * HOUR


def test_each_metric_has_sum_count_minimum_and_maximum_of_both_windows():
    text = rollup_rules(["cpu.percent", "ah_cpu_percent", "ah_memory"])
    groups = yaml.safe_load(text)["groups"]
    assert [(group["name"], group["interval"]) for group in groups] == [
        ("ah_rollups_5m", "5m"),
        ("ah_rollups_1h", "1h"),
    ]
    for group, (window, seconds) in zip(groups, (("5m", 300), ("1h", 3600)), strict=True):
        assert group["params"] == {"nocache": ["1"]}
        assert group["rules"] == [
            {
                "record": f"{name}:{window}_{how}",
                "expr": f"{how}_over_time({name}[{window}]) and on() (time() % {seconds} == 0)",
            }
            for name, how in product(("ah_cpu_percent", "ah_memory"), AGGREGATES)
        ]


@pytest.mark.parametrize("metrics", [[], [""], ["ah_x", ""]])
def test_no_name_is_no_rule(metrics):
    with pytest.raises(ValueError, match="none of them empty"):
        rollup_rules(metrics)


def test_no_name_can_be_more_than_a_name():
    text = rollup_rules(['x"\n  - record: evil', "1h", "é{}"])
    names = {rule["record"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
    assert {name.partition(":")[0] for name in names} == {
        "ah_x____- record: evil".replace("-", "_").replace(" ", "_").replace(":", "_"),
        "ah__1h",
        "ah____",
    }


@pytest.mark.service
@pytest.mark.usefixtures("victoria_metrics")
def test_vmalert_takes_the_file_and_would_not_take_any(tmp_path):
    vmalert = pytest.importorskip("testkit.vmalert").Vmalert()
    rules = tmp_path / "rollups.yml"
    rules.write_text(rollup_rules(["cpu_percent", "disk_used_bytes"]))
    vmalert.check(rules)
    rules.write_text(rollup_rules(["cpu_percent"]).replace("[5m]", "[5m"))
    with pytest.raises(ValueError, match="vmalert ended with"):
        vmalert.check(rules)


@pytest.mark.anyio
@pytest.mark.service
async def test_what_vmalert_records_answers_long_ranges_as_the_samples_would(
    start_service, tmp_path
):
    """Rollups over generated data, against the memory store that has all samples.

    The samples themselves are deleted before the question, so that only rollups can answer.
    """
    testkit = pytest.importorskip("testkit.victoria_metrics")
    server = start_service(testkit.VictoriaMetricsServer)
    vmalert = pytest.importorskip("testkit.vmalert").Vmalert()
    now = round(time.time() * 1000)
    start = (now - 60 * DAY) // DAY * DAY
    # Three hours each, two months, three weeks and a week and a day ago.
    begins = (start, now // DAY * DAY - 21 * DAY, now // DAY * DAY - 8 * DAY)
    points = [
        (begin + 30_000 * n, float((n * 37) % 101) + 0.25)
        for begin in begins
        for n in range(1, 361)
    ]
    batches = [
        samples(points, labels=(("core", "0"),)),
        samples([(at, -value) for at, value in points], labels=(("core", "1"),)),
        samples(points, company_id="bolt"),
    ]
    memory = MemoryStore(clock=FakeClock(now / 1000), retention_seconds=100 * 86_400.0)
    await memory.write(batches)
    rules = tmp_path / "rollups.yml"
    rules.write_text(rollup_rules(["cpu_percent"]))
    async with VictoriaMetricsStore(url=server.url) as store:
        await store.write(batches)
        await store.flush()
        for begin in begins:
            await anyio.to_thread.run_sync(
                partial(
                    vmalert.replay, rules, url=server.url, start_ms=begin, end_ms=begin + 3 * HOUR
                )
            )
        await store.flush()
        await store._http.post_form(
            "/api/v1/admin/tsdb/delete_series", {"match[]": '{__name__="ah_cpu_percent"}'}
        )
        for begin, step_ms, how in product(begins, (HOUR, DAY), Aggregate):
            asked = {
                "start_ms": begin,
                "end_ms": begin + 2 * DAY if begin == start else begin + 3 * HOUR,
                "step_ms": step_ms,
                "aggregate": how,
            }
            found = await store.range("acme", "web-1", "cpu_percent", **asked)
            expected = await memory.range("acme", "web-1", "cpu_percent", **asked)
            if how is Aggregate.LAST:
                assert found == [], "rollups have no newest value, and the samples are gone"
                continue
            assert [series.labels for series in found] == [series.labels for series in expected]
            for ours, theirs in zip(found, expected, strict=True):
                assert [t for t, _ in ours.points] == [t for t, _ in theirs.points], asked
                for (_, value), (_, wanted) in zip(ours.points, theirs.points, strict=True):
                    assert value == pytest.approx(wanted, rel=1e-9), asked
        assert await store.series("acme") == []
