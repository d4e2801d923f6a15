"""The table of leases: however workers are held up, a shard never has two owners."""

from types import SimpleNamespace

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ahcollector.bus import SHARDS
from ahcollector.bus._jetstream_api import WRONG_REVISION, JetStreamRefusedError
from ahcollector.bus._jetstream_leases import JetStreamLeases
from ahcollector.bus._jetstream_setup import Names
from ahcollector.bus._jetstream_table import Beats, Owner, Table, read_table
from ahcollector.errors import BusError
from ahcollector.testing import FakeClock

LEASE_SECONDS = 15.0
SOME = range(6)


class Tenure:
    """A lease as the leases see it; it works as long as it says it is valid."""

    def __init__(self, shard, fence, until, clock):
        self.shard, self.fence, self.until, self.clock = shard, fence, until, clock
        self.is_leaving = self.is_lost = False
        self.tries = SimpleNamespace(newest_fence=0, is_strange=False)

    def is_valid(self):
        return not self.is_lost and self.clock.monotonic() < self.until

    def end(self, *, lost):
        self.is_leaving = True
        self.is_lost = self.is_lost or lost

    def close(self):
        pass

    def interrupted(self):
        return None

    async def make_good(self, interrupted):
        pass


class Cell:
    """The key of the bucket, and what becomes of requests on their way there and back."""

    def __init__(self):
        self.revision, self.data = 0, None

    def get(self):
        return SimpleNamespace(seq=self.revision, data=self.data) if self.revision else None

    def put(self, data, expected):
        if expected != self.revision:
            raise JetStreamRefusedError("wrong last sequence", number=WRONG_REVISION)
        self.revision, self.data = self.revision + 1, data


class Line:
    """One worker's way to the cell: `meanwhile` is what happens while a request is on it."""

    def __init__(self, cell):
        self.cell = cell
        self.meanwhile = []
        self.fate = "answered"

    async def get(self, _, **__):
        found = self.cell.get()
        await self.wait()
        return found

    async def put(self, _, data, headers):
        expected = int(headers["Nats-Expected-Last-Subject-Sequence"])
        await self.wait()
        fate, self.fate = self.fate, "answered"
        if fate == "not sent":
            raise BusError("injected: not sent")
        self.cell.put(data, expected)
        await self.wait()
        if fate == "answer lost":
            raise BusError("injected: the answer was lost")
        return {"seq": self.cell.revision}

    async def wait(self):
        if self.meanwhile:
            await self.meanwhile.pop()()


class Worker:
    """One worker, whose steady clock began at another time than the others'."""

    def __init__(self, name, cell, shift):
        self.clock = FakeClock(now=1_700_000_000.0 + 5_000 * shift)
        self.clock.advance(10_000.0 * shift)
        self.line = Line(cell)
        self.is_busy = False
        self.given_up = []
        self.begun = []
        self.found = []
        self.leases = JetStreamLeases(
            worker=name,
            wants=SOME,
            api=self.line,
            names=Names(prefix="ah"),
            clock=self.clock,
            lease_seconds=LEASE_SECONDS,
            begin=self.begin,
            give_up=self.give_up,
            found=self.found.extend,
        )

    def begin(self, shard, fence, until):
        # No fence is used twice: consumers are named by it.
        assert (shard, fence) not in self.begun
        self.begun.append((shard, fence))
        return Tenure(shard, fence, until, self.clock)

    def give_up(self, tenure):
        tenure.end(lost=False)
        self.given_up.append(tenure)

    async def round(self):
        if self.is_busy:
            return
        self.is_busy = True
        try:
            await self.leases.round()
            while self.given_up:
                await self.leases.release([self.given_up[-1]])
                self.given_up.pop()
        except BusError:
            self.leases.drop_ended()
        finally:
            self.is_busy = False

    def owns(self):
        tenures = self.leases.tenures.items()
        return {shard: one.fence for shard, one in tenures if one.is_valid() and not one.is_leaving}


def check(workers, fences):
    held = [shard for worker in workers for shard in worker.owns()]
    assert len(held) == len(set(held)), [worker.owns() for worker in workers]
    for worker in workers:
        for shard, fence in worker.owns().items():
            assert fence >= fences.get(shard, 0)
            fences[shard] = fence


steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0.0, 1.0, 13.9, 15.1]),
        st.sampled_from(["answered", "answered", "answered", "not sent", "answer lost"]),
        # What happens while its requests are on their way: others act, time passes.
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0, 13.9, 15.1])),
            max_size=3,
        ),
    ),
    max_size=30,
)


