"""Real senders deliver to the door: a Prometheus server (1.0), vmagent (1.0), and one of 2.0.

What is on the bus afterwards is compared with what was exposed, sample by sample; in the middle the
bus is full for ten seconds, and one series has more labels than are taken.
"""

import math
import random
import re
import subprocess
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import httpx
import pytest
from remote_write_sender import TWO, block, headers, message_2
from served_door import ServedDoor

from ahcollector.clock import SystemClock
from ahcollector.store.memory import MemoryStore
from ahwire.names import metric_name
from testkit import PrometheusServer, VmagentServer, wait_until

pytestmark = pytest.mark.service

OUTAGE_SECONDS = 10.0
WAIT_SECONDS = 60.0
TRIES_MAX = 100
WIDE = ",".join(f'l{number:02}="x"' for number in range(30))


class Target(BaseHTTPRequestHandler):
    """Exposes another value at each scrape, and beside it what is odd."""

    def do_GET(self):
        self.server.ticks += 1
        ticks = self.server.ticks
        body = f"""\
# TYPE demo_ticks_total counter
demo_ticks_total {ticks}
demo_temperature{{zone="Nord-Süd",path="/a\\"b\\\\c",empty=""}} {math.sin(ticks)}
demo:recorded:rate5m {ticks / 7}
demo_nothing NaN
demo_infinite{{le="+Inf"}} +Inf
demo_wide{{{WIDE}}} {ticks}
"""
        if ticks % 5 == 0:  # a series that comes and goes: the sender marks its end
            body += f"demo_now_and_then {ticks}\n"
        payload = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args):
        pass


@pytest.fixture
def target():
    with ThreadingHTTPServer(("127.0.0.1", 0), Target) as server:
        server.ticks = 0
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Door(ServedDoor):
    def stored(self):
        """{labels without the tenant: {ms: value}} of what is on the bus."""
        found = {}
        for batch in list(self.world.bus.batches):
            for series in batch.series:
                labels = dict(series.labels)
                assert (labels.pop("company_id"), labels.pop("server_id")) == ("acme", "web-1")
                found.setdefault(frozenset(labels.items()), {}).update(series.points)
        return found

    def values(self, name):
        """All values of a metric of the target, by time."""
        points = {}
        for labels, held in self.stored().items():
            if ("__name__", name) in labels:
                points.update(held)
        return [points[ts_ms] for ts_ms in sorted(points)]

    def statuses(self):
        """Status and code of every answer."""
        return [(answer.status, answer.code) for answer in self.answers]

    def outage(self):
        """No room on the bus for ten seconds, in which somebody asks."""
        self.world.bus.full = True
        time.sleep(OUTAGE_SECONDS)
        assert (503, "unavailable") in self.statuses()
        self.world.bus.full = False


@pytest.fixture
def door(make_world):
    world = make_world(clock=SystemClock())
    world.hub.active("agent-1", world.token)
    with Door(world, "/api/v1/write") as served:
        yield served


def scrape(**targets):
    return {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [address]}]}
            for job, address in targets.items()
        ],
    }


def assert_stored(door):
    """What a store makes of the bus, with all that was sent again, is each sample once."""
    store = MemoryStore(clock=door.world.clock)
    expected = door.stored()
    anyio.run(store.write, list(door.world.bus.batches))
    assert store.points >= sum(map(len, expected.values()))
    latest = anyio.run(partial(store.latest, "acme", "web-1", since_ms=0))
    tenant = {("company_id", "acme"), ("server_id", "web-1")}
    found = {frozenset(one.labels) - tenant: (one.timestamp_ms, one.value) for one in latest}
    for labels, points in expected.items():
        assert found[labels] >= max(points.items())


def own_name(labels):
    """The labels of a series as Prometheus tells it, in the form in which we store it."""
    return frozenset({**labels, "__name__": metric_name(labels["__name__"])}.items())


def test_a_real_prometheus_delivers_every_sample_through_an_outage(door, target, start_service):
    writes = {
        "url": door.url,
        "authorization": {"credentials": door.world.token},
        "queue_config": {"batch_send_deadline": "1s", "min_shards": 1},
    }
    targets = scrape(demo=f"127.0.0.1:{target.server_port}")
    # Itself too: some seven hundred series that nobody made up for this test.
    server = start_service(
        PrometheusServer, config={**targets, "remote_write": [writes]}, scrapes_itself=True
    )
    wait_until(lambda: target.ticks >= 5, what="scrapes", timeout_seconds=WAIT_SECONDS)
    door.outage()
    goal = target.ticks + 6
    wait_until(lambda: target.ticks >= goal, what="more scrapes", timeout_seconds=WAIT_SECONDS)

    kept = {
        own_name(one["metric"]): {
            round(seconds * 1000): float(value)
            for seconds, value in one["values"]
            if math.isfinite(float(value))
        }
        for one in server.query('{__name__=~".+"}[1h]')
        if len(one["metric"]) < 30
    }
    kept = {labels: points for labels, points in kept.items() if points}

    def behind():
        stored = door.stored()
        return [
            labels
            for labels, points in kept.items()
            if not points.items() <= stored.get(labels, {}).items()
        ]

    wait_until(lambda: not behind(), what="every sample on the bus", timeout_seconds=WAIT_SECONDS)
    names = {dict(labels)["__name__"] for labels in kept}
    assert {"ah_demo_ticks_total", "ah_demo_recorded_rate5m", "ah_up"} <= names
    assert len(kept) > 300
    assert_stored(door)
    # None twice, none made up: what the target exposed, from the first scrape on.
    ticks = door.values("ah_demo_ticks_total")
    assert ticks == [float(number) for number in range(1, len(ticks) + 1)]
    assert len(ticks) >= goal - 1
    assert door.values("ah_demo_wide") == []
    assert (400, "invalid_series") in door.statuses()
    assert {status for status, _ in door.statuses()} <= {204, 400, 503}
    assert "too_many_labels" in server.log.read_text(encoding="utf-8")
    text = door.world.metrics.exposition().decode()
    assert 'ahc_ingest_dropped_points_total{code="stale_marker"}' in text


