"""A silence that was told is not told again because a state file was damaged while all was off."""

import random

import pytest

from ahcollector.detector import Detector
from ahcollector.outbox import FileOutbox
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.testing import FakeClock
from ahwire import EventType, UUID7Generator

pytestmark = pytest.mark.anyio
A = AgentRef(agent_id="a", company_id="acme", server_id="s")
B = AgentRef(agent_id="b", company_id="acme", server_id="t")


class Server:
    """A process with its state in a directory; the hub takes every event."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = FakeClock()
        self.ids = UUID7Generator(self.clock, random.Random(1))
        self.alive = {A, B}
        self.told = []

    async def live(self, seconds):
        presence = await MemoryPresence.open(
            self.directory / "presence.json", event_ids=self.ids.next
        )
        outbox = await FileOutbox.open(self.directory / "outbox", now=self.clock.time())
        detector = Detector(presence=presence, outbox=outbox, clock=self.clock)
        for ref in (A, B):
            await presence.ensure(ref, self.clock.time(), 30.0)
        for second in range(0, seconds, 5):
            await presence.beacon(self.clock.time())
            if second % 30 == 0:
                for ref in self.alive:
                    await presence.touch(ref, self.clock.time(), 30.0)
            if second % 10 == 0:
                await detector.scan()
            await presence.save()
            waiting = [entry.event for entry in await outbox.peek(100)]
            self.told += waiting
            await outbox.ack([event.event_id for event in waiting], None)
            self.clock.advance(5)
        await presence.save()
        await outbox.close()


def emptied(data):
    del data
    return b""


def cut(data):
    return data[: len(data) // 2]


@pytest.mark.parametrize("damage", [emptied, cut])
@pytest.mark.parametrize("after_down", [10, 200])
async def test_a_damaged_presence_file_tells_no_silence_twice(tmp_path, damage, after_down):
    server = Server(tmp_path)
    await server.live(600)
    server.alive.discard(A)
    while not server.told:
        await server.live(600)
    await server.live(after_down)
    path = tmp_path / "presence.json"
    path.write_bytes(damage(path.read_bytes()))
    await server.live(900)
    assert [(event.type, event.agent_id) for event in server.told] == [(EventType.AGENT_DOWN, "a")]
    server.alive.add(A)
    await server.live(60)
    assert [event.type for event in server.told] == [EventType.AGENT_DOWN, EventType.AGENT_UP]
