"""Two servers on shared backends, agents that post to both, and those who kill all of it."""

import gzip
import http.client
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from backends import PROTO, enrol, on
from ledger import PREFIX, BatchMaker, Tenant
from prometheus_client.parser import text_string_to_metric_families
from world import World

from ahwire.agent_pb2 import MetricsAck

TENANTS = [Tenant(company, server) for company in ("acme", "umbra") for server in ("web1", "web2")]
# No rate of the protocol is looked at here, and a sender that is told to wait asks sooner.
OPEN_DOOR = {
    "metrics_burst": 10_000,
    "metrics_per_minute_min": 10_000,
    "enroll_per_minute": 6_000,
}


class _QuietServer(ThreadingHTTPServer):
    """One whose clients may be killed without a traceback in the test's output."""

    daemon_threads = True

    def handle_error(self, *_):
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*_)


class RefusingFront:
    """A proxy before VictoriaMetrics that refuses an import which has a poisoned series, for good.

    In the words of VictoriaMetrics, whose refusals alone are believed: it refuses nothing itself
    that a door has let in.
    """

    def __init__(self, *, port):
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(*front.pass_on(self.command, self.path, dict(self.headers), body))

            do_GET = do_POST = handle_any  # noqa: N815  # http.server's names

            def _answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._port = port
        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pass_on(self, method, path, headers, body):
        if path == "/api/v1/import" and f"{PREFIX}poison".encode() in gzip.decompress(body):
            return 400, "text/plain", b'remoteAddr: "127.0.0.1"; this series is not wanted here'
        upstream = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            upstream.request(method, path, body, headers)
            answer = upstream.getresponse()
            return answer.status, answer.headers.get("Content-Type", "text/plain"), answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 502, "text/plain", f"the store is away: {error!r}".encode()
        finally:
            upstream.close()


