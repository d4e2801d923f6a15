"""What VictoriaMetrics tells of itself: flags, and what it drops without telling who wrote it."""

import logging
from collections import Counter

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.errors import TemporaryStoreError
from ahcollector.metrics import NullMetrics
from ahcollector.store._store_flags import flag_warnings, read_bytes, read_retention_seconds
from ahcollector.store._victoria_page import DropWatch, read_page
from ahcollector.testing import FakeClock

OLD = b"""# of 1.79
flag{name="retentionPeriod", value="90d", is_set="true"} 1
flag{name="dedup.minScrapeInterval", value="1ms", is_set="true"} 1
flag{name="relabelConfig", value="/etc/a\\"b}.yml", is_set="true"} 1
vm_app_start_timestamp 1796085603
vm_rows_ignored_total{reason="big_timestamp"} 2
vm_rows_ignored_total{reason="small_timestamp"} 3
vm_rows_invalid_total{type="vmimport"} 4
vm_rows_invalid_total{type="influx"} 1
vm_hourly_series_limit_rows_dropped_total 5
vm_too_long_label_values_total 6
vm_too_long_label_names_total 7
vm_metrics_with_dropped_labels_total 8
vm_relabel_metrics_dropped_total 9
vm_rows{type="indexdb"} 1e+06
"""
NEW = b"""vm_app_start_timestamp 1796085603
vm_rows_ignored_total{reason="too_many_labels"} 2
vm_rows_ignored_total{reason="too_long_label_value"} 3
vm_rows_ignored_total{reason="too_long_label_name"} 4
vm_rows_ignored_total{reason="hourly_limit_exceeded"} 5
vm_hourly_series_limit_rows_dropped_total 5
vm_rows_ignored_total{reason="small_timestamp",path="/data"} 8
vm_rows_ignored_total{reason="invalid_raw_metric_name"} 6
vm_rows_ignored_total{reason="what nobody knows yet"} 1e3
"""


class Counting(NullMetrics):
    def __init__(self):
        self.counts = Counter()

    def inc(self, metric, amount=1.0, /, **labels):
        self.counts[(metric.name, *labels.values())] += amount


def test_flags_and_counts_are_read_by_version():
    page = read_page(OLD)
    assert page.flags == {
        "retentionPeriod": "90d",
        "dedup.minScrapeInterval": "1ms",
        "relabelConfig": '/etc/a\\"b}.yml',
    }
    assert page.dropped == {
        "in_future": 2,
        "too_old": 3,
        "invalid": 5,
        "hourly_limit": 5,
        "label_cut": 13,
        "labels_dropped": 8,
        "relabeled": 9,
    }
    assert read_page(NEW).dropped == {
        "labels_dropped": 2,
        "label_cut": 7,
        "hourly_limit": 5,
        "too_old": 8,
        "other": 1_006,
    }


@given(st.binary(max_size=200))
def test_another_page_is_no_page_and_never_breaks_the_reader(page):
    try:
        found = read_page(page)
    except ValueError:
        return
    assert found.started


@given(st.lists(st.text('vm_rows_ignored_total{}="\\ 1e9naif\n'), max_size=20))
def test_a_damaged_page_never_breaks_the_reader(lines):
    assert read_page(b"vm_app_start_timestamp 1\n" + "\n".join(lines).encode()).started == "1"


def page(start, **dropped):
    lines = [f"vm_app_start_timestamp {start}"]
    lines += [f'vm_rows_ignored_total{{reason="{name}"}} {n}' for name, n in dropped.items()]
    return read_page("\n".join(lines).encode())


class Pages:
    def __init__(self, *pages):
        self.pages = list(pages)
        self.asked = 0

    async def __call__(self):
        self.asked += 1
        found = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.anyio
