"""Registries of the real prometheus_client, read as a scrape reads them."""

import math
import os
import subprocess
import sys
import textwrap

import prometheus_client as prom
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

import ahwal.prometheus
from ahwal import DropReason, MemoryQueue, Sender
from ahwal.agent import Collector


def flat(samples):
    return {(s.name, *sorted(s.labels.items())): s.value for s in samples}


def samples_of(registry, **options):
    return flat(ahwal.prometheus.collector(registry, **options).collect())


def filled_registry():
    registry = prom.CollectorRegistry()
    prom.Counter("jobs", "", ["queue"], registry=registry).labels("mail").inc(3)
    prom.Gauge("heat", "", registry=registry).set(-1.5)
    histogram = prom.Histogram("wait", "", buckets=(0.1, 1), unit="seconds", registry=registry)
    histogram.observe(0.1)
    histogram.observe(5)
    prom.Summary("size", "", unit="bytes", registry=registry).observe(7)
    prom.Info("build", "", registry=registry).info({"version": "1.2"})
    prom.Enum("phase", "", states=["idle", "busy"], registry=registry).state("busy")
    return registry


def test_each_kind_of_metric_becomes_the_series_of_a_scrape():
    assert samples_of(filled_registry()) == {
        ("jobs_total", ("queue", "mail")): 3,
        ("heat",): -1.5,
        ("wait_seconds_bucket", ("le", "0.1")): 1,
        ("wait_seconds_bucket", ("le", "1.0")): 1,
        ("wait_seconds_bucket", ("le", "+Inf")): 2,
        ("wait_seconds_sum",): 5.1,
        ("wait_seconds_count",): 2,
        ("size_bytes_sum",): 7,
        ("size_bytes_count",): 1,
        ("build_info", ("version", "1.2")): 1,
        ("phase", ("phase", "idle")): 0,
        ("phase", ("phase", "busy")): 1,
    }


def test_the_samples_are_those_of_the_text_format():
    registry = filled_registry()
    text = prom.generate_latest(registry).decode()
    scraped = flat(s for family in text_string_to_metric_families(text) for s in family.samples)
    # The text format shows each creation time as a gauge of its own.
    without_created = {key: v for key, v in scraped.items() if not key[0].endswith("_created")}
    assert samples_of(registry) == without_created


def test_creation_times_come_only_when_asked_for_and_a_gauge_of_that_name_always():
    registry = prom.CollectorRegistry()
    prom.Counter("jobs", "", registry=registry)
    prom.Gauge("files_created", "", registry=registry).set(4)
    assert set(samples_of(registry)) == {("jobs_total",), ("files_created",)}
    assert set(samples_of(registry, created=True)) == {
        ("jobs_total",),
        ("jobs_created",),
        ("files_created",),
    }


@given(st.lists(st.floats(min_value=-1e6, max_value=1e6), max_size=20))
def test_a_histogram_is_cumulative_and_its_last_bucket_is_its_count(values):
    registry = prom.CollectorRegistry()
    histogram = prom.Histogram("h", "", buckets=(-10, 0, 10), registry=registry)
    for value in values:
        histogram.observe(value)
    found = samples_of(registry)
    for bound in ("-10.0", "0.0", "10.0", "+Inf"):
        expected = sum(value <= float(bound) for value in values)
        assert found[("h_bucket", ("le", bound))] == expected


def test_custom_collectors_may_give_anything_a_scrape_may_have():
    class Custom:
        def collect(self):
            yield GaugeMetricFamily("g", "", value=math.nan)
            counter = CounterMetricFamily("c", "", labels=["a"])
            counter.add_metric(["x"], 10**400, created=1.0, timestamp=12.0)
            yield counter
            yield HistogramMetricFamily("h", "", buckets=[("1.0", 1), ("+Inf", 2)], sum_value=3)
            yield GaugeHistogramMetricFamily("gh", "", buckets=[("+Inf", 2)], gsum_value=3)

    registry = prom.CollectorRegistry()
    registry.register(Custom())
    found = samples_of(registry)
    assert math.isnan(found.pop(("g",)))
    assert found[("c_total", ("a", "x"))] == math.inf
    assert found[("gh_gsum",)] == 3
    assert ("c_created", ("a", "x")) not in found


def test_it_is_a_collector_with_a_name_and_the_default_registry_is_taken_at_the_call():
    made = ahwal.prometheus.collector()
    assert isinstance(made, Collector)
    assert made.name == "prometheus"
    assert made.registry is prom.REGISTRY
    assert ahwal.prometheus.collector(prom.CollectorRegistry(), "shop").name == "shop"


WORKER = """
import sys
import prometheus_client as prom
requests = prom.Counter("requests", "", ["path"])
seconds = prom.Histogram("seconds", "", buckets=(1,))
busy = prom.Gauge("busy", "", multiprocess_mode="livesum")
for _ in range(int(sys.argv[1])):
    requests.labels("/").inc()
    seconds.observe(0.5)
busy.set(1)
"""


def test_in_multiprocess_mode_the_workers_are_added_up(tmp_path):
    """A prefork server's workers write files; one process reads them all."""
    for count in (2, 3):
        subprocess.run(
            [sys.executable, "-c", WORKER, str(count)],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            check=True,
        )
    registry = prom.CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))
    assert samples_of(registry) == {
        ("requests_total", ("path", "/")): 5,
        ("seconds_bucket", ("le", "1.0")): 5,
        ("seconds_bucket", ("le", "+Inf")): 5,
        ("seconds_sum",): 2.5,
        ("seconds_count",): 5,
        ("busy",): 2,
    }


def run(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )


def test_the_package_alone_imports_no_prometheus_client():
    done = run("import sys, ahwal, ahwal.agent; print('prometheus_client' in sys.modules)")
    assert done.stdout == "False\n"


def test_without_the_extra_the_error_says_what_to_install():
    done = run("import sys; sys.modules['prometheus_client'] = None; import ahwal.prometheus")
    assert "pip install 'ahwal[prometheus]'" in done.stderr


@pytest.mark.parametrize("value", [None, "text"])
def test_a_value_that_is_no_number_costs_itself_and_not_the_registry(value):
    class Broken:
        def collect(self):
            yield GaugeMetricFamily("g", "", value=1)
            family = GaugeMetricFamily("b", "", labels=[])
            family.add_metric([], value)
            yield family

    registry = prom.CollectorRegistry()
    registry.register(Broken())
    queue = MemoryQueue(max_bytes=1 << 20)
    given = ahwal.prometheus.collector(registry).collect()
    enqueued = Sender(queue=queue, transport=None).append(given)
    assert (enqueued.points, enqueued.dropped) == (1, {DropReason.BAD_SAMPLE: 1})
