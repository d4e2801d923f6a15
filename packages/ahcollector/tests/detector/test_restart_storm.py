"""C14: a collector that was off for 15 minutes finds who died, and only those.

10,000 agents, each with a phase and a backoff of its own (full jitter, 5 s to 300 s), in simulated
time. The collector is killed without a goodbye: its last snapshot is up to 5 s old.
"""

import heapq
import random

import pytest

from ahcollector.alerts import MemoryAlertStateStore
from ahcollector.detector import AgentEventStage, Detector
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.presence._snapshot import decode, encode
from ahcollector.testing import FakeClock
from ahwire import Backoff, EventType, UUID7Generator, phase_offset

pytestmark = pytest.mark.anyio
INTERVAL, DOWNTIME = 30.0, 900.0


class Fleet:
    """Agents that send each interval, and back off while nobody answers."""

    def __init__(self, count, rng, clock):
        self.clock = clock
        self.refs = [
            AgentRef(agent_id=f"agent-{n}", company_id=f"co-{n % 40}", server_id=f"server-{n}")
            for n in range(count)
        ]
        self.backoffs = [Backoff(5.0, 300.0, rng) for _ in range(count)]
        self.due = [
            (clock.time() + phase_offset(ref.agent_id, INTERVAL), n)
            for n, ref in enumerate(self.refs)
        ]
        heapq.heapify(self.due)
        self.died = set()

    async def send(self, until, presence, *, refuses=0.0, rng=None):
        """Let everybody send whose time has come; `refuses` of the requests get a 503."""
        while self.due and self.due[0][0] <= until:
            at, n = heapq.heappop(self.due)
            if n in self.died:
                continue
            if presence is not None:
                await presence.touch(self.refs[n], at, INTERVAL)
            if presence is None or (refuses and rng.random() < refuses):
                wait = self.backoffs[n].next()
            else:
                self.backoffs[n].reset()
                wait = INTERVAL
            heapq.heappush(self.due, (at + wait, n))


async def storm(*, seed, with_snapshot, refuses):
    rng = random.Random(seed)
    clock = FakeClock()
    ids = UUID7Generator(clock, rng)
    fleet = Fleet(10_000, rng, clock)
    outbox = MemoryOutbox()

    def process(image=None):
        presence = MemoryPresence(event_ids=ids.next, image=image)
        return presence, Detector(presence=presence, outbox=outbox, clock=clock)

    async def live(presence, detector, seconds, **how):
        for second in range(seconds):
            clock.advance(1)
            if presence is not None:
                await presence.beacon(clock.time())
            await fleet.send(clock.time(), presence, rng=rng, **how)
            if detector is not None and second % 10 == 0:
                await detector.scan()

    presence, detector = process()
    for ref in fleet.refs:
        await presence.ensure(ref, clock.time(), INTERVAL)
    await live(presence, detector, 300)
    image = decode(b"".join(encode(presence._image())))[0]
    await live(presence, detector, 5)
    assert await outbox.peek(1) == []

    died = rng.sample(range(10_000), 3)
    await live(None, None, 400)
    fleet.died.update(died)
    await live(None, None, round(DOWNTIME) - 400)

    presence, detector = process(image if with_snapshot else None)
    if not with_snapshot:
        # The registry makes its agents known again.
        for ref in fleet.refs:
            await presence.ensure(ref, clock.time(), INTERVAL)
    begin = clock.time()
    await live(presence, detector, 25, refuses=refuses)
    await live(presence, detector, 1_100)
    events = [entry.event for entry in await outbox.peek(1_000)]
    assert {event.agent_id for event in events} == {f"agent-{n}" for n in died}
    assert [event.type for event in events] == [EventType.AGENT_DOWN] * 3
    grace, threshold, scan = 300 + INTERVAL, 90, 10
    assert all(
        event.occurred_at.timestamp() <= begin + grace + threshold + scan + 1 for event in events
    )


@pytest.mark.parametrize("seed", [1, 2])
async def test_exactly_the_dead_go_down_after_a_restart(seed):
    await storm(seed=seed, with_snapshot=True, refuses=0.0)


async def test_also_when_half_are_refused_at_first():
    """An agent that was heard and told 503 is in its backoff again: the grace still covers it."""
    await storm(seed=3, with_snapshot=True, refuses=0.5)


async def test_also_when_the_snapshot_is_lost():
    await storm(seed=4, with_snapshot=False, refuses=0.0)


@pytest.mark.fault
async def test_detection_is_never_early_and_late_by_a_scan_at_most():
    """C14, C16: 10,000 agents, 300 of which die; four restarts; the rest is never suspected."""
    rng = random.Random(6)
    clock = FakeClock()
    ids = UUID7Generator(clock, rng)
    fleet = Fleet(10_000, rng, clock)
    outbox, store = MemoryOutbox(), MemoryAlertStateStore()
    died_at, heard, spared = {}, {}, []
    image = None

    def process():
        presence = MemoryPresence(event_ids=ids.next, image=image)
        stage = AgentEventStage(
            presence=presence, store=store, outbox=outbox, clock=clock, event_ids=ids.next
        )
        return presence, Detector(presence=presence, outbox=outbox, clock=clock, stage=stage)

    presence, detector = process()
    for ref in fleet.refs:
        await presence.ensure(ref, clock.time(), INTERVAL)
    for second in range(3_000):
        if second in {700, 1_200, 1_230, 2_000}:
            image = decode(b"".join(encode(presence._image())))[0]
            presence, detector = process()
            # Who waits in a grace is told of later.
            spared.append((clock.time() - 120, clock.time() + 360))
        clock.advance(1)
        await presence.beacon(clock.time())
        await fleet.send(clock.time(), presence)
        if second % 10 == 0:
            await detector.scan()
        if 300 <= second < 2_500 and rng.random() < 0.14:
            n = rng.choice([n for n in range(10_000) if n not in fleet.died])
            fleet.died.add(n)
            died_at[f"agent-{n}"] = clock.time()
            last = max(at for at, who in fleet.due if who == n) - INTERVAL
            heard[f"agent-{n}"] = last
    events = [entry.event for entry in await outbox.peek(100_000)]
    downs = {event.agent_id: event.occurred_at.timestamp() for event in events}
    assert len(events) == len(downs)
    assert downs.keys() == died_at.keys()
    assert len(downs) > 250
    delays = {agent: downs[agent] - heard[agent] for agent in downs}
    assert min(delays.values()) > 90
    calm = [
        delay
        for agent, delay in delays.items()
        if not any(begin <= died_at[agent] <= end for begin, end in spared)
    ]
    assert len(calm) > 100
    assert max(calm) <= 90 + 10 + 1
    for agent, at in downs.items():
        restarted = max((end for _, end in spared if end - 360 <= at), default=0.0) - 360
        assert at <= max(heard[agent], restarted + 300 + INTERVAL) + 90 + 10 + 1
