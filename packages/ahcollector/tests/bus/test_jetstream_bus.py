"""What only the bus on NATS has: leases in a table, consumers of leases, tries, dead letters."""

import json
import logging

import anyio
import pytest
from bus_hands import Hands, number_of, subscribed, until

from ahcollector.bus import SHARDS, TRIES_MAX, shard_for
from ahcollector.bus._jetstream_table import read_table
from ahcollector.bus._jetstream_tries import Tries, take_back
from ahcollector.bus.jetstream import BufferSize
from ahcollector.errors import BusError, BusFull, NatsError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.nats import NatsClient
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import MemoryDeadBatches, replay_dead_batches

pytestmark = [pytest.mark.anyio, pytest.mark.service]
SHARD = shard_for("web-1")


async def state(bus):
    info = await bus._api.ask(f"STREAM.INFO.{bus._names.stream}", {"subjects_filter": ">"})
    return info["state"]


async def left(bus):
    return (await state(bus))["messages"]


async def table(bus):
    kept = await bus._api.get(bus._names.bucket, last_by_subj=bus._names.key("leases"))
    return read_table(kept.data)


async def forget_leases(bus):
    """As if another one had found all workers gone."""
    await bus._api.put(bus._names.key("leases"), b"{}", {})


async def pending(bus):
    return {
        one["config"]["filter_subject"]: one["num_ack_pending"]
        for one in await bus._api.consumers(bus._names.stream)
    }.get(bus._names.shard(SHARD), 0)


async def consumers(bus):
    return [one["name"] for one in await bus._api.consumers(bus._names.stream)]


class ReplyLost(NatsClient):
    """Loses the answer to one request after it was done."""

    loses = None

    async def request_on(self, line, subject, data, *, headers):
        reply = await super().request_on(line, subject, data, headers=headers)
        if self.loses is not None and self.loses in subject:
            self.loses = None
            raise NatsError(f"injected: the answer to {subject} was lost")
        return reply


@pytest.mark.fault
async def test_a_publish_whose_answer_was_lost_is_not_repeated_by_itself(nats_buses):
    """C10: the batch is on the bus once, until whoever was told of the failure sends it again."""
    client = nats_buses.client(ReplyLost)
    bus = nats_buses(client=client)
    await bus.publish(batch_of(0))
    client.loses = "bus.s."
    with pytest.raises(BusError, match=r"cannot put on .*injected"):
        await bus.publish(batch_of(1))
    assert await left(bus) == 2
    async with subscribed(bus, hands := Hands()):
        await hands.have(2)
    assert hands.numbers == [0, 1]


@pytest.mark.fault
async def test_a_batch_that_was_set_aside_can_be_published_again_at_once(nats_buses):
    """An operator replays dead batches of the store within two minutes: none is lost."""
    bus = nats_buses()
    dead = MemoryDeadBatches()
    for number in range(5):
        await bus.publish(batch_of(number))
    async with subscribed(bus, hands := Hands()):
        await hands.have(5)
        for number in range(5):
            await dead.put(batch_of(number), "refused", 1.0)
        replayed = await replay_dead_batches(dead, bus.publish)
        assert replayed == 5
        await hands.have(10)
    assert hands.numbers == [*range(5), *range(5)]
    assert await dead.count() == 0


@pytest.mark.fault
async def test_a_refused_batch_is_not_taken_for_one_that_was_sent(nats_buses):
    """C8: what was refused because it was full is taken when it is sent again."""
    bus = nats_buses(size=BufferSize(bytes_max=1 << 20, batches_max=100, shard_batches_max=2))
    await bus.publish(batch_of(0))
    await bus.publish(batch_of(1))
    with pytest.raises(BusFull, match=r"maximum messages per subject exceeded.*2 of one shard"):
        await bus.publish(batch_of(2))
    async with subscribed(bus, hands := Hands()):
        await hands.have(2)

        async def empty():
            return not await left(bus)

        await until(empty)
        await bus.publish(batch_of(2))
        await hands.have(3)
    assert hands.numbers == [0, 1, 2]