@given(steps=steps)
@settings(max_examples=100, deadline=None)
def test_a_shard_never_has_two_owners_however_requests_are_held_up(steps):
    async def run():
        cell = Cell()
        workers = [Worker(f"w{n}", cell, n) for n in range(3)]
        fences = {}

        def pass_time(seconds):
            for worker in workers:
                worker.clock.advance(seconds)
            check(workers, fences)

        for who, pause, fate, meanwhile in steps:
            pass_time(pause)
            worker = workers[who]
            worker.line.fate = fate

            def acts(other, seconds):
                async def act():
                    pass_time(seconds)
                    await workers[other].round()
                    check(workers, fences)

                return act

            worker.line.meanwhile = [acts(*one) for one in meanwhile]
            await worker.round()
            worker.line.meanwhile = []
            check(workers, fences)
        # Left alone for long enough, they have everything between them.
        for worker in workers:
            worker.line.fate = "answered"
        for _ in range(60):
            pass_time(1.0)
            for worker in workers:
                await worker.round()
                check(workers, fences)
        assert sorted(shard for worker in workers for shard in worker.owns()) == list(SOME)
        assert {len(worker.owns()) for worker in workers} == {2}

    anyio.run(run)


@pytest.mark.anyio
async def test_a_lease_ends_for_its_owner_before_anybody_counts_him_as_gone():
    cell = Cell()
    owner, heir = Worker("owner", cell, 0), Worker("heir", cell, 1)
    heir.leases.takes_more = False
    await owner.round()

    async def seen():
        # Its renewal is written; the answer to it is held up for long.
        await heir.round()
        pass_time(10.0)

    def pass_time(seconds):
        for worker in (owner, heir):
            worker.clock.advance(seconds)

    owner.line.meanwhile = [seen, anyio.lowlevel.checkpoint, anyio.lowlevel.checkpoint]
    await owner.round()
    assert owner.owns().keys() == set(SOME)
    heir.leases.takes_more = True
    pass_time(4.9)
    await heir.round()
    assert not heir.owns()
    assert owner.owns()
    pass_time(0.1)
    assert not owner.owns()
    await heir.round()
    assert heir.owns().keys() == set(SOME)
    # The old one renews without knowing, and has nothing.
    await owner.round()
    assert not owner.owns()


@pytest.mark.anyio
async def test_shards_won_by_a_write_whose_answer_was_lost_are_won_anew():
    worker = Worker("w", Cell(), 0)
    worker.line.fate = "answer lost"
    await worker.round()
    assert not worker.owns()
    first = {
        shard: owner.fence for shard, owner in read_table(worker.line.cell.data).owners.items()
    }
    await worker.round()
    assert worker.owns().keys() == first.keys() == set(SOME)
    assert all(fence > first[shard] for shard, fence in worker.owns().items())
    # One that stops takes nothing, also not what it does not know to be its own.
    other = Worker("x", Cell(), 0)
    other.line.fate = "answer lost"
    await other.round()
    other.leases.takes_more = False
    await other.round()
    assert not read_table(other.line.cell.data).owners


@given(
    st.builds(
        Table,
        fence=st.integers(0, 2**60),
        beats=st.dictionaries(st.text(max_size=5), st.integers(0, 99), max_size=4),
        owners=st.dictionaries(
            st.integers(0, SHARDS - 1),
            st.builds(Owner, worker=st.text(max_size=5), fence=st.integers(0, 2**60)),
        ),
    )
)
def test_a_table_is_read_as_it_was_written(table):
    found = read_table(table.write())
    assert (found.fence, found.beats, found.owners) == (table.fence, table.beats, table.owners)
    assert found.wants == {name: frozenset() for name in table.beats}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"fence":1,"workers":[1],"owners":{}}'])
def test_what_is_no_table_is_none(data):
    assert read_table(data) is None


def test_fences_rise_by_the_time_and_by_each_taking():
    table = Table().taken("a", [1, 2], now_ms=1_000)
    assert [table.owners[shard].fence for shard in (1, 2)] == [1_000, 1_001]
    table = table.taken("b", [3], now_ms=5)
    assert table.owners[3] == Owner(worker="b", fence=1_002)
    assert table.released(3, 1_001) is table
    assert 3 not in table.released(3, 1_002).owners
    assert set(table.without(["a"]).owners) == {3}


def test_an_owner_that_no_beat_speaks_for_is_gone():
    beats = Beats(lease_seconds=1.0)
    table = Table(owners={1: Owner(worker="ghost", fence=1)})
    assert beats.gone(table, now=0.0) == {"ghost"}


@pytest.mark.anyio
async def test_a_table_that_others_change_all_the_time_is_given_up_for_now():
    worker = Worker("w", Cell(), 0)

    class Contended(Cell):
        def put(self, data, expected):
            raise JetStreamRefusedError("wrong last sequence", number=WRONG_REVISION)

    worker.line.cell = Contended()
    with pytest.raises(BusError, match="were changed by others 50 times"):
        await worker.leases.round()
    worker.line.put = refused
    with pytest.raises(BusError, match="no room"):
        await worker.leases.round()


async def refused(*_):
    raise JetStreamRefusedError("no room", number=1)
