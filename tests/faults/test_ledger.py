"""The ledger: what was acknowledged at a door is readable from the store, or counted as dropped.

Two servers share Redis, a bus and a VictoriaMetrics, four agents of two companies post to both, and
all of it is killed with -9 at random moments, several at once where it happens so. Then every point
of every acknowledged batch must be accounted for, point by point and in sum.

`AH_LEDGER_SEED` repeats a run as far as processes can be repeated.
"""

import asyncio
import os
import random
import time
from collections import Counter

import httpx
import nats
import pytest
import redis
from ledger import PREFIX, Ledger
from ledger_runs import Pair, RefusingFront, Senders, kill_all
from world import Mailbox, wait_until

pytestmark = pytest.mark.fault

#: VictoriaMetrics 1.79 loses up to 10 s of what it took when it is killed, and has no flag for it.
DURABLE = {"durable_after_seconds": 15}
#: Of each, in the nightly form.
KILLS = int(os.environ.get("AH_LEDGER_KILLS") or 50)


def seed():
    chosen = int(os.environ.get("AH_LEDGER_SEED") or random.randrange(1 << 30))
    print("seed", chosen)
    return chosen


class Run:
    """One run: what is killed how often, and the look at the books in the end."""

    def __init__(self, *, pair, ledger, store, waiting):
        self._servers = pair.servers
        self._ledger = ledger
        self._store = store
        self._waiting = waiting  # entries that the bus itself has
        self.kills = []

    def kill(self, things, *, times, seed, refuses, seconds):
        with Senders(
            servers=self._servers, ledger=self._ledger, seed=seed, poison=refuses
        ) as senders:
            wait_until("the first batches", lambda: self._ledger.acknowledged > 20, seconds=30)
            kill_all(
                [*self._servers, *things],
                times=times,
                seed=seed,
                log=self.kills,
                seconds=seconds,
            )
            time.sleep(1)
            senders.finish(seconds=60)

    def settle(self):
        """Everything that is on the bus gets to the store, and is safe there."""
        wait_until("the bus is empty", lambda: self._waiting() == 0, seconds=90)
        wait_until("the servers see that", self._nothing_is_on_its_way, seconds=10)
        # What was acknowledged to the bus is on the store's disk: nothing is flushed before this.
        self._store.kill()
        self._store.start()

    def _nothing_is_on_its_way(self):
        names = ("ahc_bus_depth", "ahc_bus_held", "ahc_worker_pending_samples")
        return not any(
            value
            for server in self._servers
            for (name, _), value in server.metrics().items()
            if name in names
        )

    def check(self):
        dead = {}
        for server in self._servers:
            for where in ("bus", "worker"):
                dead |= server.dead(where)
        balance = self._ledger.balance(self._exported(), dead=dead)
        print("kills", Counter(name for name, *_ in self.kills), self.kills)
        print("answers", dict(self._ledger.answers))
        print(
            f"points: {balance.acknowledged} acknowledged = {balance.readable} readable"
            f" + {balance.dropped.total()} dropped {dict(balance.dropped)}"
        )
        assert not self._ledger.problems, self._ledger.problems[:5]
        balance.check()
        for server in self._servers:
            self._check_counters(server, letters=len(dead))
        return balance

    def _exported(self):
        answer = httpx.post(
            f"{self._store.url}/api/v1/export",
            data={"match[]": f'{{__name__=~"{PREFIX}.*"}}', "start": "0", "end": "4102444800"},
            timeout=120,
            trust_env=False,
        )
        return answer.raise_for_status().text.splitlines()

    def _check_counters(self, server, *, letters):
        """A killed process takes its counters along; what the last life counted must be right."""
        counted = server.metrics()
        told, unsure = self._ledger.told[server.life], self._ledger.unsure[server.life]
        shown = Counter(
            {
                code: int(value)
                for (name, code), value in counted.items()
                if name == "ahc_ingest_dropped_points_total"
            }
        )
        shown["accepted"] = int(counted["ahc_ingest_points_total", ""])
        print(server.life, "counted", dict(shown), "told", dict(told), "unsure", dict(unsure))
        for code in shown | told:
            assert told[code] <= shown[code] <= told[code] + unsure[code], (code, server.life)
        nothing_else = (
            "ahc_tsdb_samples_dropped_total",
            "ahc_tsdb_silent_drops_total",
            "ahc_worker_dead_batches_dropped_total",
            "ahc_worker_dead_batches_damaged_total",
            "ahc_bus_dead_letters_dropped_total",
        )
        other = {place: value for place, value in counted.items() if place[0] in nothing_else}
        assert not any(other.values()), other
        batches = sum(
            value
            for (name, _), value in counted.items()
            if name == "ahc_tsdb_batches_dropped_total"
        )
        assert batches <= letters