@pytest.mark.fault
@pytest.mark.parametrize(
    "what",
    ["CONSUMER.LIST", "CONSUMER.DURABLE.CREATE", "$KV", "MSG.GET", "bus.dead", "$JS.ACK", "DELETE"],
)
async def test_a_lost_answer_of_the_reading_side_loses_no_entry_and_no_order(nats_buses, what):
    client = nats_buses.client(ReplyLost)
    bus = nats_buses(client=client)
    for number in range(40):
        await bus.publish(batch_of(number))
    seen = []

    async def handler(delivery):
        seen.append(number_of(delivery))
        if number_of(delivery) == 3:
            raise LookupError("poison")
        await delivery.ack()

    async def is_done():
        return 39 in seen and not await left(bus)

    client.loses = what
    async with subscribed(bus, handler):
        await until(is_done)
    assert client.loses is None
    first = sorted(set(seen), key=seen.index)
    assert first == list(range(40))
    assert await bus.dead.count() == 1
    # Where it was the answer to its last words that was lost, its leases end by themselves.
    if what != "DELETE":
        assert not (await table(bus)).beats
        assert not await consumers(bus)


@pytest.mark.fault
async def test_bytes_that_are_no_batch_are_set_aside_at_once_and_neighbours_flow(nats_buses):
    """C9."""
    metrics = PrometheusMetrics()
    bus = nats_buses(metrics=metrics)
    await bus.publish(batch_of(0))
    await bus._api.put(bus._names.shard(SHARD), b"\xff junk", {})
    await bus._api.put(bus._names.shard(SHARD), b"", {"Status": "404"})
    await bus.publish(batch_of(1))
    async with subscribed(bus, hands := Hands()):
        await hands.have(2)
    assert hands.numbers == [0, 1]
    letters = await bus.dead.letters()
    assert [(one.batch, one.shard) for one in letters] == [(None, SHARD), (None, SHARD)]
    assert "is no batch: its version is 255" in letters[0].reason
    # What they hold is kept, whatever it is.
    kept = await bus._api.get(bus._names.dead, seq=int(letters[0].letter_id))
    assert kept.data == b"\xff junk"
    count = metrics.registry.get_sample_value
    assert count("ahc_bus_dead_letter_total", {"reason": "unreadable"}) == 2
    assert await bus.dead.replay(None) == 0
    assert await bus.dead.purge([letters[0].letter_id, "no-such", "01", "99"]) == 1
    assert await bus.dead.count() == 1


async def test_dead_letters_are_bounded_by_bytes_too_and_each_that_goes_is_counted(nats_buses):
    metrics = PrometheusMetrics()
    bus = nats_buses(metrics=metrics, entry_bytes_max=10_000, dead_bytes_max=20_000)
    await bus.check()
    for number in range(10):
        await bus.dead.bury(
            shard=7, seq=number, data=bytes(6_000), reason="x", now=1.0, dead_max=100
        )
    count = await bus.dead.count()
    assert 2 <= count <= 3
    names = [int(one.letter_id) for one in await bus.dead.letters()]
    assert names == list(range(11 - count, 11))
    # Put once more, its answer may have been lost, it is there once.
    dropped = await bus.dead.bury(
        shard=7, seq=9, data=bytes(6_000), reason="x", now=1.0, dead_max=100
    )
    assert (dropped, await bus.dead.count()) == (0, count)
    with pytest.raises(BusError, match="takes no letter although it is empty"):
        await bus.dead.bury(shard=7, seq=11, data=bytes(30_000), reason="x", now=1.0, dead_max=100)


