"""VictoriaMetrics over HTTP: deduplication, many labels, durability by snapshot."""

import json
import time

import httpx
import pytest

from testkit import VictoriaMetricsServer, Vmalert

pytestmark = pytest.mark.service


def _import(server, name, value, *, labels=None):
    line = {
        "metric": {"__name__": name, **(labels or {})},
        "values": [value],
        "timestamps": [int(time.time() * 1000)],
    }
    httpx.post(f"{server.url}/api/v1/import", content=json.dumps(line)).raise_for_status()
    return line


def _export(server, name):
    # The server's own "now", the default end, lags by up to a second.
    params = {"match[]": name, "end": time.time() + 60}
    reply = httpx.get(f"{server.url}/api/v1/export", params=params)
    reply.raise_for_status()
    return [json.loads(line) for line in reply.text.splitlines()]


def test_an_import_repeated_is_one_sample(victoria_metrics):
    line = _import(victoria_metrics, "testkit_smoke", 1.5)
    for _ in range(3):
        httpx.post(f"{victoria_metrics.url}/api/v1/import", content=json.dumps(line))
    victoria_metrics.force_flush()
    (series,) = _export(victoria_metrics, "testkit_smoke")
    assert series["values"] == [1.5]


def test_fifty_labels_are_kept(victoria_metrics):
    labels = {f"label_{number:02}": "x" for number in range(50)}
    _import(victoria_metrics, "testkit_wide", 1, labels=labels)
    victoria_metrics.force_flush()
    (series,) = _export(victoria_metrics, "testkit_wide")
    assert series["metric"] == {"__name__": "testkit_wide", **labels}


def test_a_snapshot_makes_samples_survive_kill_and_restart(start_service):
    server = start_service(VictoriaMetricsServer)
    _import(server, "durable", 2.5)
    server.force_flush()
    server.snapshot()
    server.kill()
    server.restart()
    (series,) = _export(server, "durable")
    assert series["values"] == [2.5]


def test_an_orderly_stop_loses_nothing(start_service):
    server = start_service(VictoriaMetricsServer)
    _import(server, "durable", 3.5)
    server.restart()
    (series,) = _export(server, "durable")
    assert series["values"] == [3.5]


RULE = """groups:
  - name: doubled
    interval: 5m
    rules:
      - record: "testkit_doubled"
        expr: "2 * testkit_single"
"""


def test_vmalert_checks_a_file_and_records_a_time_gone_by(victoria_metrics, tmp_path):
    vmalert = Vmalert()
    rules = tmp_path / "rules.yml"
    rules.write_text(RULE.replace("2 *", "2 **"))
    with pytest.raises(ValueError, match="vmalert ended with"):
        vmalert.check(rules)
    rules.write_text(RULE)
    vmalert.check(rules)
    start = int(time.time()) // 300 * 300_000 - 1_500_000
    times = [start + n * 300_000 for n in range(4)]
    line = {"metric": {"__name__": "testkit_single"}, "values": [1.5] * 4, "timestamps": times}
    httpx.post(f"{victoria_metrics.url}/api/v1/import", content=json.dumps(line)).raise_for_status()
    victoria_metrics.force_flush()
    vmalert.replay(rules, url=victoria_metrics.url, start_ms=times[0], end_ms=times[-1])
    victoria_metrics.force_flush()
    (series,) = _export(victoria_metrics, "testkit_doubled")
    assert series["values"] == [3.0] * 4
    assert series["timestamps"] == times