def in_redis(server):
    """Asks how many entries the bus on Redis has, waiting or held."""
    client = redis.Redis(port=server.port)
    return lambda: sum(client.xlen(f"ah:bus:s:{shard}") for shard in range(64))


def in_nats(server):
    """Asks how many entries the bus on NATS has, waiting or held."""

    async def ask():
        client = await nats.connect(server.url)
        info = await client.jetstream().stream_info("ah_bus")
        await client.close()
        return info.state.messages

    return lambda: asyncio.run(ask())


def run_on_redis(tmp_path, start_service, *, times, seconds):
    """The bus on Redis, and a gateway before VictoriaMetrics that refuses some batches for good."""
    from testkit import RedisServer, VictoriaMetricsServer

    begun, ledger = seed(), Ledger()
    shared, store = start_service(RedisServer), start_service(VictoriaMetricsServer)
    with (
        RefusingFront(port=store.port) as front,
        Mailbox() as mailbox,
        Pair(
            tmp_path,
            mailbox,
            redis=shared,
            victoria_metrics=store,
            tsdb=DURABLE | {"url": front.url},
        ) as pair,
    ):
        run = Run(pair=pair, ledger=ledger, store=store, waiting=in_redis(shared))
        run.kill([shared, store], times=times, seed=begun, refuses=True, seconds=seconds)
        run.settle()
        return run.check()


def run_on_nats(tmp_path, start_service, *, times, seconds):
    """The bus on JetStream, and nothing between the workers and VictoriaMetrics."""
    from testkit import NatsServer, RedisServer, VictoriaMetricsServer

    begun, ledger = seed(), Ledger()
    shared, store = start_service(RedisServer), start_service(VictoriaMetricsServer)
    carrier = start_service(NatsServer)
    with (
        Mailbox() as mailbox,
        Pair(
            tmp_path,
            mailbox,
            redis=shared,
            victoria_metrics=store,
            nats=carrier,
            tsdb=DURABLE,
        ) as pair,
    ):
        run = Run(pair=pair, ledger=ledger, store=store, waiting=in_nats(carrier))
        run.kill([shared, carrier, store], times=times, seed=begun, refuses=False, seconds=seconds)
        run.settle()
        return run.check()


@pytest.mark.service
@pytest.mark.parametrize("run", [run_on_redis, run_on_nats])
def test_every_acknowledged_point_is_readable_or_counted_as_dropped(run, tmp_path, start_service):
    """C6, C8, C9, C10: servers, Redis, NATS and VictoriaMetrics are each killed once.

    It takes most of a minute: nothing but time tells that VictoriaMetrics has synced.
    """
    balance = run(tmp_path, start_service, times=1, seconds=90)
    assert balance.acknowledged > 500


@pytest.mark.service
@pytest.mark.nightly
@pytest.mark.parametrize("run", [run_on_redis, run_on_nats])
def test_the_books_balance_over_fifty_kills_of_each(run, tmp_path, start_service):
    """C6, C8, C9, C10, C13: ten minutes and more in which something is always dying."""
    balance = run(tmp_path, start_service, times=KILLS, seconds=3_000)
    assert balance.acknowledged > 200 * KILLS