async def test_what_rose_between_two_looks_is_counted_and_told(caplog):
    pages = Pages(
        page(1, small_timestamp=7),
        page(1, small_timestamp=9, nan_value=1),
        page(1, small_timestamp=9, nan_value=1),
        # Started again, and its counts with it.
        page(2, small_timestamp=9),
    )
    metrics = Counting()
    watch = DropWatch(page=pages, clock=FakeClock(), metrics=metrics)
    assert await watch.look() == {}, "what was dropped before is not ours to tell"
    assert await watch.look() == {"too_old": 2, "non_finite": 1}
    assert "2 too_old (older than -retentionPeriod)" in caplog.text
    assert await watch.look() == {}
    assert await watch.look() == {"too_old": 9}
    assert metrics.counts == {
        ("ahc_tsdb_silent_drops_total", "too_old"): 11,
        ("ahc_tsdb_silent_drops_total", "non_finite"): 1,
    }


@pytest.mark.anyio
async def test_a_page_that_cannot_be_had_is_told_once_and_the_watch_goes_on(caplog):
    caplog.set_level(logging.WARNING)
    away = TemporaryStoreError("away")
    pages = Pages(away, away, page(1, nan_value=1), page(1, nan_value=3), away, away)
    clock, metrics = FakeClock(), Counting()
    watch = DropWatch(page=pages, clock=clock, metrics=metrics)
    async with anyio.create_task_group() as tasks:

        async def run():
            await watch.run(interval_seconds=60)

        tasks.start_soon(run)
        await clock.run_for(5 * 60)
        tasks.cancel_scope.cancel()
    assert pages.asked == 6
    assert metrics.counts == {("ahc_tsdb_silent_drops_total", "non_finite"): 2}
    assert caplog.text.count("cannot be seen") == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [("10MB", 10_000_000), ("1KiB", 1_024), ("33554432", 33_554_432), ("1.5GiB", 3 << 29)],
)
def test_sizes(text, size):
    assert read_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-", "ten", "1XB", "1 MB", "-5", "1e5"])
def test_what_is_no_size_and_no_retention(text):
    assert read_bytes(text) is None
    assert read_retention_seconds(text) is None


@pytest.mark.parametrize(
    ("text", "days"), [("1", 31), ("90d", 90), ("36h", 1.5), ("2w", 14), ("100y", 36_500)]
)
def test_retentions(text, days):
    assert read_retention_seconds(text) == days * 86_400


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({}, []),
        ({"storage.maxHourlySeries": "0", "storage.maxDailySeries": "0"}, []),
        ({"storage.maxHourlySeries": "5"}, ["over 5 series in an hour"]),
        ({"storage.maxDailySeries": "5"}, ["over 5 series in a day"]),
        ({"precisionBits": "64"}, []),
        ({"precisionBits": "8"}, ["rounds values (-precisionBits=8)"]),
        ({"relabelConfig": "", "streamAggr.config": "[]"}, []),
        ({"relabelConfig": "x.yml"}, ["by -relabelConfig"]),
        ({"streamAggr.config": "x.yml"}, ["by -streamAggr.config"]),
        ({"retentionPeriod": "90d"}, []),
        (
            {"retentionPeriod": "1"},
            ["31 days (-retentionPeriod=1) and tsdb.retention_days says 90"],
        ),
        ({"retentionPeriod": "secret"}, []),
        ({"import.maxLineLen": "104857600", "maxInsertRequestSize": "33554432"}, []),
        ({"import.maxLineLen": "1MB"}, ["1000000 bytes at once (-import.maxLineLen)"]),
        ({"maxInsertRequestSize": "1MB"}, ["1000000 bytes at once (-maxInsertRequestSize)"]),
    ],
)
def test_a_flag_that_makes_it_drop_in_silence_is_told(flags, told):
    found = list(
        flag_warnings(
            flags,
            retention_seconds=90 * 86_400.0,
            line_bytes_max=8_000_000,
            body_bytes_max=32_064_000,
        )
    )
    assert len(found) == len(told)
    for warning, part in zip(found, told, strict=True):
        assert part in warning
