"""Many tasks, one write: nobody waits for nothing, and nobody's end harms another."""

import anyio
import pytest

from ahcollector._gather import Gather
from ahcollector.errors import CollectorError, PresenceError

pytestmark = pytest.mark.anyio


class Store:
    """Takes groups, one at a time, each when the gate is open."""

    def __init__(self):
        self.groups = []
        self.under_way = 0
        self.gate = anyio.Event()
        self.gate.set()
        self.failure = None

    async def write(self, items):
        assert not self.under_way, "one group at a time"
        self.under_way += 1
        try:
            await self.gate.wait()
        finally:
            self.under_way -= 1
        if self.failure is not None:
            raise self.failure
        self.groups.append(list(items))
        return {}


async def test_items_that_come_during_a_write_go_together_in_their_order():
    store = Store()
    gather = Gather(write=store.write, items_max=200)
    store.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gather.put, 0)
        await anyio.wait_all_tasks_blocked()
        for item in range(1, 100):
            tasks.start_soon(gather.put, item)
        await anyio.wait_all_tasks_blocked()
        store.gate.set()
    assert store.groups == [[0], list(range(1, 100))]


async def test_no_group_is_larger_than_allowed():
    store = Store()
    gather = Gather(write=store.write, items_max=7)
    async with anyio.create_task_group() as tasks:
        for item in range(100):
            tasks.start_soon(gather.put, item)
    assert [item for group in store.groups for item in group] == list(range(100))
    assert max(map(len, store.groups)) == 7
    with pytest.raises(ValueError, match="at least 1"):
        Gather(write=store.write, items_max=0)


async def test_a_group_that_is_large_takes_no_further_item():
    store = Store()
    gather = Gather(write=store.write, items_max=200, size_of=len, size_max=10)
    async with anyio.create_task_group() as tasks:
        for item in ("four", "six---", "x" * 50, "nine-----", "", "y", "z"):
            tasks.start_soon(gather.put, item)
    assert store.groups == [["four", "six---"], ["x" * 50], ["nine-----", "", "y"], ["z"]]


async def test_the_order_holds_although_the_first_to_write_a_full_group_is_cancelled():
    store = Store()
    gather = Gather(write=store.write, items_max=2)
    store.gate = anyio.Event()
    scopes = {}

    async def put(item):
        with anyio.CancelScope() as scopes[item]:
            await gather.put(item)

    async with anyio.create_task_group() as tasks:
        for item in range(6):
            tasks.start_soon(put, item)
            await anyio.wait_all_tasks_blocked()
        scopes[1].cancel()
        await anyio.wait_all_tasks_blocked()
        store.gate.set()
    assert store.groups == [[0], [1, 2], [3, 4], [5]]


async def test_what_ends_in_an_unforeseen_way_is_taken_for_written_by_nobody():
    async def write(items):
        await anyio.wait_all_tasks_blocked()
        raise LookupError("a fault of ours")

    gather = Gather(write=write, items_max=200)
    ended = []

    async def put(item):
        try:
            await gather.put(item)
        except (LookupError, CollectorError) as error:
            ended.append(str(error))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for item in range(4):
                tasks.start_soon(put, item)
    assert len(ended) == 4


async def test_an_error_reaches_every_task_of_its_group_and_no_other():
    store = Store()
    gather = Gather(write=store.write, items_max=200)
    store.gate = anyio.Event()
    store.failure = PresenceError("no answer")
    errors = []

    async def put(item):
        try:
            await gather.put(item)
        except PresenceError as error:
            errors.append((item, str(error), id(error)))

    async with anyio.create_task_group() as tasks:
        for item in range(3):
            tasks.start_soon(put, item)
        await anyio.wait_all_tasks_blocked()
        for item in range(3, 6):
            tasks.start_soon(put, item)
        gate, store.gate = store.gate, anyio.Event()
        gate.set()
        await anyio.wait_all_tasks_blocked()
        assert sorted(item for item, _, _ in errors) == [0, 1, 2]
        store.failure = None
        store.gate.set()
    assert {text for _, text, _ in errors} == {"no answer"}
    assert len({which for _, _, which in errors}) == 3
    assert store.groups == [[3, 4, 5]]


@pytest.mark.parametrize("cancelled", range(5))
async def test_a_cancelled_task_takes_nobody_along(cancelled):
    """C13. Also the one whose turn it was to write: another one writes."""
    store = Store()
    gather = Gather(write=store.write, items_max=200)
    store.gate = anyio.Event()
    scopes, ended = {}, []

    async def put(item):
        with anyio.CancelScope() as scopes[item]:
            await gather.put(item)
            ended.append(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put, "first")
        await anyio.wait_all_tasks_blocked()
        for item in range(5):
            tasks.start_soon(put, item)
        await anyio.wait_all_tasks_blocked()
        scopes[cancelled].cancel()
        await anyio.wait_all_tasks_blocked()
        store.gate.set()
    assert sorted(ended, key=str) == sorted([*(set(range(5)) - {cancelled}), "first"], key=str)
    written = [item for group in store.groups[1:] for item in group]
    assert set(written) >= set(range(5)) - {cancelled}
    assert len(written) == len(set(written))


async def test_a_write_that_began_is_finished_although_its_task_is_cancelled():
    store = Store()
    gather = Gather(write=store.write, items_max=200)
    store.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:

            async def one_and_cancel():
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                await anyio.wait_all_tasks_blocked()
                store.gate.set()

            tasks.start_soon(one_and_cancel)
            await gather.put("mine")
    assert store.groups == [["mine"]]
    await gather.put("later")
    assert store.groups[-1] == ["later"]


async def test_when_all_of_a_group_are_cancelled_the_next_one_goes_on():
    store = Store()
    gather = Gather(write=store.write, items_max=200)
    store.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gather.put, "first")
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as doomed:
            for item in range(3):
                doomed.start_soon(gather.put, item)
            await anyio.wait_all_tasks_blocked()
            doomed.cancel_scope.cancel()
        tasks.start_soon(gather.put, "next")
        await anyio.wait_all_tasks_blocked()
        store.gate.set()
    assert store.groups[0] == ["first"]
    assert store.groups[-1][-1] == "next"
