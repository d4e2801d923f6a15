"""The exporter between the real SDK, a real queue on disk and a real HTTP server."""

import logging
import subprocess
import sys
import textwrap
import threading
import time

import anyio
import attrs
import pytest
from anyio import to_thread
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExportResult,
    PeriodicExportingMetricReader,
)

import ahwal.opentelemetry
from ahwal import Agent, ConfigError, NotEnrolledError, Sample, WALWriteError
from ahwal.agent._disk import open_wal
from ahwal.opentelemetry import AhwalMetricExporter, Refused
from ahwal.testing import ScriptedAnswer, ScriptedCollector, refuse

SUCCESS, FAILURE = MetricExportResult.SUCCESS, MetricExportResult.FAILURE


@pytest.fixture
def exporter(config):
    made = AhwalMetricExporter(config)
    yield made
    made.shutdown()


def arrived(collector):
    return {
        (s.name, point.ts_ms, point.value)
        for batch in collector.batches()
        for s in batch.series
        for point in s.points
    }


def law_holds(agent):
    status = agent.status().sender
    return status.produced + status.inherited == (
        status.delivered + sum(status.dropped.values()) + status.queued
    )


def time_of(data):
    metric = data.resource_metrics[0].scope_metrics[0].metrics[0]
    return metric.data.data_points[0].time_unix_nano // 1_000_000


def test_what_the_sdk_exports_arrives_with_its_time_and_labels(sdk, exporter, collector):
    sdk.meter.create_counter("orders").add(3)
    data = sdk.data()
    assert exporter.export(data) is SUCCESS
    assert exporter.force_flush(5_000)
    assert ("orders_total", time_of(data), 3.0) in arrived(collector)
    series = next(s for b in collector.batches() for s in b.series if s.name == "orders_total")
    assert {pair.name: pair.value for pair in series.labels} == {
        "job": "shop",
        "otel_scope_name": "tests",
    }
    assert law_holds(exporter.agent)


def test_success_means_that_the_disk_has_it(sdk, exporter, config, collector):
    collector.always(refuse(503, "unavailable"))
    sdk.meter.create_counter("orders").add(3)
    assert exporter.export(sdk.data()) is SUCCESS
    assert not exporter.force_flush(50)
    exporter.shutdown()
    with open_wal(config) as queue:
        assert queue.stats().batches >= 1


def test_failure_means_that_the_disk_does_not_have_it(sdk, config, collector):
    """W8, W10: the disk is full, or its sync fails."""

    class Full:
        def __init__(self, queue):
            self._queue = queue

        def append(self, data):
            raise WALWriteError("no space left")

        def __getattr__(self, name):
            return getattr(self._queue, name)

    sdk.meter.create_counter("orders").add(3)
    with Agent(config, [], open_queue=lambda: Full(open_wal(config))) as agent:
        exporter = AhwalMetricExporter(agent)
        assert exporter.export(sdk.data()) is FAILURE
        # The collector is there, so that it arrives from memory all the same.
        assert exporter.force_flush(5_000)
    assert "orders_total" in {name for name, _, _ in arrived(collector)}


def test_it_asks_the_sdk_for_cumulative_values(exporter):
    preferred = exporter._preferred_temporality
    assert set(preferred.values()) == {AggregationTemporality.CUMULATIVE}
    # The periodic reader takes it from there, whatever the SDK's default is.
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    assert set(reader._instrument_class_temporality.values()) == {AggregationTemporality.CUMULATIVE}
    reader.shutdown()


def test_refused_points_are_counted_and_told_of_once(make_sdk, exporter, collector, caplog):
    sdk = make_sdk(preferred_temporality={Counter: AggregationTemporality.DELTA})
    counter = sdk.meter.create_counter("orders")
    for _ in range(3):
        counter.add(1)
        assert exporter.export(sdk.data()) is FAILURE  # there was nothing but deltas in it
    assert exporter.refused == {Refused.DELTA: 3, Refused.DUPLICATE: 0, Refused.UNKNOWN_KIND: 0}
    warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len([w for w in warnings if "delta temporality" in w]) == 1
    sdk.meter.create_up_down_counter("items").add(1)
    counter.add(1)
    assert exporter.export(sdk.data()) is SUCCESS


def test_a_value_that_is_not_finite_costs_itself_only(sdk, exporter, collector):
    """C3."""
    for _ in range(2):
        sdk.meter.create_counter("bad").add(1.7e308)
    sdk.meter.create_gauge("good").set(1)
    assert exporter.export(sdk.data()) is SUCCESS
    assert exporter.force_flush(5_000)
    assert exporter.agent.status().sender.dropped["not_finite"] == 1
    assert "good" in {name for name, _, _ in arrived(collector)}


