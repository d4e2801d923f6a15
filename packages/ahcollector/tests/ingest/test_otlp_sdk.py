"""A real OpenTelemetry SDK delivers to the door of OTLP, over HTTP.

Its exporter tries again at 429, 502, 503 and 504, honours Retry-After, and gives up when that would
take longer than its timeout (10 s unless told otherwise). It takes every other 2xx and 3xx for a
success and does not read ``partial_success``; other SDKs and the Collector log it.
"""

import logging
import math
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from otlp_exports import reply_of
from served_door import ServedDoor, testkit

from ahcollector.clock import SystemClock
from ahcollector.ingest import IngestLimits
from ahcollector.store.memory import MemoryStore

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

pytestmark = pytest.mark.service

WAIT_SECONDS = 30


class Door(ServedDoor):
    def latest(self):
        """{(name, labels without the tenant's): value} of what a store made of it holds last."""

        async def read():
            store = MemoryStore(clock=SystemClock())
            await store.write(self.world.bus.batches)
            return await store.latest("acme", "web-1", since_ms=0)

        found = {}
        for one in anyio.run(read):
            labels = dict(one.labels)
            assert (labels.pop("company_id"), labels.pop("server_id")) == ("acme", "web-1")
            found[labels.pop("__name__"), frozenset(labels.items())] = one.value
        return found


@pytest.fixture
def door(make_world):
    world = make_world(clock=SystemClock(), limits=IngestLimits(bus_full_retry_seconds=1.0))
    world.hub.active("agent-1", world.token)
    with Door(world, "/v1/metrics") as found:
        yield found


@pytest.fixture
def provider_to():
    made = []

    def provider(door, *, views=(), token=None, **exporter):
        to = OTLPMetricExporter(
            endpoint=door.url,
            headers={"Authorization": f"Bearer {token or door.world.token}"},
            **exporter,
        )
        made.append(
            MeterProvider(
                metric_readers=[PeriodicExportingMetricReader(to, math.inf)],  # when it is told to
                resource=Resource({"service.name": "shop", "service.instance.id": "pod-1"}),
                views=views,
            )
        )
        return made[-1]

    yield provider
    for one in made:
        one.shutdown()


def series(name, **labels):
    mine = {"job": "shop", "instance": "pod-1", "otel_scope_name": "shop.web", **labels}
    return name, frozenset(mine.items())


@pytest.mark.parametrize(
    "compression", [Compression.NoCompression, Compression.Gzip], ids=["plain", "gzip"]
)
def test_what_the_sdk_recorded_is_what_the_store_holds(door, provider_to, compression):
    provider = provider_to(
        door,
        compression=compression,
        views=[
            View(instrument_name="wait", aggregation=ExplicitBucketHistogramAggregation([1, 5]))
        ],
    )
    meter = provider.get_meter("shop.web")
    meter.create_gauge("load", unit="1").set(0.75)
    orders = meter.create_counter("orders", unit="{order}")
    orders.add(3, {"state": "open"})
    queue = meter.create_up_down_counter("queue.size", unit="By")
    queue.add(7, {"on.disk": True})
    queue.add(-9, {"on.disk": True})
    wait = meter.create_histogram("wait", unit="ms")
    for value in (0.5, 2, 2, 9):
        wait.record(value)
    meter.create_observable_gauge(
        "temp", [lambda _: [Observation(-3.5, {"zone": "ü"})]], unit="Cel"
    )
    meter.create_observable_counter("cpu.time", [lambda _: [Observation(12.25)]], unit="s")
    meter.create_observable_up_down_counter("open", [lambda _: [Observation(4)]])
    assert provider.force_flush()
    orders.add(2, {"state": "open"})
    wait.record(1)
    assert provider.force_flush()

    assert {answer.status for answer in door.answers} == {200}
    assert all(answer.content == b"" for answer in door.answers)
    assert door.latest() == {
        series("ah_load_ratio"): 0.75,
        series("ah_orders_total", state="open"): 5.0,
        series("ah_queue_size_bytes", on_disk="true"): -2.0,
        series("ah_wait_milliseconds_bucket", le="1.0"): 2.0,
        series("ah_wait_milliseconds_bucket", le="5.0"): 4.0,
        series("ah_wait_milliseconds_bucket", le="+Inf"): 5.0,
        series("ah_wait_milliseconds_sum"): 14.5,
        series("ah_wait_milliseconds_count"): 5.0,
        series("ah_temp_celsius", zone="ü"): -3.5,
        series("ah_cpu_time_seconds_total"): 12.25,
        series("ah_open"): 4.0,
    }


def test_c8_a_503_in_the_middle_is_tried_again_and_loses_nothing(door, provider_to):
    provider = provider_to(door)
    counter = provider.get_meter("shop.web").create_counter("orders")
    counter.add(1)
    assert provider.force_flush()
    counter.add(1)
    door.world.bus.full = True
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(provider.force_flush)
        testkit.wait_until(lambda: len(door.answers) == 2, what="the answer 503")
        door.world.bus.full = False
        assert flushed.result(WAIT_SECONDS)
    assert [answer.status for answer in door.answers] == [200, 503, 200]
    assert door.answers[1].headers[b"retry-after"] == b"1"
    assert door.latest() == {series("ah_orders_total"): 2.0}


def test_what_is_refused_is_told_and_the_rest_is_stored(door, provider_to):
    provider = provider_to(
        door,
        preferred_temporality={
            Counter: AggregationTemporality.DELTA,
            Histogram: AggregationTemporality.CUMULATIVE,
        },
        views=[View(instrument_name="wait", aggregation=ExponentialBucketHistogramAggregation())],
    )
    meter = provider.get_meter("shop.web")
    counter = meter.create_counter("orders")
    counter.add(1, {"n": 1})
    counter.add(1, {"n": 2})
    meter.create_histogram("wait").record(1)
    meter.create_gauge("load").set(1)
    assert provider.force_flush()
    partial = reply_of(door.answers[0]).partial_success
    assert partial.rejected_data_points == 3
    assert "metric 'orders': delta temporality" in partial.error_message
    assert "metric 'wait': exponential histograms are not stored" in partial.error_message
    assert door.latest() == {series("ah_load"): 1.0}


@pytest.mark.parametrize(("fault", "status"), [("unknown", 401), ("revoked", 403)])
def test_a_token_that_is_no_good_is_in_the_sdks_log(door, provider_to, caplog, fault, status):
    if fault == "revoked":
        door.world.hub.revoke("agent-1")
    provider = provider_to(door, token="nobody" if fault == "unknown" else None)
    provider.get_meter("shop.web").create_gauge("load").set(1)
    with caplog.at_level(logging.ERROR, "opentelemetry"):
        provider.force_flush()
        assert f"code: {status}" in caplog.text
    assert not door.world.bus.batches
