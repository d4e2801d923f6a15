"""When scans begin, and how work on many companies goes on at once."""

import itertools

import anyio
import pytest
from lit_fuse import Crash

from ahcollector.detector import Detector
from ahcollector.detector._together import together
from ahcollector.detector.carrier import Carried
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import MemoryPresence
from ahcollector.testing import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Slow:
    """Carries for some seconds, each time another number of them."""

    def __init__(self, clock, seconds, *, takes_turns):
        self.clock, self.seconds, self.takes_turns = clock, iter(seconds), takes_turns
        self.begun = []

    async def is_mine(self):
        return True

    async def carry(self, fetch, now):
        self.begun.append(self.clock.monotonic() - 1_000.0)
        await self.clock.sleep(next(self.seconds))
        return Carried(emitted=0, complete=True)

    async def drop(self):
        pass


@pytest.mark.parametrize("takes_turns", [False, True])
async def test_scans_begin_each_interval_however_long_one_takes(takes_turns):
    """What fell silent while a long scan went on is found at once behind it."""
    clock = FakeClock()
    stage = Slow(
        clock, itertools.chain([4.0, 9.5, 25.0], itertools.repeat(0.0)), takes_turns=takes_turns
    )
    numbers = itertools.count(1)
    detector = Detector(
        presence=MemoryPresence(event_ids=lambda: str(next(numbers))),
        outbox=MemoryOutbox(),
        clock=clock,
        stage=stage,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(detector.run)
        await clock.run_for(66.0)
        tasks.cancel_scope.cancel()
    assert stage.begun == [0.0, 10.0, 20.0, 45.0, 55.0, 65.0]


async def test_so_many_are_worked_on_at_once_in_their_order():
    begun, now, most = [], set(), 0

    async def work(item):
        nonlocal most
        begun.append(item)
        now.add(item)
        most = max(most, len(now))
        await anyio.sleep(0.001 * (item % 3))
        now.remove(item)

    await together(work, range(20), at_once=4)
    assert begun == list(range(20))
    assert most == 4
    await together(work, [], at_once=4)
    await together(work, [7], at_once=4)
    assert begun[20:] == [7]


@pytest.mark.parametrize("error", [Crash, ValueError])
async def test_an_error_ends_the_others_and_comes_without_a_group(error):
    done = []

    async def work(item):
        if item == 2:
            raise error("2")
        await anyio.sleep(5.0)
        done.append(item)

    with pytest.raises(error, match="2"):
        await together(work, range(9), at_once=3)
    assert done == []


async def test_who_cancels_it_cancels_all_of_it():
    ended = []

    async def work(item):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(item)

    with anyio.move_on_after(0.01) as scope:
        await together(work, range(9), at_once=3)
    assert scope.cancelled_caught
    assert sorted(ended) == [0, 1, 2]