def test_after_the_shutdown_exports_fail_and_a_second_shutdown_does_nothing(sdk, exporter):
    exporter.shutdown()
    exporter.shutdown()
    sdk.meter.create_counter("orders").add(1)
    assert exporter.export(sdk.data()) is FAILURE
    assert not exporter.force_flush(10)


def test_flush_and_shutdown_end_in_time_though_the_collector_hangs(sdk, config, caplog):
    """W22."""
    with ScriptedCollector() as black_hole:
        black_hole.always(ScriptedAnswer(delay_seconds=0.9))
        exporter = AhwalMetricExporter(
            attrs.evolve(config, collector_url=black_hole.url, shutdown_flush_seconds=10)
        )
        sdk.meter.create_counter("orders").add(1)
        assert exporter.export(sdk.data()) is SUCCESS
        black_hole.wait_for(1)
        assert not exporter.force_flush(50)
        exporter.shutdown(timeout=50)  # as the SDK's periodic reader calls it
        assert not exporter.agent.join(0)
        assert "what is queued is on disk" in caplog.text
        assert exporter.agent.join(10)


def test_many_threads_export_at_once(make_sdk, exporter, collector):
    sdks = [make_sdk(resource={"service.name": f"s{n}"}) for n in range(4)]
    results = []

    def work(sdk):
        counter = sdk.meter.create_counter("orders")
        for _ in range(5):
            counter.add(1)
            results.append(exporter.export(sdk.data()))

    threads = [threading.Thread(target=work, args=(sdk,)) for sdk in sdks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [SUCCESS] * 20
    assert exporter.force_flush(10_000)
    found = {
        (pair.value, point.value)
        for batch in collector.batches()
        for s in batch.series
        for pair in s.labels
        if pair.name == "job"
        for point in s.points
    }
    assert found == {(f"s{n}", float(v)) for n in range(4) for v in range(1, 6)}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_it_uses_an_agent_that_runs_in_an_event_loop(sdk, config, collector):
    agent = Agent(config, [])
    exporter = AhwalMetricExporter(agent)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=200)
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run)
        provider.get_meter("t").create_counter("orders").add(1)
        await to_thread.run_sync(provider.force_flush)
        await to_thread.run_sync(provider.shutdown)
        # It is not the exporter's own, and goes on.
        assert (await to_thread.run_sync(lambda: agent.enqueue([Sample("mine", 1)]))).on_disk
        assert await to_thread.run_sync(agent.flush, 5.0)
        agent.stop()
    assert {"orders_total", "mine"} <= {name for name, _, _ in arrived(collector)}


def test_the_own_agent_may_have_collectors(sdk, config, collector):
    exporter = AhwalMetricExporter(config, [lambda: [Sample("mine", 1)]])
    deadline = time.monotonic() + 5
    while "mine" not in {name for name, _, _ in arrived(collector)}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    exporter.shutdown()
    with pytest.raises(ConfigError, match="give it to yours"):
        AhwalMetricExporter(exporter.agent, [list])


def test_without_an_identity_the_constructor_says_so(config, tmp_path):
    with pytest.raises(NotEnrolledError):
        AhwalMetricExporter(attrs.evolve(config, state_dir=tmp_path / "empty"))


def run(code):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_package_alone_imports_no_opentelemetry():
    done = run("import sys, ahwal, ahwal.agent; print('opentelemetry' in sys.modules)")
    assert done.stdout == "False\n"


def test_without_the_extra_the_error_says_what_to_install():
    done = run("import sys; sys.modules['opentelemetry'] = None; import ahwal.opentelemetry")
    assert "pip install 'ahwal[opentelemetry]'" in done.stderr


def test_a_program_that_just_ends_leaves_its_data_on_disk(config, collector):
    """No shutdown is called; the SDK does at the interpreter's exit."""
    done = run(
        f"""
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from ahwal import AgentConfig
        from ahwal.opentelemetry import AhwalMetricExporter

        exporter = AhwalMetricExporter(
            AgentConfig(collector_url="http://127.0.0.1:9", state_dir={config.state_dir!r})
        )
        provider = MeterProvider(metric_readers=[PeriodicExportingMetricReader(exporter)])
        provider.get_meter("t").create_counter("orders").add(5)
        """
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    exporter = AhwalMetricExporter(config)
    assert exporter.force_flush(5_000)
    exporter.shutdown()
    assert ("orders_total", 5.0) in {(name, value) for name, _, value in arrived(collector)}


def test_the_names_are_public():
    assert ahwal.opentelemetry.DEFAULT_RESOURCE_LABELS == {"service.name": "job"}