@pytest.mark.fault
async def test_a_replay_whose_answer_was_lost_is_there_once_when_it_is_repeated(nats_buses):
    """C10."""
    client = nats_buses.client(ReplyLost)
    bus = nats_buses(client=client)

    async def poison(_):
        raise LookupError("no such thing")

    await bus.publish(batch_of(0))
    async with subscribed(bus, poison):

        async def is_dead():
            return await bus.dead.count() and not await left(bus)

        await until(is_dead)
    client.loses = "bus.s."
    with pytest.raises(BusError, match="injected"):
        await bus.dead.replay(None)
    assert (await bus.dead.count(), await left(bus)) == (1, 1)
    assert await bus.dead.replay(None) == 1
    assert (await bus.dead.count(), await left(bus)) == (0, 1)


async def no_answer(_):
    raise BusError("injected: no answer")


async def test_an_ack_of_a_stale_owner_is_refused_and_the_new_one_has_the_shard(nats_buses):
    bus, heir = nats_buses(), nats_buses(lease_seconds=60.0)
    await bus.publish(batch_of(0))
    stale = Hands(acks=False)
    async with subscribed(bus, stale):
        await stale.have(1)
        tenure = stale.taken[0]._tenure
        # Nothing that it sends or hears about its leases gets through, and it does not know.
        bus._subscriptions.running[0]._leases._change = no_answer
        tenure.is_valid = lambda: True
        await forget_leases(bus)
        async with subscribed(heir, hands := Hands(acks=False)):
            await hands.have(1)
            await stale.taken[0].ack()

            async def knows():
                return not tenure._consumer.is_bound

            await until(knows)
            assert await left(bus) == 1
            assert await pending(heir) == 1
            await hands.taken[0].ack()

            async def is_gone():
                return not await left(bus)

            await until(is_gone)


async def test_a_try_that_ends_with_a_lease_is_none(nats_buses):
    """A worker waits for its store, and NATS is away for longer than a lease, again and again."""
    bus = nats_buses()
    await bus.publish(batch_of(0))
    begun = []

    async def waits(delivery):
        begun.append(delivery.attempt)
        await anyio.sleep_forever()

    async with subscribed(bus, waits):
        for turn in range(2 * TRIES_MAX):

            async def has_begun(turn=turn):
                return len(begun) > turn

            await until(has_begun)
            await forget_leases(bus)
    async with subscribed(bus, hands := Hands()):
        await hands.have(1)
    assert await bus.dead.count() == 0
    assert max(begun) < TRIES_MAX


async def test_fences_only_rise_although_the_table_was_lost(nats_buses):
    bus = nats_buses()
    fences = []
    for _ in range(3):
        async with subscribed(bus, Hands(), [7]):

            async def is_ours():
                kept = await bus._api.get(bus._names.bucket, last_by_subj=bus._names.key("leases"))
                found = None if kept is None else read_table(kept.data)
                return bool(found and found.owners)

            with anyio.fail_after(10):
                while not bus._is_ready:
                    await anyio.sleep(0.01)
            await until(is_ours)
            fences.append((await table(bus)).owners[7].fence)
        await bus._api.ask(f"STREAM.PURGE.{bus._names.bucket}")
    assert fences == sorted(set(fences))


