"""A worker whose store ends its process, on a real Redis and a real NATS."""

import os
import random
import signal
import subprocess
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from deadly_stage import bus_of, number_of, server_of

from ahcollector.bus import SHARDS, TRIES_MAX
from ahcollector.errors import BusError
from ahcollector.testing._contracts.bus import batch_of

pytestmark = [pytest.mark.anyio, pytest.mark.service, pytest.mark.fault]
SCRIPT = Path(__file__).with_name("deadly_process.py")
MARKED = 57


class Scene:
    """A bus, processes that work on it, and the ledger of what they wrote."""

    def __init__(self, kind, place, ledger, bus, prefix, stack):
        self.place = (kind, place, prefix)
        self.path = ledger
        self.bus = bus
        self.stack = stack

    def start(self, marked, *, durable_after_seconds, write_seconds=0.002):
        arguments = (*self.place, self.path, marked, durable_after_seconds, write_seconds)
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        process = subprocess.Popen(command, start_new_session=True)
        self.stack.callback(process.wait)
        self.stack.callback(os.killpg, process.pid, signal.SIGKILL)
        return process

    async def life(self, number):
        """Return the process that is the worker's life of that number, when it has begun."""
        with anyio.fail_after(60):
            while len(lives := self.ledger("life")) < number:
                await anyio.sleep(0.005)
        return lives[number - 1][0]

    async def free_shards(self):
        """Let the shards be free at once, as they are when the leases of the dead are over."""
        if self.place[0] == "redis":
            client = self.bus._client
            keys = [client.key("bus", "own", str(shard)) for shard in range(SHARDS)]
            await client.call("DEL", client.key("bus", "workers"), *keys)
        else:
            await self.bus._api.put(self.bus._names.key("leases"), b"", {})

    async def publish(self, numbers):
        for number in numbers:
            batch = batch_of(number, server_id=server_of(number))
            while True:
                try:
                    await self.bus.publish(batch)
                    break
                except BusError:
                    await anyio.sleep(0.02)

    def ledger(self, word):
        """Return the numbers of each write that ended so."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        return [[int(one) for one in rest] for first, *rest in lines if first == word]

    def written(self):
        return {number for write in self.ledger("wrote") for number in write}


@pytest.fixture(params=["redis", "nats"])
async def scene(request, tmp_path, anyio_backend):
    server = request.getfixturevalue(f"{request.param}_server")
    place = server.port if request.param == "redis" else server.url
    prefix = f"test-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        async with bus_of(request.param, place, prefix) as bus:
            yield Scene(request.param, place, tmp_path / "ledger", bus, prefix, stack)


@pytest.mark.parametrize("durable_after_seconds", [0.0, 1_000.0])
async def test_a_batch_that_ends_the_process_in_its_write_is_set_aside(
    scene, durable_after_seconds
):
    """C9: after five deaths; its neighbours are written, also those that were written with it."""
    await scene.publish(range(120))
    scene.start(MARKED, durable_after_seconds=durable_after_seconds)
    with anyio.fail_after(60):
        while not await scene.bus.dead.count():
            assert len(scene.ledger("died")) <= TRIES_MAX
            await anyio.sleep(0.02)
    assert len(scene.ledger("died")) == TRIES_MAX
    # From the third one on nothing else is at stake.
    assert scene.ledger("died")[2:] == [[MARKED]] * 3
    await scene.publish(range(120, 160))
    with anyio.fail_after(30):
        while scene.written() != set(range(160)) - {MARKED}:
            await anyio.sleep(0.02)
    [letter] = await scene.bus.dead.letters()
    assert number_of(letter.batch) == MARKED
    assert "the process ended, or its lease, in each of 5 tries" in letter.reason


@pytest.mark.parametrize("write_seconds", [0.002, pytest.param(0.05, marks=pytest.mark.nightly)])
async def test_killed_workers_make_no_dead_letter_of_what_is_innocent(scene, write_seconds):
    """C9: 20 kills at random, while everything that was ever written is held, too.

    With slow writes most of it is unwritten at each kill, and is then written one by one.
    """
    rng = random.Random(write_seconds)
    await scene.publish(range(400))
    scene.start(-1, durable_after_seconds=1_000.0, write_seconds=write_seconds)
    for number in range(1, 21):
        pid = await scene.life(number)
        await anyio.sleep(rng.random() * 0.4)
        os.kill(pid, signal.SIGKILL)
        await scene.free_shards()
    await scene.publish(range(400, 440))
    with anyio.fail_after(60):
        while len(scene.written()) < 440:
            await anyio.sleep(0.02)
    assert await scene.bus.dead.count() == 0


async def test_killed_workers_make_no_dead_letter_of_what_waits_for_a_store_that_hangs(scene):
    """C9: no write fails, no buffer is full, and no more than its second try is counted."""
    away = scene.path.with_name("ledger.away")
    away.touch()
    # One alone: kills cost several a try in turn.
    await scene.publish([0])
    scene.start(-1, durable_after_seconds=1_000.0)
    for number in range(1, TRIES_MAX + 3):
        pid = await scene.life(number)
        await anyio.sleep(0.4)
        os.kill(pid, signal.SIGKILL)
        await scene.free_shards()
    assert await scene.bus.dead.count() == 0
    away.unlink()
    with anyio.fail_after(60):
        while scene.written() != {0}:
            await anyio.sleep(0.02)
    assert await scene.bus.dead.count() == 0
