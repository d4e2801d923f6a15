"""Acknowledged means durable: between an in-process bus and a store that forgets, in fake time."""

import logging

import pytest
from forgetful_world import AFTER, SERVERS, ForgetfulStore, World, settle
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.alerts import ObservingWriter
from ahcollector.bus import TRIES_MAX, shard_for
from ahcollector.departures import MemoryDepartures, Sieve, SparingWriter
from ahcollector.store import Restarts
from ahcollector.testing import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


async def test_a_batch_is_acknowledged_when_the_store_has_lived_long_enough_after_it():
    async with World() as world:
        await world.publish(3)
        await world.wait(0.5)
        assert world.store.has() == {0, 1, 2}
        assert world.worker.stats().held == world.sample("ahc_worker_held_batches") == 3
        assert world.worker.stats().pending_samples == 0
        await world.wait(14.4)
        assert world.acknowledged() == set()
        await world.wait(AFTER / 3 + 0.2)
        assert world.acknowledged() == {0, 1, 2}
        assert world.worker.stats().held == world.sample("ahc_worker_held_batches") == 0
        assert world.worker.stats().rewritten == 0


async def test_a_store_that_was_started_again_gets_everything_of_its_last_seconds_once_more(caplog):
    async with World() as world:
        await world.publish(5)
        await world.wait(10)
        world.store.kill()
        world.store.start()
        assert world.store.has() == set()
        await world.publish(1)
        with caplog.at_level(logging.WARNING, "ahcollector.worker"):
            await world.wait(6)
        assert world.store.has() == set(range(6))
        assert world.acknowledged() == set()
        assert world.worker.stats().rewritten == world.sample("ahc_tsdb_rewritten_total") == 6
        [line] = caplog.records
        assert (line.batches, line.error) == (6, "it was started again")
        # They wait anew, the whole time.
        await world.wait(13)
        assert world.acknowledged() == set()
        await world.wait(8)
        assert world.acknowledged() == set(range(6))
        assert world.worker.stats().rewritten == 6


async def test_a_store_that_does_not_tell_is_not_written_to_and_then_gets_all_again():
    """It may have been killed and started, and nobody would know."""
    async with World() as world:
        await world.publish(2)
        await world.wait(10)
        world.store.tells = False
        await world.publish(1)
        await world.wait(600)
        assert world.acknowledged() == set()
        writes = len(world.store.writes)
        await world.publish(1)
        await world.wait(60)
        assert len(world.store.writes) == writes
        world.store.tells = True
        await world.wait(60)
        assert world.acknowledged() == {0, 1, 2, 3}


@pytest.mark.parametrize("write_seconds", [4.0, 9.0])
async def test_a_write_that_saw_two_lives_is_written_again(write_seconds):
    """Its first part went with the first life, and the whole succeeded; the longer one after that
    was known."""
    async with World(write_seconds=write_seconds) as world:
        await world.publish(6)
        await world.wait(2.5)
        world.store.kill()
        world.store.start()
        for _ in range(100):
            await world.wait(1)
            world.check()
        assert world.acknowledged() == set(range(6)) == world.store.kept
        assert world.worker.stats().rewritten > 0


async def test_what_the_store_refused_is_acknowledged_when_the_dead_letters_have_it():
    async with World() as world:
        world.store.poison = {1}
        await world.publish(6)
        await world.wait(1)
        assert world.acknowledged() == {1}
        assert await world.dead.count() == 1
        await world.wait(25)
        assert world.acknowledged() == set(range(6))
        assert world.worker.stats().held == 0


async def test_so_many_may_be_held_and_then_the_shards_wait():
    async with World(held_max=10, flush_samples=4) as world:
        await world.publish(60)
        await world.wait(2)
        stats = world.worker.stats()
        assert stats.held == 8
        # Each shard has four flushes in memory, and one batch that waits to be put there.
        assert 0 < stats.pending_samples <= 3 * 16
        assert world.sample("ahc_worker_pending_samples") == stats.pending_samples
        assert max(world.bus.depth().values()) > 0
        await world.wait(200)
        assert world.acknowledged() == set(range(60))
        assert world.sample("ahc_worker_held_batches") == 0
        assert world.sample("ahc_worker_pending_samples") == 0


async def test_one_write_over_the_bound_goes_when_nothing_else_is_held():
    async with World(held_max=1) as world:
        await world.publish(30)
        await world.wait(100)
        assert world.acknowledged() == set(range(30))


@pytest.mark.parametrize("ask_seconds", [0.0, 4.0])
@pytest.mark.parametrize("begin", [0.1, 2.3, 4.5, 8.2, 9.3, 10.4])
async def test_at_whatever_moment_it_is_killed_nothing_acknowledged_goes(begin, ask_seconds):
    """Also between an answer and its arrival: it vouches for what was old enough when asked."""
    for kill in range(28, 60):
        async with World(ask_seconds=ask_seconds) as world:
            await world.publish(1)
            await world.wait(begin)
            await world.publish(3)
            await world.wait(kill / 2 - begin)
            world.check()
            world.store.kill()
            world.store.start()
            for _ in range(12):
                await world.wait(0.5)
                world.check()


