"""A process that watches agents in Redis and tells the hub; run by the tests.

    python detector_process.py PORT PREFIX HUB NAME LEDGER LEASE_SECONDS [stops]

Each transition that presence hands out, each turn that begins and each commit that is refused is a
line in the ledger. With `stops` it sends itself SIGSTOP before its first commit of an event.
"""

import json
import os
import random
import signal
import sys
import time

import anyio

from ahcollector.alerts import silences_in_force
from ahcollector.alerts.redis import RedisAlertStateStore
from ahcollector.clock import SystemClock
from ahcollector.detector import AgentEventStage, Detector
from ahcollector.detector.redis import RedisDetectorTurn
from ahcollector.errors import FencedAlertStateError
from ahcollector.hub import HttpHub
from ahcollector.outbox import OutboxSender
from ahcollector.outbox.redis import RedisLease, RedisOutbox
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig
from ahwire import UUID7Generator
from ahwire.hub import GroupDownSettings

GROUPS = GroupDownSettings(enabled=True, min=3, ratio=0.1, window_seconds=5.0)


class Ledger:
    """Lines of one file that several processes append to, each in one write."""

    def __init__(self, path, name):
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._name = name

    def write(self, **line):
        text = json.dumps({"by": self._name, "at": time.time(), **line})
        os.write(self._fd, f"{text}\n".encode())


class Handing(RedisPresence):
    """Notes what is handed out before anybody works on it."""

    ledger = None

    async def expire(self, now, limit):
        return self._noted(await super().expire(now, limit))

    async def pending(self, limit):
        return self._noted(await super().pending(limit))

    def _noted(self, page):
        for transition in page:
            self.ledger.write(what="handed", event_id=transition.event_id)
        return page


class Stopping(RedisAlertStateStore):
    """Notes commits that are refused, and can stop the process before one."""

    ledger, stops = None, False

    async def commit(self, key, epoch, change):
        if self.stops and change.intents:
            self.stops = False
            self.ledger.write(what="stopped")
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            await super().commit(key, epoch, change)
        except FencedAlertStateError:
            self.ledger.write(what="refused")
            raise


class NotedTurn(RedisDetectorTurn):
    """Notes when it is first asked for, and when a turn begins."""

    ledger, tenure, is_up = None, None, False

    async def hold(self):
        if not self.is_up:
            self.is_up = True
            self.ledger.write(what="up")
        tenure = await super().hold()
        if tenure is not None and tenure != self.tenure:
            self.ledger.write(what="turn")
        self.tenure = tenure
        return tenure


async def main(port, prefix, hub_url, name, path, lease_seconds, *, stops):
    clock = SystemClock()
    lease_seconds = float(lease_seconds)
    client = RedisClient(config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=1.0))
    event_ids = UUID7Generator(clock, random.SystemRandom()).next
    presence = Handing(
        client=client,
        event_ids=event_ids,
        name=name,
        down_min_seconds=1.0,
        default_interval_seconds=0.3,
        intent_lease_seconds=lease_seconds / 2,
    )
    store = Stopping(client=client)
    turn = NotedTurn(client=client, lease_seconds=lease_seconds)
    presence.ledger = store.ledger = turn.ledger = Ledger(path, name)
    store.stops = stops
    outbox = RedisOutbox(client=client, clock=clock)
    silences = silences_in_force(())
    stage = AgentEventStage(
        presence=presence,
        store=store,
        outbox=outbox,
        clock=clock,
        event_ids=event_ids,
        silences=lambda: silences,
        settings=lambda _: GROUPS,
        turn=turn,
    )
    detector = Detector(
        presence=presence,
        outbox=outbox,
        clock=clock,
        agent_interval_seconds=0.4,
        scan_interval_seconds=0.05,
        beacon_max_age_seconds=2.0,
        blind_grace_max_seconds=0.1,
        stage=stage,
    )
    async with HttpHub(base_url=hub_url, token="hub-token", timeout_seconds=5.0) as hub:
        sender = OutboxSender(
            outbox=outbox,
            hub=hub,
            clock=clock,
            rng=random.Random(),
            lease=RedisLease(client=client, lease_seconds=lease_seconds),
            batch_max=20,
            poll_seconds=0.02,
            backoff_min_seconds=0.05,
            backoff_max_seconds=0.2,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sender.run)
            tasks.start_soon(detector.run)


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[1:7], stops=sys.argv[7:] == ["stops"]))