async def test_two_share_the_shards_and_the_one_that_stays_has_all(nats_buses):
    one, other = nats_buses(lease_seconds=0.6), nats_buses(lease_seconds=0.6)

    async def has(bus, count):
        async def enough():
            return len(bus._subscriptions.running[0]._leases.tenures) == count

        await until(enough)

    async with subscribed(one, hands := Hands()):
        await has_subscription(one)
        await has(one, SHARDS)
        async with subscribed(other, Hands()):
            await has_subscription(other)
            await has(one, SHARDS // 2)
            await has(other, SHARDS // 2)
        await has(one, SHARDS)
        await one.publish(batch_of(0))
        await hands.have(1)
    assert not (await table(one)).beats
    assert not await consumers(one)


async def has_subscription(bus):
    with anyio.fail_after(10):
        while not bus._subscriptions.running:
            await anyio.sleep(0)


async def test_streams_that_are_gone_are_made_again(nats_buses):
    """A NATS that lost everything is a new one, not the end."""
    bus = nats_buses()
    async with subscribed(bus, hands := Hands()):
        await bus.publish(batch_of(0))
        await hands.have(1)
        for name in (bus._names.stream, bus._names.bucket, bus._names.dead):
            await bus._api.ask(f"STREAM.DELETE.{name}")
        try:
            # Refused, unless the subscription's own look made the streams again before us.
            await bus.publish(batch_of(1))
        except BusError as error:
            if "nobody answers" not in str(error):
                raise
            await bus.publish(batch_of(1))
        await hands.have(2)
    assert hands.numbers == [0, 1]


async def test_a_consumer_that_somebody_deleted_is_made_again_in_order(nats_buses):
    bus = nats_buses()
    async with subscribed(bus, hands := Hands(acks=False)):
        for number in range(5):
            await bus.publish(batch_of(number))
        await hands.have(5)
        await hands.taken[1].ack()
        for name in await consumers(bus):
            await bus._api.delete_consumer(bus._names.stream, name)
        for number in range(5, 50):
            await bus.publish(batch_of(number))
        await hands.have(50)
        # What was held before is acknowledged where it was delivered once more.
        for one in hands.taken:
            await one.ack()

        async def empty():
            return not await left(bus)

        await until(empty)
    assert hands.numbers == list(range(50))


async def test_a_strangers_consumer_is_named(nats_buses, caplog):
    bus = nats_buses()
    await bus.check()
    subject = bus._names.shard(SHARD)
    config = {"durable_name": "debug", "filter_subject": subject, "ack_policy": "explicit"}
    await bus._api.ask(
        f"CONSUMER.DURABLE.CREATE.{bus._names.stream}.debug",
        {"stream_name": bus._names.stream, "config": config},
    )
    await bus.publish(batch_of(0))
    async with subscribed(bus, hands := Hands()):

        async def told():
            return any(
                "consumer debug of stream" in str(getattr(one, "error", "")) for one in lines
            )

        lines = caplog.records
        await until(told)
        await bus._api.delete_consumer(bus._names.stream, "debug")
        await hands.have(1)


async def test_what_waits_too_long_is_counted_and_told_and_stays(nats_buses, caplog):
    metrics = PrometheusMetrics()
    size = BufferSize(bytes_max=1 << 20, batches_max=100, shard_batches_max=100, seconds=0.2)
    bus = nats_buses(metrics=metrics, size=size)
    for number in range(3):
        await bus.publish(batch_of(number))
    await anyio.sleep(0.25)
    with caplog.at_level(logging.INFO, "ahcollector.bus"):
        async with subscribed(bus, hands := Hands(acks=False)):
            await hands.have(3)

            async def told():
                return any("longer than it is sized for: workers" in one for one in caplog.messages)

            await until(told)
            value = metrics.registry.get_sample_value
            assert value("ahc_bus_oldest_age_seconds") > 0.2
            assert value("ahc_bus_overdue_total") == 3
            for one in hands.taken:
                await one.ack()

            async def over():
                return "the bus holds no entry for longer" in caplog.text

            await until(over)
            assert value("ahc_bus_oldest_age_seconds") == 0
            await bus.publish(batch_of(3))
            await hands.have(4)
            assert value("ahc_bus_overdue_total") == 3


async def test_two_hours_of_entries_fill_the_stream_and_are_drained_in_order(nats_buses):
    """C8: two hours at a thousandth of their size: refused, nothing lost, nothing out of order."""
    metrics = PrometheusMetrics()
    size = BufferSize(bytes_max=1 << 20, batches_max=720, shard_batches_max=400)
    bus = nats_buses(metrics=metrics, size=size)
    servers = ["web-1", next(f"s{n}" for n in range(99) if shard_for(f"s{n}") != SHARD)]
    accepted, refused = {server: [] for server in servers}, 0
    for number in range(900):
        server = servers[number % 2]
        try:
            await bus.publish(batch_of(number, server_id=server))
        except BusFull:
            refused += 1
        else:
            accepted[server].append(number)
    assert [len(numbers) for numbers in accepted.values()] == [360, 360]
    assert refused == 180
    assert (await state(bus))["first_seq"] == 1
    async with subscribed(bus, hands := Hands()):
        await hands.have(720)

        async def empty():
            return not await left(bus)

        await until(empty)
        await bus.publish(batch_of(1_000))
        await hands.have(721)
    for server in servers:
        ours = [number_of(one) for one in hands.taken[:720] if one.batch.server_id == server]
        assert ours == accepted[server]


async def test_tries_taken_back_meanwhile_are_not_written_over(nats_buses):
    bus = nats_buses()
    await bus.check()
    api, names = bus._api, bus._names

    async def tries_of(fence):
        tries = Tries(api=api, names=names, shard=7, fence=fence)
        assert await tries.read()
        return tries

    old = await tries_of(1)
    old.suspect(10)
    assert [old.of(seq) for seq in (9, 10, 11)] == [1, 1, 0]
    assert await old.begin(9, 2, waiting=[10, 11])
    new = await tries_of(2)
    assert [new.of(seq) for seq in (9, 10, 11)] == [2, 2, 0]
    # The old owner takes its try back while the new one counts its own.
    await take_back(api, names, 7, [9])
    assert await new.begin(9, 3, waiting=[])
    assert new.of(9) == 2
    # Nothing to take back is nothing to do.
    await take_back(api, names, 7, [99])
    # One that was written down together with another is not written again.
    assert await new.begin(10, 2, waiting=[])
    new.forget(9)
    new.keep(up_to=20, known={11})
    assert await new.write()
    assert [(await tries_of(2)).of(seq) for seq in (9, 10, 11)] == [1, 1, 0]
    # Whoever is older writes nothing more.
    assert not await old.begin(9, 3, waiting=[])
    assert not await Tries(api=api, names=names, shard=7, fence=1).read()
    await api.put(names.key("tries.7"), b"junk", {})
    assert (await tries_of(1)).of(9) == 0


@pytest.mark.fault
async def test_a_try_whose_writing_failed_is_written_when_it_is_repeated(nats_buses):
    """C9: otherwise the death that follows counts for nothing."""

    class Refuses(NatsClient):
        refuses = 0

        async def request_on(self, line, subject, data, *, headers):
            if self.refuses:
                self.refuses -= 1
                raise NatsError("injected: never sent")
            return await super().request_on(line, subject, data, headers=headers)

    client = nats_buses.client(Refuses)
    bus = nats_buses(client=client)
    await bus.check()
    tries = Tries(api=bus._api, names=bus._names, shard=7, fence=3)
    assert await tries.read()
    client.refuses = 2
    for seq in (1, 2):
        with pytest.raises(BusError):
            await tries.begin(seq, 2, waiting=[seq + 1])
    for seq in (2, 1):
        assert await tries.begin(seq, 2, waiting=[])
        next_one = Tries(api=bus._api, names=bus._names, shard=7, fence=4)
        assert await next_one.read()
        assert next_one.of(seq) == 2


async def test_a_table_that_cannot_be_read_leaves_everything_free(nats_buses):
    bus = nats_buses()
    await bus.check()
    await bus._api.put(bus._names.key("leases"), json.dumps({"workers": 1}).encode(), {})
    await bus.publish(batch_of(0))
    async with subscribed(bus, hands := Hands()):
        await hands.have(1)


async def test_settings_that_cannot_work_are_refused(nats_buses):
    with pytest.raises(ValueError, match="entry_bytes_max is 4095"):
        nats_buses(entry_bytes_max=4_095)
    with pytest.raises(ValueError, match="make it twice as much at least"):
        nats_buses(dead_bytes_max=1_799_999)