async def test_a_store_that_is_down_costs_no_batch_a_try_however_often_workers_change():
    async with World() as world:
        world.store.kill()
        await world.publish(9)
        for _ in range(2 * TRIES_MAX):
            await world.wait(3)
            await world.replace_worker()
        world.store.start()
        await world.wait(60)
        assert world.acknowledged() == set(range(9))
        assert world.bus.dead.total == 0
        assert await world.dead.count() == 0


async def test_while_the_store_hangs_the_shards_ask_once_together():
    """And do not queue up for a question each, of ten seconds."""
    async with World(ask_seconds=10.0) as world:
        world.store.tells = False
        await world.publish(3)
        await world.wait(0.5 + 10.0)
        assert world.store.asked == 1
        # All that failed together is one failure: the next try is after the first step, or sooner.
        await world.wait(0.2)
        assert world.store.asked == 2
        world.store.tells = True
        await world.wait(40)
        assert world.store.has() == {0, 1, 2}


async def test_a_fault_in_asking_costs_no_batch(caplog):
    async with World() as world:

        async def faulty():
            raise ZeroDivisionError("bug")

        epoch, world.store.epoch = world.store.epoch, faulty
        await world.publish(3)
        await world.wait(60)
        assert await world.dead.count() == 0
        assert "for an unexpected reason" in caplog.text
        world.store.epoch = epoch
        await world.wait(100)
        assert world.acknowledged() == {0, 1, 2}


class SilentStore:
    """Does not tell whether it was started again."""

    def __init__(self, store):
        self.write = store.write


@pytest.mark.parametrize(
    "settings",
    [
        {"restarts": None, "wrap": SilentStore},
        {"durable_after_seconds": -1.0},
        {"held_max": 0},
    ],
)
async def test_what_cannot_be_kept_is_refused(settings):
    with pytest.raises(ValueError, match="it takes a positive time, room for"):
        World(**settings)


class Nobody:
    async def observed(self, batches):
        pass


def observed(store):
    return ObservingWriter(writer=store, observer=Nobody())


def spared(store):
    sieve = Sieve(departures=MemoryDepartures(), is_known=None, clock=FakeClock())
    return SparingWriter(writer=store, deleter=store, sieve=sieve)


WRAPS = [lambda store: store, observed, spared, lambda store: spared(observed(store))]


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_writer_before_a_store_tells_of_its_starts_as_far_as_the_store_does(wrap):
    clock = FakeClock()
    assert isinstance(wrap(ForgetfulStore(clock)), Restarts)
    assert not isinstance(wrap(SilentStore(ForgetfulStore(clock))), Restarts)


@pytest.mark.parametrize("wrap", WRAPS)
async def test_a_store_that_tells_its_starts_is_given_its_time_without_being_told_to(wrap):
    async with World(durable_after_seconds=None, restarts=None, wrap=wrap) as world:
        await world.publish(2)
        await world.wait(14)
        assert world.acknowledged() == set()
        world.store.kill()
        world.store.start()
        await world.wait(8)
        assert world.worker.stats().rewritten == 2
        await world.wait(AFTER * 2)
        assert world.acknowledged() == {0, 1}


@pytest.mark.parametrize(
    "settings", [{"durable_after_seconds": None, "wrap": SilentStore}, {"durable_after_seconds": 0}]
)
async def test_what_is_written_is_acknowledged_at_once_where_nothing_tells_or_so_it_is_set(
    settings,
):
    async with World(restarts=None, **settings) as world:
        await world.publish(2)
        await world.wait(1)
        assert world.acknowledged() == {0, 1}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6)),
        st.tuples(st.just("wait"), st.floats(0.1, 20)),
        st.tuples(st.sampled_from(["kill", "start", "restart", "mute", "speak", "replace"])),
    ),
    min_size=5,
    max_size=40,
)


@given(
    steps=STEPS,
    write_seconds=st.sampled_from([0.0, 0.3, 3.0, 9.0]),
    ask_seconds=st.sampled_from([0.0, 0.5, 6.0]),
    held_max=st.sampled_from([4, 1_000]),
)
async def test_whatever_happens_what_is_acknowledged_is_durable_and_in_the_end_everything_is(
    steps, write_seconds, ask_seconds, held_max
):
    """C6, C8: kills, silent restarts, stores that do not tell, workers cancelled anywhere."""
    async with World(
        write_seconds=write_seconds, ask_seconds=ask_seconds, held_max=held_max, flush_samples=3
    ) as world:
        for what, *number in steps:
            if what == "publish":
                await world.publish(*number)
            elif what == "wait":
                await world.wait(*number)
            elif what == "replace":
                await world.replace_worker()
            elif what in {"mute", "speak"}:
                world.store.tells = what == "speak"
            else:
                if what != "start":
                    world.store.kill()
                if what != "kill":
                    world.store.start()
            await settle()
            world.check()
        world.store.tells = True
        world.store.start()
        for _ in range(100):
            await world.wait(60)
            if world.acknowledged() == set(world.published):
                break
        world.check()
        assert world.acknowledged() == set(world.published)
        assert world.worker.stats().held == 0
        assert world.bus.dead.total == 0


def test_the_servers_of_these_tests_are_in_three_shards():
    assert len({shard_for(server) for server in SERVERS}) == 3