def test_a_real_vmagent_delivers_every_sample_through_an_outage(door, target, start_service):
    agent = start_service(
        VmagentServer,
        remote_write_url=door.url,
        bearer_token=door.world.token,
        config=scrape(demo=f"127.0.0.1:{target.server_port}"),
        flags=["-remoteWrite.flushInterval=1s"],
    )
    wait_until(
        lambda: len(door.values("ah_demo_ticks_total")) >= 3,
        what="scrapes on the bus",
        timeout_seconds=WAIT_SECONDS,
    )
    door.outage()
    goal = target.ticks + 6

    def all_there():
        ticks = door.values("ah_demo_ticks_total")
        warmth = door.values("ah_demo_temperature")[: len(ticks)]
        return (
            len(ticks) >= goal
            and ticks == [float(tick) for tick in range(1, len(ticks) + 1)]
            and warmth == pytest.approx([math.sin(tick) for tick in ticks])
        )

    # What it could not send waits in a queue of its own, and comes after what is newer.
    wait_until(all_there, what="every scrape on the bus", timeout_seconds=WAIT_SECONDS)
    assert door.values("ah_demo_wide") == []
    assert (400, "invalid_series") in door.statuses()
    assert {status for status, _ in door.statuses()} <= {204, 400, 503}
    assert agent.pid is not None


class Sender:
    """Sends as the specification of 2.0 tells a sender to: again on 5xx, on otherwise."""

    def __init__(self, url, token):
        self._url = url
        self._token = token
        self._client = httpx.Client()
        self.retries = 0
        self.refusals = []
        self.written = 0

    def send(self, *series):
        body = block(message_2(*series))
        step_seconds = 0.03
        while True:
            answer = self._client.post(
                self._url, content=body, headers=headers(self._token, TWO), timeout=10
            )
            if answer.status_code < 500:
                break
            self.retries += 1
            assert self.retries < TRIES_MAX, f"{answer.status_code}: {answer.text}"
            asked = float(answer.headers.get("retry-after", 0))
            # The answer may ask for longer than this test has time for.
            time.sleep(min(max(step_seconds, asked), 1.0))
            step_seconds = min(step_seconds * 2, 5.0)
        self.written += int(answer.headers["x-prometheus-remote-write-samples-written"])
        if answer.status_code >= 300:
            self.refusals.append((answer.status_code, answer.text))

    def close(self):
        self._client.close()


def test_a_sender_of_2_0_delivers_every_sample_through_an_outage(door):
    rng = random.Random(20)
    sender = Sender(door.url, door.world.token)
    expected = {}
    wide = {f"l{number}": "x" for number in range(30)}
    begin = round(time.time() * 1000) - 60_000
    back = threading.Timer(3.0, lambda: setattr(door.world.bus, "full", False))
    for number in range(40):
        if number == 20:
            door.world.bus.full = True
            back.start()
        stamp = begin + number * 1000
        series = []
        for shard in rng.sample(range(8), 5):
            labels = {"__name__": "demo.load", "shard": str(shard), "zone": "Süd"}
            value = rng.random()
            series.append((labels, [(stamp, value)]))
            expected.setdefault(str(shard), {})[stamp] = value
        if number % 10 == 3:
            series.append(({"__name__": "wide", **wide}, [(stamp, 1.0)]))
            series.append(({"__name__": "native"}, [], 1))
        sender.send(*series)
    back.join()
    sender.close()
    assert sender.retries > 0
    assert sender.written == 40 * 5
    assert len(sender.refusals) == 4
    for status, text in sender.refusals:
        assert status == 400
        assert text.startswith("2 of 7 points refused, others stored: native histograms are not")
        assert "'wide': it has too many labels" in text
    assert door.stored() == {
        frozenset({"__name__": "ah_demo_load", "shard": shard, "zone": "Süd"}.items()): points
        for shard, points in expected.items()
    }


PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "send-from-prometheus.md"


@pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no pages")
def test_prometheus_takes_the_configuration_of_the_page(start_service, tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    (config,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    token = tmp_path / "token"
    token.write_text("a-token")
    asked = tmp_path / "prometheus.yml"
    asked.write_text(config.replace("/etc/prometheus/ah-token", str(token)))
    promtool = start_service(PrometheusServer).executable.with_name("promtool")
    done = subprocess.run(
        [promtool, "check", "config", asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
