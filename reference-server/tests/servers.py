"""A whole server in the test's own process, and an agent that speaks to it over HTTP."""

import os
import re
import time
from contextlib import asynccontextmanager

import anyio
import httpx

from ah_server.parts import Supervisor
from ah_server.settings import settings_from
from ah_server.wiring import Seams, assembled
from ahwire.agent_pb2 import (
    EnrollRequest,
    EnrollResponse,
    Label,
    MetricsBatch,
    Point,
    Series,
)

DOORS = ("INGEST", "ADMIN", "HUB", "CONSOLE", "NOTIFY")
FREE = {f"AHC_{door}_LISTEN": "127.0.0.1:0" for door in DOORS}
#: A bus that notices within a second what else takes it half a minute.
QUICK_BUS = {"block_seconds": 0.1, "lease_seconds": 1.5, "claim_idle_seconds": 1}
_PROTO = {"X-AH-Proto": "1", "Content-Type": "application/x-protobuf"}


class Server:
    """One running server; `company` is whom its agents belong to."""

    def __init__(self, assembly, http, company):
        self.assembly = assembly
        self.company = company
        self._http = http
        self._seq = time.time_ns() // 1_000_000

    def url(self, door, path):
        return f"http://{self.assembly.addresses[door].netloc}{path}"

    async def enrol(self, server="web1"):
        """The token of a new agent."""
        text = await self.assembly.hub.identities.new_license(self.company, server, 60)
        reply = await self._http.post(
            self.url("ingest", "/agent/v1/enroll"),
            content=EnrollRequest(license=text, machine_id=server).SerializeToString(),
            headers=_PROTO,
        )
        assert reply.status_code == 200, reply.text
        return EnrollResponse.FromString(reply.content).agent_token

    async def send(self, token, *values, name="load"):
        """Sends values, a second apart and the last one now; returns the status."""
        return (await self.post(token, *values, name=name)).status_code

    async def post(self, token, *values, name="load"):
        now_ms = time.time_ns() // 1_000_000
        points = [
            Point(ts_ms=now_ms - 1000 * ago, value=value)
            for ago, value in enumerate(reversed(values))
        ]
        self._seq += 1
        series = Series(name=name, labels=[Label(name="l", value='é{}"')], points=points)
        batch = MetricsBatch(seq=self._seq, sent_at_ms=now_ms, series=[series])
        return await self._http.post(
            self.url("ingest", "/agent/v1/metrics"),
            content=batch.SerializeToString(),
            headers={**_PROTO, "Authorization": f"Bearer {token}"},
        )

    async def admin_root(self, method, path):
        token = self.assembly.admin_token.reveal()
        return await self._http.request(
            method,
            self.url("admin", f"/admin/v1/{path}"),
            headers={"Authorization": f"Bearer {token}"},
        )

    async def admin(self, path, **query):
        token = self.assembly.admin_token.reveal()
        return await self._http.get(
            self.url("admin", f"/admin/v1/companies/{self.company}/{path}"),
            params=query,
            headers={"Authorization": f"Bearer {token}"},
        )

    async def page(self, door, path):
        return await self._http.get(self.url(door, path))

    async def metric(self, name):
        """The sum of a metric of this process over its labels."""
        text = (await self.page("admin", "/metrics")).text
        lines = [line for line in text.splitlines() if re.match(rf"{name}(\{{|\s)", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    async def count(self, *, server="web1", metric="load"):
        """How many samples of the last ten minutes the admin door shows, each time stamp once."""
        now_ms = time.time_ns() // 1_000_000
        reply = await self.admin(
            "series/range",
            server_id=server,
            metric=metric,
            start_ms=now_ms - 600_000,
            end_ms=now_ms + 30_000,
            step_ms=30_000,
            aggregate="count",
        )
        assert reply.status_code == 200, reply.text
        return sum(value for one in reply.json()["series"] for _, value in one["points"])


@asynccontextmanager
async def running(state_dir, *, company="acme", data=None, seams=None):
    """A server that is up; leaving stops it as SIGTERM does."""
    environment = {**FREE, "AHC_STATE_DIR": str(state_dir)}
    settings = settings_from(data or {}, environment)
    seams = seams if seams is not None else Seams()
    async with (
        assembled(settings, seams=seams) as assembly,
        httpx.AsyncClient(trust_env=False, timeout=30) as http,
        anyio.create_task_group() as group,
    ):
        supervisor = Supervisor(assembly.parts)
        await group.start(supervisor.run)
        try:
            yield Server(assembly, http, company)
        finally:
            supervisor.request_stop()


async def until(look, *, seconds=20.0):
    """What `look` returns once it is true."""
    with anyio.fail_after(seconds):
        while True:
            found = await look()
            if found:
                return found
            await anyio.sleep(0.05)


def clean_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AHC_")]:
        monkeypatch.delenv(name)
