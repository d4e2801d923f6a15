"""No point is lost across an outage and a restart, whichever way the process ended.

A child process runs the real SDK with a periodic reader. It tells what `export` returned SUCCESS
for, point by point, on its standard output; all of that must arrive at a real HTTP server, with the
values and the times of the SDK.
"""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from attrs import evolve

from ahwal.opentelemetry import AhwalMetricExporter
from ahwal.testing import ScriptedCollector, refuse

CHILD_SECONDS_MAX = 40
CHILD = """
import json, sys, threading
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from ahwal import AgentConfig
from ahwal.opentelemetry import AhwalMetricExporter

class Telling(AhwalMetricExporter):
    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        result = super().export(metrics_data, timeout_millis, **kwargs)
        for resource in metrics_data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for p in metric.data.data_points:
                        value = p.value if hasattr(p, "value") else p.count
                        tell(metric.name, p.time_unix_nano // 1_000_000, value, result.name)
        return result

def tell(*what):
    print(json.dumps(what), flush=True)

url, state_dir, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
exporter = Telling(AgentConfig(collector_url=url, state_dir=state_dir, shutdown_flush_seconds=1))
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=10)
provider = MeterProvider(metric_readers=[reader])
meter = provider.get_meter("child")
orders, wait = meter.create_counter("orders"), meter.create_histogram("wait")
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
number = first
while not stop.wait(0.005):
    orders.add(1 if number > first else first)
    wait.record(number)
    number += 1
provider.shutdown()
s = exporter.agent.status().sender
tell("law", s.produced + s.inherited, s.delivered + sum(s.dropped.values()) + s.queued, "END")
"""


class Child:
    """A program with the SDK, and what it told."""

    def __init__(self, url, config, first):
        self.told = []
        self._enough = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, config.state_dir, str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # A child that hangs must not hold the run.
        self._watchdog = threading.Timer(CHILD_SECONDS_MAX, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            # A line that a kill cut has no end; what it was to tell was kept, but not told.
            if line.endswith("\n"):
                with self._enough:
                    self.told.append(tuple(json.loads(line)))
                    self._enough.notify_all()

    def wait_for(self, count):
        with self._enough:
            assert self._enough.wait_for(lambda: len(self.told) >= count, timeout=20)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self._end()

    def end(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self._end()
        assert self.process.returncode == 0

    def _end(self):
        self.process.wait(CHILD_SECONDS_MAX)
        self._watchdog.cancel()
        self._reader.join(20)
        self.process.stdin.close()
        self.process.stdout.close()

    def kept(self):
        return {(name, at, value) for name, at, value, result in self.told if result == "SUCCESS"}


def arrived(batches):
    """What arrived in these batches, under the SDK's names."""
    names = {"orders_total": "orders", "wait_count": "wait"}
    return {
        (names[series.name], point.ts_ms, point.value)
        for batch in batches
        for series in batch.series
        if series.name in names
        for point in series.points
    }


@pytest.mark.fault
def test_the_sdks_points_survive_kill_9_a_dead_collector_and_an_ordinary_restart(config):
    """W21, W26, and the promise of ahwal[opentelemetry]."""
    kept = set()
    with ScriptedCollector() as failing:
        failing.always(refuse(503, "unavailable"))
        for first in (1, 1001):
            child = Child(failing.url, config, first)
            child.wait_for(20)
            child.kill()
            kept |= child.kept()
        port, url = failing.port, failing.url
    # Nobody listens any more.
    child = Child(url, config, 2001)
    child.wait_for(20)
    with ScriptedCollector(port=port) as collector:
        child.wait_for(len(child.told) + 20)
        child.end()
        kept |= child.kept()
        *_, (_, before, after, _) = child.told
        assert before == after > 0
        exporter = AhwalMetricExporter(evolve(config, collector_url=url))
        assert exporter.force_flush(20_000)
        exporter.shutdown()
        status = exporter.agent.status().sender
        assert status.produced + status.inherited == status.delivered
        assert not status.queued
        found = arrived(collector.batches())
    assert len(kept) >= 60
    assert not kept - found


def test_within_one_process_an_outage_and_a_restart_lose_nothing(make_sdk, config, collector):
    kept = set()
    collector.always(refuse(503, "unavailable", retry_after="0"))
    for round_number in range(3):
        sdk = make_sdk()
        exporter = AhwalMetricExporter(config)
        counter = sdk.meter.create_counter("orders")
        for value in range(1, 4):
            counter.add(1)
            data = sdk.data()
            point = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0]
            assert exporter.export(data).name == "SUCCESS"
            kept.add(("orders", point.time_unix_nano // 1_000_000, float(value)))
        if round_number == 2:
            collector.always(None)
            known = len(collector.batches())
            assert exporter.force_flush(10_000)
        status = exporter.agent.status().sender
        lost = sum(status.dropped.values())
        assert status.produced + status.inherited == status.delivered + lost + status.queued
        assert lost == 0
        exporter.shutdown()
    assert kept <= arrived(collector.batches()[known:])
