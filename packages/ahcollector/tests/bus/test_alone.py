"""Turns of entries that may have ended a process."""

import anyio
import pytest

from ahcollector.bus._alone import Alone

pytestmark = pytest.mark.anyio


async def test_one_at_a_time_and_those_of_fewer_tries_first():
    alone, inside, order = Alone(), [], []

    async def work(name, tries):
        async with alone.turn(tries):
            inside.append(name)
            assert len(inside) == 1
            await anyio.wait_all_tasks_blocked()
            order.append(name)
            inside.remove(name)

    async with anyio.create_task_group() as tasks, alone.turn(2):
        for name, tries in [("a", 4), ("b", 2), ("c", 3), ("d", 2)]:
            tasks.start_soon(work, name, tries)
            await anyio.wait_all_tasks_blocked()
    assert order == ["b", "d", "c", "a"]


@pytest.mark.parametrize("is_its_turn", [False, True])
async def test_one_that_is_cancelled_keeps_nobody_waiting(is_its_turn):
    alone, done = Alone(), anyio.Event()

    async def work(scope, event):
        with scope:
            async with alone.turn(2):
                event.set()

    doomed, never = anyio.CancelScope(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        async with alone.turn(2):
            tasks.start_soon(work, doomed, never)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(work, anyio.CancelScope(), done)
            await anyio.wait_all_tasks_blocked()
            if not is_its_turn:
                doomed.cancel()
                await anyio.wait_all_tasks_blocked()
        # It has its turn and did not run yet.
        doomed.cancel()
        with anyio.fail_after(5):
            await done.wait()
    async with alone.turn(2):
        pass
