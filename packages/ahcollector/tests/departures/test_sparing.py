"""What was deleted stays deleted: the sieve, and the writer that spares the store."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.departures import Departure, MemoryDepartures, Sieve, SparingWriter
from ahcollector.errors import (
    DeparturesError,
    PermanentStoreError,
    RegistryError,
    TemporaryStoreError,
)
from ahcollector.metrics import PrometheusMetrics
from ahcollector.store import MemoryStore
from ahcollector.testing import FakeClock

pytestmark = pytest.mark.anyio
START = 1_800_000_000.0
DROPPED = "ahc_tsdb_batches_dropped_total"


def batch(at, *, server="web-1", company="acme"):
    at_ms = int((START + at) * 1000)
    labels = (("__name__", "ah_heat"), ("company_id", company), ("server_id", server))
    return SampleBatch(
        company_id=company,
        server_id=server,
        agent_id=f"agent-{server}",
        request_id=f"r{at}",
        received_at_ms=at_ms,
        series=(StoredSeries(labels=labels, points=((at_ms, 1.0),)),),
    )


class Wrapped:
    """A store whose writes fail as told, and are overtaken by what happens meanwhile."""

    def __init__(self, store):
        self.store = store
        self.failure = None
        self.meanwhile = None
        self.deletions = 0
        self.delete_failure = None

    async def write(self, batches):
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        await self.store.write(batches)
        if self.failure is not None:
            raise self.failure

    async def delete_server(self, company_id, server_id):
        if self.delete_failure is not None:
            raise self.delete_failure
        self.deletions += 1
        return await self.store.delete_server(company_id, server_id)

    async def delete_company(self, company_id):
        raise AssertionError("a write brings one server back, not all of a company")


class World:
    def __init__(self):
        self.clock = FakeClock(START + 10)
        self.departures = MemoryDepartures()
        self.known = set()
        self.registry_fails = None
        self.store = MemoryStore(clock=self.clock)
        self.wrapped = Wrapped(self.store)
        self.metrics = PrometheusMetrics()
        self.sieve = Sieve(
            departures=self.departures, is_known=self.is_known, clock=self.clock, quiet_seconds=60
        )
        self.writer = SparingWriter(
            writer=self.wrapped, deleter=self.wrapped, sieve=self.sieve, metrics=self.metrics
        )

    async def is_known(self, batch):
        if self.registry_fails is not None:
            raise self.registry_fails
        return batch.agent_id in self.known

    async def leave(self, server="web-1", *, keeps_series=False):
        """As the admin door does it: the departure, then the series."""
        await self.departures.note(
            Departure(
                company_id="acme",
                server_id=server,
                at=self.clock.time(),
                keeps_series=keeps_series,
            )
        )
        if not keeps_series:
            await self.store.delete_server("acme", server)

    async def stored(self, company="acme"):
        """Which servers have a series, with its first and last second."""
        return {
            dict(one.labels)["server_id"]: (
                one.first_ms // 1000 - START,
                one.last_ms // 1000 - START,
            )
            for one in await self.store.series(company)
        }

    @property
    def dropped(self):
        return self.metrics.registry.get_sample_value(DROPPED, {"reason": "deleted"}) or 0


@pytest.mark.fault
async def test_batch_that_waited_while_its_server_was_deleted_is_dropped_and_counted():
    """C18: what a bus or a dead letter brings behind a deletion does not come back."""
    world = World()
    await world.writer.write([batch(1), batch(2, server="web-2")])
    await world.leave()
    world.known.add("agent-web-1")  # enrolled again: the time tells, and not who sends
    await world.writer.write([batch(3), batch(4, server="web-2"), batch(5, company="blue")])
    assert await world.stored() == {"web-2": (2, 4)}
    assert await world.stored("blue") == {"web-1": (5, 5)}
    assert world.dropped == 1
    world.clock.advance(1)
    await world.writer.write([batch(11), batch(6)])
    assert await world.stored() == {"web-1": (11, 11), "web-2": (2, 4)}
    assert world.dropped == 2


async def test_company_takes_its_servers_with_it():
    world = World()
    await world.departures.note(
        Departure(company_id="acme", server_id=None, at=START + 5, keeps_series=False)
    )
    await world.writer.write([batch(4), batch(5, server="web-2"), batch(4, company="blue")])
    assert await world.stored() == {}
    assert set(await world.stored("blue")) == {"web-1"}
    assert world.dropped == 2


async def test_history_of_who_was_revoked_is_still_written():
    """It was acknowledged, and nobody deleted it."""
    world = World()
    await world.leave(keeps_series=True)
    await world.writer.write([batch(4)])
    assert await world.stored() == {"web-1": (4, 4)}
    assert (await world.sieve.to_judge([batch(4)])).gone == [batch(4)]
    assert world.dropped == 0


async def test_who_was_let_in_by_a_token_of_before_is_asked_for_at_the_registry():
    """A node that has not heard yet, or a slow body, is dated behind the deletion."""
    world = World()
    await world.leave()
    world.clock.advance(100)
    await world.writer.write([batch(11), batch(70)])
    assert await world.stored() == {}
    world.known.add("agent-web-1")
    await world.writer.write([batch(11), batch(70)])
    assert await world.stored() == {"web-1": (11, 70)}
    world.known.clear()
    await world.writer.write([batch(71)])
    assert await world.stored() == {"web-1": (11, 71)}, "by then no token of before is believed"


async def test_departure_ahead_of_the_clock_stops_nobody_who_is_known():
    """A clock that stepped back since would else keep a server out for as long as the step."""
    world = World()
    await world.departures.note(
        Departure(company_id="acme", server_id="web-1", at=START + 3_600, keeps_series=False)
    )
    await world.writer.write([batch(9)])
    assert await world.stored() == {}
    world.known.add("agent-web-1")
    await world.writer.write([batch(10)])
    assert await world.stored() == {"web-1": (10, 10)}


@pytest.mark.fault
@pytest.mark.parametrize(
    "failure", [None, TemporaryStoreError("timeout"), RuntimeError("odd")], ids=str
)
async def test_deletion_that_overtakes_a_write_is_done_again(failure):
    """C18: also where the write failed, and nobody knows what it left."""
    world = World()
    world.wrapped.meanwhile, world.wrapped.failure = world.leave, failure
    if failure is None:
        await world.writer.write([batch(9)])
    else:
        with pytest.raises(type(failure)):
            await world.writer.write([batch(9)])
        assert "web-1" in await world.stored(), "what the write left behind the deletion"
        world.wrapped.failure = None
        await world.writer.write([batch(9)])
    assert "web-1" not in await world.stored()
    assert world.dropped == 1
    # What is written by who came back is not taken for what was left.
    world.clock.advance(100)
    before = world.wrapped.deletions
    await world.writer.write([batch(100), batch(9)])
    assert (await world.stored())["web-1"] == (100, 100)
    assert world.wrapped.deletions == before


async def test_batch_that_was_refused_leaves_no_doubt():
    world = World()
    world.wrapped.failure = PermanentStoreError("400")
    with pytest.raises(PermanentStoreError):
        await world.writer.write([batch(1)])
    world.wrapped.failure = None
    await world.leave()
    await world.writer.write([batch(1)])
    assert world.wrapped.deletions == 0


async def test_series_that_cannot_be_deleted_again_keep_the_batch():
    world = World()
    world.wrapped.meanwhile = world.leave
    world.wrapped.delete_failure = PermanentStoreError("422")
    for _ in range(2):
        with pytest.raises(TemporaryStoreError, match=r"web-1.*brought back.*422"):
            await world.writer.write([batch(9)])
    world.wrapped.delete_failure = None
    await world.writer.write([batch(9)])
    assert await world.stored() == {}
    assert world.dropped == 1


@pytest.mark.parametrize("error", [DeparturesError("away"), RegistryError("away")], ids=repr)
async def test_nothing_is_written_while_nobody_can_tell(error):
    world = World()
    await world.leave()

    async def away(_):
        raise error

    if isinstance(error, DeparturesError):
        world.departures.of = away
    else:
        world.registry_fails = error
    with pytest.raises(TemporaryStoreError, match=r"cannot be told.*away"):
        await world.writer.write([batch(11)])
    assert await world.stored() == {}


@given(
    sent=st.lists(st.tuples(st.integers(0, 300), st.sampled_from("ab")), max_size=20),
    left=st.dictionaries(st.sampled_from("ab"), st.integers(0, 200)),
    known=st.sets(st.sampled_from("ab")),
)
async def test_the_sieve_says_what_its_picture_says(sent, left, known):
    world = World()
    world.clock.advance(400)
    world.known = {f"agent-{server}" for server in known}
    for server, at in left.items():
        await world.departures.note(
            Departure(company_id="acme", server_id=server, at=START + at, keeps_series=False)
        )
    batches = [batch(at, server=server) for at, server in sent]
    sifted = await world.sieve.to_store(batches)
    late = [
        one
        for one, (at, server) in zip(batches, sent, strict=True)
        if server in left
        and (at <= left[server] or (at <= left[server] + 60 and server not in known))
    ]
    assert sifted.gone == late
    assert sifted.living == [one for one in batches if one not in late]
    with anyio.fail_after(5):
        await world.writer.write(batches)
    assert world.dropped == len(late)
