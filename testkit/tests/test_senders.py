"""Prometheus and vmagent: each scrapes, and writes what it scraped to the place it was given."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from testkit import PrometheusServer, VmagentServer, wait_until

pytestmark = pytest.mark.service


class _Place(BaseHTTPRequestHandler):
    """Exposes one metric to whoever scrapes, and notes whoever writes."""

    def do_GET(self):
        self._answer(200, b"testkit_exposed 7\n")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.written.append((dict(self.headers), body))
        self._answer(204, b"")

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def place():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Place) as server:
        server.written = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _scrape(place):
    return {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "place",
                "static_configs": [{"targets": [f"127.0.0.1:{place.server_port}"]}],
            }
        ],
    }


def _written(place):
    wait_until(lambda: place.written, what="a write", timeout_seconds=30)
    headers, body = place.written[0]
    assert headers["Content-Encoding"] == "snappy"
    assert headers["Authorization"] == "Bearer a-token"
    assert b"testkit_exposed" in body


def test_prometheus_scrapes_answers_queries_and_writes(start_service, place):
    write = {
        "url": f"http://127.0.0.1:{place.server_port}/write",
        "authorization": {"credentials": "a-token"},
    }
    server = start_service(PrometheusServer, config={**_scrape(place), "remote_write": [write]})
    wait_until(lambda: server.query("testkit_exposed"), what="a scrape", timeout_seconds=30)
    (found,) = server.query("testkit_exposed")
    assert found["metric"]["job"] == "place"
    assert found["value"][1] == "7"
    _written(place)
    scraped = server.query("testkit_exposed[1h]")[0]["values"]
    server.kill()
    server.restart()
    assert server.query("testkit_exposed[1h]")[0]["values"][: len(scraped) - 1] == scraped[:-1]


def test_vmagent_scrapes_and_writes(start_service, place):
    start_service(
        VmagentServer,
        remote_write_url=f"http://127.0.0.1:{place.server_port}/write",
        bearer_token="a-token",
        config=_scrape(place),
    )
    _written(place)
