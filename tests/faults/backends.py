"""Servers on real backends: their settings, an agent of one's own, and what is stored in the end.

A test starts the services it needs, then any number of servers on them:

    store = start_service(VictoriaMetricsServer)
    with World(folder, mailbox, **on(redis=private_redis, victoria_metrics=store)) as world:
        world.start_server()
        sender = Sender.enrolled(world, "web1")
        assert sender.send(1.0) == 202
        world.kill_server()
        world.start_server()
        wait_until("all is stored", lambda: stored(store, COMPANY) == sender.taken, seconds=30)

A second server shares the first one's hub: `World(…, **on(…, hub_of=world))`.
"""

import json
import time
import zlib

import httpx
from world import COMPANY, SERVER

from ahwire.agent_pb2 import EnrollRequest, EnrollResponse, Label, MetricsBatch, Point, Series

#: What takes half a minute by default takes a second or two.
QUICK_BUS = {"block_seconds": 0.1, "lease_seconds": 2, "claim_idle_seconds": 2}
QUICK_TSDB = {"retry_max_seconds": 0.5, "timeout_seconds": 3, "durable_after_seconds": 15}
PROTO = {"X-AH-Proto": "1", "Content-Type": "application/x-protobuf"}


def on(*, redis=None, victoria_metrics=None, nats=None, hub_of=None, **more):
    """Settings for `World`: these services, at a quick pace, with `more` over them.

    The bus is on JetStream where `nats` is given, else on Redis where both others are.
    """
    made = {"bus": dict(QUICK_BUS)}
    if nats is not None:
        made["bus"]["backend"] = "jetstream"
        made["nats"] = {"url": nats.url, "buffer_bytes": 256 << 20}
    if redis is not None:
        made["redis"] = {"addr": f"127.0.0.1:{redis.port}"}
    if victoria_metrics is not None:
        # testkit starts it to keep samples for 100 years.
        made["tsdb"] = {"url": victoria_metrics.url, "retention_days": 36_500, **QUICK_TSDB}
    if hub_of is not None:
        made["hub"] = {"base_url": hub_of.url("hub", ""), "token": hub_of.hub_token}
    for name, value in more.items():
        known = made.get(name)
        made[name] = known | value if isinstance(known, dict) else value
    return made


def enrol(world, server=SERVER, company=COMPANY):
    """An agent of its own, enrolled over HTTP at the server that plays the hub: id and token."""
    made = httpx.post(
        world.url("hub", "/admin/api/licenses"),
        json={"company_id": company, "server_id": server},
        headers={"Authorization": f"Bearer {world.hub_token}"},
        trust_env=False,
    )
    assert made.status_code == 201, made.text
    request = EnrollRequest(license=made.json()["license"], machine_id=server)
    reply = httpx.post(
        world.url("ingest", "/agent/v1/enroll"),
        content=request.SerializeToString(),
        headers=PROTO,
        trust_env=False,
    )
    assert reply.status_code == 200, reply.text
    granted = EnrollResponse.FromString(reply.content)
    assert (granted.company_id, granted.server_id) == (company, server)
    return granted.agent_id, granted.agent_token


class Sender:
    """An agent without a WAL, of one series `ah_ledger`: it knows what was accepted.

    Every sample has a stamp of its own. A batch without an answer, or refused, may be accepted or
    not: its samples are in `unknown` until `again` sent them. Those in `taken` must be stored.
    """

    def __init__(self, world, token, server):
        self._world = world
        self._token = token
        self._server = server
        self._seq = time.time_ns() // 1_000_000
        self._last_ms = 0
        self.taken = {}
        self.unknown = {}

    @classmethod
    def enrolled(cls, world, server=SERVER):
        return cls(world, enrol(world, server)[1], server)

    def send(self, *values, to=None):
        """Sends values with new stamps; the answer's status, None for none."""
        fresh = {}
        for value in values:
            self._last_ms = max(self._last_ms + 1, time.time_ns() // 1_000_000)
            fresh[(self._server, self._last_ms)] = value
        return self._post(fresh, to or self._world)

    def again(self, *, to=None):
        """Sends all that had no answer once more."""
        return self._post(dict(self.unknown), to or self._world) if self.unknown else 202

    def _post(self, samples, world):
        self._seq += 1
        points = [Point(ts_ms=stamp, value=value) for (_, stamp), value in samples.items()]
        series = Series(name="ledger", labels=[Label(name="l", value="x")], points=points)
        batch = MetricsBatch(seq=self._seq, sent_at_ms=self._last_ms, series=[series])
        self.unknown |= samples
        try:
            status = httpx.post(
                world.url("ingest", "/agent/v1/metrics"),
                content=zlib.compress(batch.SerializeToString(), wbits=31),
                headers={
                    **PROTO,
                    "Authorization": f"Bearer {self._token}",
                    "Content-Encoding": "gzip",
                },
                timeout=10,
                trust_env=False,
            ).status_code
        except httpx.HTTPError:
            return None
        if status == 202:
            self.taken |= samples
            for sample in samples:
                del self.unknown[sample]
        return status


def stored(store, company=COMPANY, *, metric="ah_ledger"):
    """All that VictoriaMetrics has of a metric: (server, stamp in ms) to value."""
    store.force_flush()
    found = {}
    lines = httpx.post(
        f"{store.url}/api/v1/export",
        data={"match[]": f'{{__name__="{metric}",company_id="{company}"}}'},
        timeout=30,
        trust_env=False,
    )
    for line in lines.raise_for_status().text.splitlines():
        series = json.loads(line)
        server = series["metric"]["server_id"]
        for stamp, value in zip(series["timestamps"], series["values"], strict=True):
            assert (server, stamp) not in found, "a stamp is there twice"
            found[(server, stamp)] = value
    return found