class Server:
    """A server as one that is killed: each life of it counts for itself."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.lives = 0

    @property
    def life(self):
        return self.name, self.lives

    def kill(self):
        self.world.kill_server()
        self.lives += 1

    def start(self):
        # It looks at the store before it opens, and that may be killed meanwhile, more than once.
        self.world.start_server(seconds=180)

    def admin(self, path, **parameters):
        return httpx.get(
            self.world.url("admin", path),
            params=parameters,
            headers={"Authorization": f"Bearer {self.world.admin_token}"},
            timeout=10,
            trust_env=False,
        ).raise_for_status()

    def metrics(self):
        """(name, value of its one label or nothing) to value; of those with more, the sum."""
        found = Counter()
        for family in text_string_to_metric_families(self.admin("/metrics").text):
            for sample in family.samples:
                found[sample.name, next(iter(sample.labels.values()), "")] += sample.value
        return found

    def dead(self, where):
        """Request id to the reason, of what was set aside."""
        found, after = {}, ""
        while after is not None:
            page = self.admin(f"/admin/v1/{where}/dead", after=after, limit=500).json()
            for letter in page["letters"]:
                assert letter["request_id"] is not None, letter
                found[letter["request_id"]] = f"{where}: {letter['reason'].partition(':')[0]}"
            after = page["next_after"]
        return found


class Senders:
    """Agents that post each batch until a door says for good what it takes of it."""

    def __init__(self, *, servers, ledger, seed, poison):
        self._servers = servers
        self._ledger = ledger
        self._poison = poison
        self._stop = threading.Event()
        self._give_up = threading.Event()
        self._pool = ThreadPoolExecutor(len(TENANTS))
        tokens = list(self._pool.map(self._enrol, TENANTS))
        now_ms = time.time_ns() // 1_000_000
        self._running = [
            self._pool.submit(
                self._send, tenant, number, token, now_ms, random.Random(seed + number)
            )
            for number, (tenant, token) in enumerate(zip(TENANTS, tokens, strict=True))
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._give_up.set()
        self._pool.shutdown()

    def finish(self, *, seconds):
        """Begin no batch more, and return when the last ones are answered or given up."""
        self._stop.set()
        timer = threading.Timer(seconds, self._give_up.set)
        timer.start()
        for one in self._running:
            one.result()
        timer.cancel()
        timer.join()

    def _enrol(self, tenant):
        return enrol(self._servers[0].world, tenant.server, tenant.company)[1]

    def _send(self, tenant, number, token, now_ms, rng):
        maker = BatchMaker(tenant=tenant, number=number, now_ms=now_ms, rng=rng)
        with httpx.Client(timeout=5, trust_env=False) as client:
            while not self._stop.is_set():
                lot = rng.random()
                if lot < 0.02:
                    batch = maker.make_hopeless()
                else:
                    batch = maker.make(poison=self._poison and lot < 0.05)
                self._ledger.sends(batch)
                self._deliver(client, batch, token, rng)
                self._stop.wait(rng.uniform(0.02, 0.25))

    def _deliver(self, client, batch, token, rng):
        number = rng.randrange(len(self._servers))
        while not self._give_up.is_set():
            number = (number + 1) % len(self._servers)
            if self._post(client, batch, token, self._servers[number]):
                return
            self._give_up.wait(rng.uniform(0.05, 0.3))

    def _post(self, client, batch, token, server):
        """Whether the door said something for good."""
        life = server.life
        headers = {
            **PROTO,
            "Authorization": f"Bearer {token}",
            "X-Request-Id": batch.request_id,
        }
        url = server.world.url("ingest", "/agent/v1/metrics")
        try:
            answer = client.post(url, content=batch.body, headers=headers)
        except httpx.HTTPError as error:
            self._ledger.answered(type(error).__name__)
            if not isinstance(error, httpx.ConnectError):
                self._ledger.unanswered(batch, [life, server.life])
            return False
        self._ledger.answered(answer.status_code)
        if answer.status_code in (202, 422):
            ack = MetricsAck.FromString(answer.content)
            self._ledger.acknowledges(batch, ack, [life, server.life])
            if (answer.status_code == 422) != (not batch.points):
                self._ledger.problem(f"{batch} is answered {answer.status_code}")
            return True
        if answer.status_code != 503 or "Retry-After" not in answer.headers:
            # Never 401 or 403 because something is down, never 500.
            self._ledger.problem(f"{answer.status_code}: {answer.content[:200]!r}")
        return False


class Killer:
    """Kills one thing with -9 at random moments, and starts it again each time."""

    def __init__(self, thing, *, rng, log, began):
        self._thing = thing
        self._rng = rng
        self._log = log
        self._began = began
        self._name = getattr(thing, "name", type(thing).__name__)
        # A server takes half of a pause to start, others no time: all are to die until the end.
        self._pause = (1.0, 8.0) if isinstance(thing, Server) else (1.0, 20.0)

    def kill(self, times, *, stop):
        """Kill so many times; the first time soon."""
        for number in range(times):
            if stop.wait(self._rng.uniform(*(self._pause if number else (0.5, 5.0)))):
                return
            self._thing.kill()
            killed = time.monotonic()
            # Often at once, as a supervisor does; else so late that others notice.
            stop.wait(self._rng.choice([0.0, self._rng.uniform(0, 1.5)]))
            self._thing.start()
            away = time.monotonic() - killed
            self._log.append((self._name, round(killed - self._began, 2), round(away, 2)))


def kill_all(things, *, times, seed, log, seconds):
    """Kill each of `things` so many times, each at a pace of its own and all at once."""
    stop, began = threading.Event(), time.monotonic()
    killers = [
        Killer(thing, rng=random.Random(f"{seed}/{number}"), log=log, began=began)
        for number, thing in enumerate(things)
    ]
    with ThreadPoolExecutor(len(things)) as pool:
        running = [pool.submit(killer.kill, times, stop=stop) for killer in killers]
        try:
            done, late = wait(running, timeout=seconds, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
            assert not late, f"the kills took more than {seconds} s: {log}"
        finally:
            stop.set()


class Pair:
    """Two servers that share everything; the first one plays the hub as well."""

    def __init__(self, folder, mailbox, **settings):
        folder.mkdir(exist_ok=True)
        settings = {"ingest": OPEN_DOOR, **settings}
        first = World(folder / "first", mailbox, **on(collector_id="first", **settings))
        first.start_server()
        second = World(
            folder / "second", mailbox, **on(collector_id="second", hub_of=first, **settings)
        )
        self.servers = [Server(first, "first"), Server(second, "second")]
        second.start_server()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in reversed(self.servers):
            server.world.__exit__()
