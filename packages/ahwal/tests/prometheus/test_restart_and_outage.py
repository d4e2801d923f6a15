"""No collected value of a registry is lost across an outage, a kill and a restart.

A child process runs an agent over a real registry, and tells each batch that the disk has.
"""

import json
import os
import signal
import subprocess
import sys
import threading

import anyio
import prometheus_client as prom
import pytest

import ahwal.prometheus
from ahwal import Agent, AgentConfig, enroll
from ahwal.testing import ScriptedCollector, refuse

CHILD_SECONDS_MAX = 40
CHILD = """
import json, sys, threading
import prometheus_client
import ahwal.prometheus
from ahwal import Agent, AgentConfig

def tell(appended):
    values = {s.name: s.value for s in appended.samples}
    if "jobs_total" in values:
        print(json.dumps([appended.collected_at_ms, values["jobs_total"]]), flush=True)

registry = prometheus_client.CollectorRegistry()
jobs = prometheus_client.Counter("jobs", "", registry=registry)
config = AgentConfig(
    collector_url=sys.argv[1], state_dir=sys.argv[2], interval_seconds=1,
    allow_short_interval=True, shutdown_flush_seconds=1,
)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
with Agent(config, [ahwal.prometheus.collector(registry)], on_appended=tell) as agent:
    while not ended.wait(0.01):
        jobs.inc()
"""


def start(url, state_dir):
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, url, str(state_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # A child that hangs must not hold the run; reading from it then ends.
    watchdog = threading.Timer(CHILD_SECONDS_MAX, process.kill)
    watchdog.daemon = True
    watchdog.start()
    return process


def read(process, count):
    return [tuple(json.loads(process.stdout.readline())) for _ in range(count)]


def close(process):
    rest = [tuple(json.loads(line)) for line in process.stdout if line.endswith("\n")]
    process.wait(20)
    process.stdin.close()
    process.stdout.close()
    return rest


@pytest.mark.fault
def test_a_registrys_values_survive_an_outage_and_kill_9(tmp_path):
    """W21, W26, and the promise of ahwal[prometheus]."""
    with ScriptedCollector() as collector:
        config = AgentConfig(collector_url=collector.url, state_dir=tmp_path)
        anyio.run(enroll, config, "a license")
        collector.always(refuse(503, "unavailable"))
        process = start(collector.url, tmp_path)
        kept = read(process, 2)
        os.kill(process.pid, signal.SIGKILL)
        kept += close(process)
        process = start(collector.url, tmp_path)
        kept += read(process, 1)
        known = len(collector.batches())
        collector.always(None)
        process.stdin.write("\n")
        process.stdin.flush()
        kept += close(process)
        assert process.returncode == 0
        with Agent(config, []) as agent:
            assert agent.flush(20)
        status = agent.status().sender
        assert status.produced + status.inherited == status.delivered
        found = {
            (point.ts_ms, point.value)
            for batch in collector.batches()[known:]
            for series in batch.series
            if series.name == "jobs_total"
            for point in series.points
        }
    assert len(kept) >= 3
    assert set(kept) <= found


def test_a_registry_that_raises_costs_its_own_samples_only(tmp_path):
    class Broken:
        def collect(self):
            raise RuntimeError("no such device")

    broken, works = prom.CollectorRegistry(), prom.CollectorRegistry()
    broken.register(Broken())
    prom.Gauge("lost", "", registry=broken).set(1)
    prom.Gauge("fine", "", registry=works).set(1)
    appended = threading.Event()
    names = set()

    def note(batch):
        names.update(sample.name for sample in batch.samples)
        appended.set()

    with ScriptedCollector() as collector:
        config = AgentConfig(
            collector_url=collector.url,
            state_dir=tmp_path,
            interval_seconds=1,
            allow_short_interval=True,
        )
        anyio.run(enroll, config, "a license")
        given = [ahwal.prometheus.collector(broken, "broken"), ahwal.prometheus.collector(works)]
        with Agent(config, given, on_appended=note):
            assert appended.wait(10)
    assert "fine" in names
    assert "lost" not in names
