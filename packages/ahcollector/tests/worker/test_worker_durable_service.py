"""A worker between a real Redis and a real VictoriaMetrics, either side killed with -9."""

import random
import signal
import subprocess
import sys
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from durable_stage import SERVERS, Stage, client_of, store_of, worker_of

pytestmark = [pytest.mark.anyio, pytest.mark.service, pytest.mark.fault]

# Not there where the package is tested alone.
VictoriaMetricsServer = pytest.importorskip("testkit.victoria_metrics").VictoriaMetricsServer
SCRIPT = Path(__file__).with_name("durable_process.py")
# A lease, and the time in which the other one looks; thrice, for this machine has others to serve.
TAKE_OVER_SECONDS = 3 * (1.5 + 0.5)


class Scene:
    """A VictoriaMetrics, a Redis with a prefix of the test's own, and who publishes there."""

    def __init__(self, redis, server, stack):
        self.server = server
        self.stack = stack
        self.redis_port = redis.port
        self.prefix = f"{uuid.uuid4().hex}:"

    async def open(self):
        self.client = client_of(self.redis_port, self.prefix)
        self.stack.push_async_callback(self.client.aclose)
        self.store = await self.stack.enter_async_context(store_of(self.server.url))
        self.stage = Stage(
            client=self.client,
            store=self.store,
            company_id=f"company-{uuid.uuid4().hex}",
            t0_ms=round(time.time()) * 1_000 - 3_600_000,
        )
        return self

    def worker(self, after_seconds):
        return worker_of(self.client, self.store, name="here", durable_after_seconds=after_seconds)

    def process(self, name, after_seconds):
        arguments = (self.redis_port, self.prefix, self.server.url, name, after_seconds)
        process = subprocess.Popen([sys.executable, str(SCRIPT), *map(str, arguments)])
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    async def kill_and_start_store(self):
        await anyio.to_thread.run_sync(self.server.kill)
        await anyio.to_thread.run_sync(self.server.start)


@pytest.fixture
async def scene(redis_server, victoria_metrics, anyio_backend):
    """Its VictoriaMetrics is shared: not to be killed."""
    async with AsyncExitStack() as stack:
        yield await Scene(redis_server, victoria_metrics, stack).open()


@pytest.fixture
async def killable(redis_server, start_service, anyio_backend):
    """Its VictoriaMetrics is the test's own."""
    async with AsyncExitStack() as stack:
        yield await Scene(redis_server, start_service(VictoriaMetricsServer), stack).open()


async def test_what_victoria_metrics_loses_in_a_kill_is_written_again(killable):
    """C6: over five seconds, because a start is known from its third second on."""
    worker = killable.worker(3.0)
    stage = killable.stage
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await stage.publish(200)
        await stage.all_written()
        assert await stage.readable() == stage.everything_once()
        await killable.kill_and_start_store()
        assert len(await stage.readable()) < 200, "it was readable, and it was not durable"
        await stage.publish(50)
        await stage.all_acknowledged()
        assert await stage.readable() == stage.everything_once()
        stats = worker.stats()
        # Of the last fifty, those that were written before the worker saw the start, too.
        assert 200 <= stats.rewritten <= 250
        assert (stats.held, stats.dead) == (0, 0)
        tasks.cancel_scope.cancel()


async def test_a_killed_worker_leaves_what_is_not_durable_to_the_other_one(scene):
    """Each server's batches in their order, and whatever was written before is written again."""
    doomed = scene.process("doomed", 1_000.0)
    heir = scene.process("heir", 1.0)
    stage = scene.stage
    with anyio.fail_after(60):
        while {line["by"] for line in (await stage.ledger())[-200:]} < {"doomed", "heir"}:
            await stage.publish(20)
            await anyio.sleep(0.05)
    await stage.all_written()
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    by_doomed = {line["number"] for line in await stage.ledger() if line["by"] == "doomed"}
    await stage.publish(200)
    await stage.all_written(TAKE_OVER_SECONDS)
    await stage.all_acknowledged()
    lines = await stage.ledger()
    assert by_doomed <= {line["number"] for line in lines if line["by"] == "heir"}
    for server in SERVERS:
        mine = [line["number"] for line in lines if line["server"] == server]
        assert list(dict.fromkeys(mine)) == sorted(set(mine))
    assert await stage.readable() == stage.everything_once()
    assert heir.poll() is None


async def test_a_worker_that_is_stopped_writes_what_it_has_and_leaves_the_rest_on_the_bus(scene):
    """The rest is what comes while it stops, and what is not known to be durable."""
    stage = scene.stage

    async def keep_publishing():
        while True:
            await stage.publish(5)
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as publishing:
        publishing.start_soon(keep_publishing)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.worker(15.0).run)
            with anyio.fail_after(20):
                while len(await stage.ledger()) < 50:
                    await anyio.sleep(0.01)
            began = time.monotonic()
            tasks.cancel_scope.cancel()
        assert time.monotonic() - began < 2.0, "it waits for nobody else's batches"
        written = {line["number"] for line in await stage.ledger()}
        publishing.cancel_scope.cancel()
    await stage.publish(5)
    assert len(written) < stage.published == await stage.on_the_bus()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.worker(0.0).run)
        await stage.all_acknowledged()
        tasks.cancel_scope.cancel()
    assert await stage.readable() == stage.everything_once()


async def test_a_closed_bus_ends_the_worker_when_all_is_written_and_acknowledged(scene):
    """Also what its buffers had when the last entry was handed over."""
    stage = scene.stage
    await stage.publish(300)
    worker = scene.worker(0.0)
    await worker._bus.close()
    with anyio.fail_after(20):
        await worker.run()
    assert await stage.on_the_bus() == 0
    assert await stage.readable() == stage.everything_once()


async def test_a_store_that_is_down_costs_no_batch_a_try_however_often_workers_change(killable):
    """C9: what is down is the store, and no batch is to blame for it."""
    stage = killable.stage
    await stage.publish(40)
    await anyio.to_thread.run_sync(killable.server.kill)
    for _ in range(7):
        with anyio.move_on_after(0.4):
            worker = killable.worker(1.0)
            worker._shutdown_flush_seconds = 0.05
            await worker.run()
    await anyio.to_thread.run_sync(killable.server.start)
    worker = killable.worker(1.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await stage.all_acknowledged()
        tasks.cancel_scope.cancel()
    assert await stage.readable() == stage.everything_once()
    assert await stage.bus.dead.count() == 0
    assert worker.stats().dead == 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
async def test_what_is_acknowledged_survives_any_kill(killable, seed):
    """C6: the whole 15 s, with kills at random, and a last one when the bus is empty."""
    rng = random.Random(seed)
    stage = killable.stage
    async with anyio.create_task_group() as tasks:
        worker = killable.worker(15.0)
        tasks.start_soon(worker.run)
        for _ in range(5):
            for _ in range(rng.randrange(1, 10)):
                await stage.publish(rng.randrange(1, 40))
                await anyio.sleep(rng.random() * 3)
            await killable.kill_and_start_store()
        await stage.all_acknowledged(120)
        tasks.cancel_scope.cancel()
    await killable.kill_and_start_store()
    assert await stage.readable() == stage.everything_once()
    assert worker.stats().rewritten > 0
