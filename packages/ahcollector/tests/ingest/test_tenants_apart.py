"""Two companies, three doors, hostile labels: nobody reads what another company's agent sent.

The whole path: the door, the bus, the worker, the store and the admin API's queries. What acme
sends has the value 1, what globex sends the value 2, so who finds the other's value read another's
data.
"""

import random

import anyio
import httpx
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from otlp_exports import export, gauge, number
from otlp_exports import send as send_otlp
from remote_write_sender import ONE, TWO, message_1, message_2, write
from test_tenancy import hostile_labels

from ahcollector.admin import admin_app
from ahcollector.bus import InProcessBus
from ahcollector.store.memory import MemoryStore
from ahcollector.worker import Worker

ADMIN_TOKEN = "an-admin-token-of-the-test"
VALUES = {"acme": 1.0, "globex": 2.0}
TOKENS = {"acme": "canary-token-of-acme", "globex": "canary-token-of-globex"}
SERVERS = {"acme": "web-1", "globex": "web-9"}
names = st.one_of(
    st.sampled_from(["up", 'up{company_id="globex"}', "ah_up", "company_id", "__name__", "日本"]),
    st.text(min_size=1, max_size=20),
)


async def by_agent_door(world, company, name, labels):
    body = world.batch(
        world.series(name=name, value=VALUES[company], labels=labels),
        world.series(name="plain", value=VALUES[company]),
    )
    return await world.send(body, token=TOKENS[company])


async def by_remote_write(world, company, name, labels, version):
    point = [(world.now_ms, VALUES[company])]
    message, kind = (message_1, ONE) if version == 1 else (message_2, TWO)
    body = message(([("__name__", name), *labels], point), ({"__name__": "plain"}, point))
    return await write(world, body, kind, token=TOKENS[company])


async def by_otlp(world, company, name, labels):
    point = number(VALUES[company], labels)
    plain = gauge("plain", number(VALUES[company]))
    request = export(gauge(name, point), plain, labels=dict(labels))
    return await send_otlp(world, request, token=TOKENS[company])


class Path:
    """Everything between the door and the answer to a query."""

    def __init__(self, make_world):
        self.world = make_world()
        for company, server in SERVERS.items():
            self.world.hub.active(
                f"agent-of-{company}", TOKENS[company], company_id=company, server_id=server
            )
        self.store = MemoryStore(clock=self.world.clock)
        admin = admin_app(
            token=ADMIN_TOKEN,
            registry=self.world.registry,
            directory=self.world.directory,
            presence=self.world.presence,
            store=self.store,
            clock=self.world.clock,
        )
        self.admin = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=admin),
            base_url="http://admin",
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        )

    async def settle(self):
        """Carry what is on the bus to the store, as a worker does."""
        bus = InProcessBus(clock=self.world.clock)
        for batch in self.world.bus.batches:
            await bus.publish(batch)
        await bus.close()
        await Worker(bus=bus, store=self.store, clock=self.world.clock, rng=random.Random(1)).run()

    async def latest(self, company, server):
        reply = await self.admin.get(
            f"/admin/v1/companies/{company}/series/latest",
            params={"server_id": server, "since_ms": 0},
        )
        assert reply.status_code == 200, reply.text
        return reply.json()["series"]


# The fixture is a class, so the examples share nothing.
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(name=names, labels=hostile_labels)
@example(name="up", labels=[("company_id", "globex"), ("COMPANY-ID", "globex")])
@example(name="up", labels=[("server_id", "web-9"), ("agent_id", "agent-of-globex")])
@example(name='up{company_id="globex",server_id="web-9"}', labels=[('x",company_id="globex', "y")])
@example(name="up", labels=[("vm_account_id", "2"), ("__name__", "other"), ("", "globex")])
@example(name="up", labels=[("service.name", "globex"), ("company.id", "globex")])
def test_through_every_door_each_company_reads_its_own_and_nothing_else(make_world, name, labels):
    async def scenario():
        path = Path(make_world)
        world = path.world
        for company in ("acme", "globex"):
            replies = [
                await by_agent_door(world, company, name, labels),
                await by_remote_write(world, company, name, labels, 1),
                await by_remote_write(world, company, name, labels, 2),
                await by_otlp(world, company, name, labels),
            ]
            # Whatever is refused of it, the door is never surprised.
            assert all(reply.status_code in {200, 202, 204, 400} for reply in replies)
        await path.settle()
        for company, server in SERVERS.items():
            series = await path.latest(company, server)
            assert series, "the plain series at least is there"
            for one in series:
                assert one["labels"]["company_id"] == company
                assert one["labels"]["server_id"] == server
                assert {value for _, value in one["points"]} == {VALUES[company]}
        for company, server in (("acme", "web-9"), ("globex", "web-1"), ("ACME", "web-1")):
            assert await path.latest(company, server) == []
        await path.admin.aclose()

    anyio.run(scenario)
