"""A real VictoriaMetrics behind a proxy that answers in its place: nothing counts as stored."""

import http.client
import http.server
import random
import threading
import time
import uuid

import anyio
import pytest

from ahcollector.bus import InProcessBus
from ahcollector.clock import SystemClock
from ahcollector.store import Aggregate
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing._contracts.store import samples
from ahcollector.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.service]

# Not there where the package is tested alone.
pytest.importorskip("testkit")

POINTS = 200


class Proxy:
    """Passes everything on, but writes only while `answer` is None and they are short enough."""

    def __init__(self, upstream):
        self.answer = None
        self.most = 1 << 30
        self.refused = 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = proxy.answer
                if len(body) > proxy.most:
                    answer = (413, b"<html>413 Request Entity Too Large")
                if answer is not None and self.path in {"/api/v1/import", "/api/v1/write"}:
                    proxy.refused += 1
                    self.reply(*answer, {"Content-Type": "text/html"})
                    return
                link = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=10)
                link.request(self.command, self.path, body, dict(self.headers))
                found = link.getresponse()
                kept = {"X-Server-Hostname": found.headers["X-Server-Hostname"]}
                self.reply(found.status, found.read(), kept)
                link.close()

            do_GET = do_POST = serve  # noqa: N815 - named by its base

            def reply(self, status, body, headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def proxy(victoria_metrics):
    with Proxy(victoria_metrics) as new:
        yield new


@pytest.mark.parametrize("protocol", ["import", "remote_write"])
@pytest.mark.parametrize(
    "answer",
    [(200, b"<html>please log in"), (202, b""), (400, b"<html>no"), (413, b"<html>too large")],
    ids=lambda answer: str(answer[0]),
)
async def test_what_a_proxy_answers_loses_and_sets_aside_nothing(proxy, answer, protocol):
    """The worker keeps all it has until VictoriaMetrics itself says that it has it."""
    company = f"company-{uuid.uuid4().hex}"
    t = round(time.time()) * 1_000 - 60_000
    async with VictoriaMetricsStore(
        url=proxy.url, step_seconds_min=1, write_protocol=protocol
    ) as store:
        bus = InProcessBus(clock=SystemClock())
        worker = Worker(
            bus=bus, store=store, clock=SystemClock(), rng=random.Random(6), retry_max_seconds=0.3
        )
        proxy.answer = answer
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            for number in range(5):
                await bus.publish(
                    samples([(t + number * 1_000, float(number))], company_id=company)
                )
            with anyio.fail_after(20):
                while proxy.refused < 3:
                    await anyio.sleep(0.02)
            assert worker.stats().samples_written == 0
            proxy.answer = None
            with anyio.fail_after(20):
                while worker.stats().samples_written < 5:
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        await store.flush()
        [series] = await store.latest(company, "web-1", since_ms=t)
        found = await store.range(
            company,
            "web-1",
            "cpu_percent",
            start_ms=t,
            end_ms=t + 4_000,
            step_ms=1_000,
            aggregate=Aggregate.COUNT,
        )
        assert series.value == 4.0
        assert [value for _, value in found[0].points] == [1.0] * 5


@pytest.mark.parametrize("protocol", ["import", "remote_write"])
async def test_what_is_too_long_for_a_proxy_is_stored_in_parts(proxy, protocol):
    """Nginx lets 1 MB through unless it is told otherwise; this one lets 4 kB."""
    company = f"company-{uuid.uuid4().hex}"
    t = round(time.time()) * 1_000 - 600_000
    rng = random.Random(7)
    proxy.most = 4_096
    proxy.answer = None
    async with VictoriaMetricsStore(
        url=proxy.url, step_seconds_min=1, write_protocol=protocol
    ) as store:
        batches = [
            samples(
                [(t + n * 1_000, rng.random()) for n in range(POINTS)],
                company_id=company,
                labels=(("n", str(number)),),
            )
            for number in range(10)
        ]
        await store.write(batches)
        await store.flush()
        found = await store.range(
            company,
            "web-1",
            "cpu_percent",
            start_ms=t,
            end_ms=t + (POINTS - 1) * 1_000,
            step_ms=1_000,
            aggregate=Aggregate.COUNT,
        )
    assert [len(series.points) for series in found] == [POINTS] * 10
    assert proxy.refused > 0
