"""An orderly stop while nothing can be stored: what is lost by it is told."""

import logging

import anyio
import pytest
from alert_world import World, batch, rule

from ahcollector.alerts import MemoryAlertStateStore
from ahcollector.errors import AlertStateError, TemporaryStoreError

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Failing(MemoryAlertStateStore):
    """Once told to, refuses each commit, or never answers."""

    how = None

    async def commit(self, key, epoch, change):
        if self.how == "refuses":
            raise AlertStateError("No space left on device")
        if self.how == "hangs":
            await anyio.sleep_forever()
        await super().commit(key, epoch, change)


@pytest.fixture(name="passed")
async def _passed(anyio_backend):
    """Alerts of two servers opened, and one ended, in batches that were acknowledged."""
    world = World(rule(), store=Failing(), stop_seconds=0.1)
    for server in ("web-1", "web-2"):
        await world.feed([40], server=server)
    world.store.how = "refuses"
    batches = [batch(30, 60, server=server) for server in ("web-1", "web-2")]
    for one in batches:
        with pytest.raises(TemporaryStoreError):
            await world.show(one)
    world.clock.advance(60)
    for one in batches:
        await world.show(one)
    await world.show(batch(80, 40))
    return world


async def stop(world):
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()


def counted(world):
    return [
        world.metric(f'ahc_events_lost_total{{type="alert.{kind}"}}')
        for kind in ("opened", "resolved")
    ]


async def test_stop_that_can_store_nothing_counts_what_it_loses(passed, caplog):
    """Not put in the outbox: by the states that are stored they would be told once more."""
    with caplog.at_level(logging.ERROR):
        await stop(passed)
    assert counted(passed) == [2, 1]
    lost = [one for one in caplog.records if "at the stop" in one.message]
    assert sum(one.events for one in lost) == 3
    assert {one.company_id for one in lost} == {"acme"}
    assert await passed.told() == []


async def test_stop_whose_store_does_not_answer_counts_too(passed):
    passed.store.how = "hangs"
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            with anyio.move_on_after(0.05):
                await passed.engine.run()
            group.cancel_scope.cancel()
    assert counted(passed) == [2, 1]


async def test_stop_that_can_store_loses_nothing(passed, caplog):
    passed.store.how = None
    await stop(passed)
    assert counted(passed) == [0, 0]
    assert sorted(kind for kind, _ in await passed.told()) == ["opened", "opened", "resolved"]


async def test_batch_that_was_not_acknowledged_is_not_lost():
    """It comes again, and is judged again."""
    world = World(rule(), store=Failing())
    await world.feed([40])
    world.store.how = "refuses"
    with pytest.raises(TemporaryStoreError):
        await world.show(batch(20, 60))
    await stop(world)
    assert counted(world) == [0, 0]
    world.start()
    world.store.how = None
    await world.show(batch(20, 60))
    assert await world.told() == [("opened", "condition")]
