"""What every `Bus` does."""

from __future__ import annotations

from collections.abc import Collection

import anyio
import attrs

from ahcollector.bus.base import (
    SHARDS,
    TRIES_MAX,
    Delivery,
    Handler,
    StoredSeries,
    shard_for,
)
from ahcollector.errors import BusClosed, BusError, BusFull
from ahcollector.testing._contracts._expect import expect
from ahcollector.testing._contracts.bus_receipts import (
    WAIT_SECONDS,
    BusReceipts,
    batch_of,
    number_of,
)

__all__ = ["BusContract", "batch_of"]


class BusContract(BusReceipts):
    """The suite; derive from it and give `new`."""

    async def test_batches_arrive_whole_and_in_order_of_their_shard(self) -> None:
        """What was published, as it was published."""
        bus = await self.new()
        servers = [f"server-{number}" for number in range(20)]
        batches = [batch_of(n, server_id=servers[n % 20]) for n in range(100)]
        for batch in batches:
            await bus.publish(batch)
        taken = await self.take(bus, 100)
        for server in servers:
            ours = [d.batch for d in taken if d.batch.server_id == server]
            assert ours == [batch for batch in batches if batch.server_id == server]
        assert all(d.shard == shard_for(d.batch.server_id) and d.attempt == 1 for d in taken)
        assert not any(bus.depth().values())

    async def test_the_same_batch_published_again_is_handed_over_again(self) -> None:
        """A dead batch that is replayed is none that the bus has, however alike they are."""
        bus = await self.new()
        for _ in range(2):
            await bus.publish(batch_of(0))
            assert list(map(number_of, await self.take(bus, 1))) == [0]

    async def test_a_full_shard_refuses_at_once_and_others_do_not(self) -> None:
        """C8: nothing that was taken is pushed out to make room."""
        bus = await self.new(queue_batches_max=3)
        other = next(f"s{n}" for n in range(1_000) if shard_for(f"s{n}") != shard_for("web-1"))
        for number in range(3):
            await bus.publish(batch_of(number))
        with expect(BusFull):
            await bus.publish(batch_of(3))
        await bus.publish(batch_of(4, server_id=other))
        assert bus.depth()[shard_for("web-1")] == 3
        taken = await self.take(bus, 4)
        assert sorted(map(number_of, taken)) == [0, 1, 2, 4]
        await bus.publish(batch_of(5))

    async def test_what_is_held_does_not_count_and_comes_back(self) -> None:
        """Unacknowledged entries go to the next subscriber, in the old order."""
        bus = await self.new(queue_batches_max=3)
        for number in range(3):
            await bus.publish(batch_of(number))
        held: list[int] = []
        done = anyio.Event()

        async def hold(delivery: Delivery) -> None:
            held.append(number_of(delivery))
            if number_of(delivery) == 1:
                await delivery.ack()
            if len(held) == 3:
                assert bus.depth()[delivery.shard] == 0
                await bus.publish(batch_of(3))
                done.set()

        await self.until(bus, hold, done)
        again = await self.take(bus, 3)
        assert [number for number in map(number_of, again) if number in {0, 2}] == [0, 2]
        assert 3 in map(number_of, again)

    async def test_a_batch_that_always_fails_stops_nobody(self) -> None:
        """C9: at most 5 tries, then it is a dead letter; those behind it flow."""
        bus = await self.new()
        for number in range(5):
            await bus.publish(batch_of(number))
        tries: list[int] = []
        taken: list[int] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            if number_of(delivery) == 1:
                tries.append(delivery.attempt)
                raise LookupError("poison")
            taken.append(number_of(delivery))
            await delivery.ack()
            if len(taken) == 4:
                done.set()

        await self.until(bus, handler, done)
        assert taken == [0, 2, 3, 4]
        assert tries == list(range(1, TRIES_MAX + 1))
        assert not any(bus.depth().values())

    async def test_a_batch_that_fails_once_is_delivered(self) -> None:
        """In its place: those behind it wait for it."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        await bus.publish(batch_of(1))
        seen: list[tuple[int, int]] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            seen.append((number_of(delivery), delivery.attempt))
            if seen == [(0, 1)]:
                raise LookupError("once")
            await delivery.ack()
            if len(seen) == 3:
                done.set()

        await self.until(bus, handler, done)
        assert seen == [(0, 1), (0, 2), (1, 1)]

    async def test_a_closed_bus_takes_nothing_and_hands_over_the_rest(self) -> None:
        """Then its subscriptions end by themselves."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        await bus.close()
        with expect(BusClosed):
            await bus.publish(batch_of(1))
        taken: list[int] = []

        async def handler(delivery: Delivery) -> None:
            taken.append(number_of(delivery))
            await delivery.ack()

        with anyio.fail_after(WAIT_SECONDS):
            await bus.subscribe(range(SHARDS), handler)
        assert taken == [0]

    async def test_nobody_is_handed_a_shard_he_did_not_ask_for(self) -> None:
        """Two subscribers share the work."""
        bus = await self.new()
        seen: list[tuple[int, int]] = []
        done = anyio.Event()

        def handler_of(who: int) -> Handler:
            async def handler(delivery: Delivery) -> None:
                seen.append((who, delivery.shard))
                await delivery.ack()
                if len(seen) == 64:
                    done.set()

            return handler

        for number in range(64):
            await bus.publish(batch_of(number, server_id=f"s{number}"))
        halves: list[Collection[int]] = [range(32), range(32, 64)]
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                for who, half in enumerate(halves):
                    tasks.start_soon(bus.subscribe, half, handler_of(who))
                await done.wait()
                tasks.cancel_scope.cancel()
        assert all(shard in halves[who] for who, shard in seen)

    async def test_a_shard_has_one_subscriber(self) -> None:
        """A second one of this process is refused at once, and the first one goes on."""
        bus = await self.new()
        taken: list[Delivery] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            taken.append(delivery)
            await delivery.ack()
            done.set()

        async def refused(shards: Collection[int]) -> None:
            with anyio.fail_after(WAIT_SECONDS), expect(BusError):
                await bus.subscribe(shards, handler)

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.subscribe, range(SHARDS), handler)
                await anyio.wait_all_tasks_blocked()
                await refused([shard_for("web-1")])
                await refused([SHARDS])
                await refused([-1])
                await bus.publish(batch_of(0))
                await done.wait()
                tasks.cancel_scope.cancel()
        assert list(map(number_of, taken)) == [0]

    async def test_a_tenure_is_told_apart_from_the_next_one(self) -> None:
        """While a shard is handed over it has one, at the second subscription another."""
        bus = await self.new()
        shard = shard_for("web-1")
        seen: list[object] = []
        for number in range(2):
            assert bus.tenures() == {}
            done = anyio.Event()

            async def handler(delivery: Delivery, done: anyio.Event = done) -> None:
                seen.append(bus.tenures()[delivery.shard])
                await delivery.ack()
                done.set()

            await bus.publish(batch_of(number))
            await self.until(bus, handler, done)
        assert len(set(map(str, seen))) == 2, (shard, seen)

    async def test_a_subscriber_that_waits_is_handed_what_comes(self) -> None:
        """One at a time, each published when the last one was taken."""
        bus = await self.new()
        taken: list[int] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            taken.append(number_of(delivery))
            await delivery.ack()
            if len(taken) == 20:
                done.set()
            else:
                await bus.publish(batch_of(len(taken), server_id=f"server-{len(taken)}"))

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.subscribe, range(SHARDS), handler)
                await anyio.wait_all_tasks_blocked()
                await bus.publish(batch_of(0, server_id="server-0"))
                await done.wait()
                tasks.cancel_scope.cancel()
        assert taken == list(range(20))

    async def test_whatever_a_batch_holds_arrives(self) -> None:
        """Any text, the edges of numbers, nothing at all."""
        bus = await self.new()
        texts = ["", "\x00", "日本", 'a"b\\c{d}=e,f\n', "\x1f\U0010ffff"]
        values = [0.0, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), 0.1]
        series = [
            StoredSeries(
                labels=tuple((f"name {text}", text) for text in texts),
                points=tuple(enumerate(values)),
            ),
            StoredSeries(labels=(), points=((-(2**63), 1.0), (2**63 - 1, 2.0))),
            StoredSeries(labels=(("a", "b"),), points=()),
        ]
        batches = [
            attrs.evolve(batch_of(0), series=tuple(series)),
            attrs.evolve(batch_of(1, company_id=texts[3]), series=(), agent_id=texts[4]),
        ]
        for batch in batches:
            await bus.publish(batch)
        taken = [delivery.batch for delivery in await self.take(bus, 2)]
        assert taken == batches
        assert [repr(value) for _, value in taken[0].series[0].points] == list(map(repr, values))

    async def test_an_acknowledgement_may_be_repeated_and_comes_too_late_after_the_end(
        self,
    ) -> None:
        """Then the entry is the next subscriber's, whoever still has a delivery of it."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        await bus.publish(batch_of(1))
        held: list[Delivery] = []
        done = anyio.Event()

        async def hold(delivery: Delivery) -> None:
            held.append(delivery)
            if number_of(delivery) == 0:
                await delivery.ack()
                await delivery.ack()
            else:
                done.set()

        await self.until(bus, hold, done)
        for delivery in held:
            await delivery.ack()
        assert list(map(number_of, await self.take(bus, 1))) == [1]
        await bus.publish(batch_of(2))
        assert list(map(number_of, await self.take(bus, 1))) == [2]

    async def test_a_handler_that_is_cancelled_had_no_try(self) -> None:
        """However often a subscription ends in it."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        await bus.publish(batch_of(1))
        for _ in range(2 * TRIES_MAX):
            begun = anyio.Event()

            async def hangs(_: Delivery, begun: anyio.Event = begun) -> None:
                begun.set()
                await anyio.sleep_forever()

            await self.until(bus, hangs, begun)
        taken = await self.take(bus, 2)
        assert [(number_of(one), one.attempt) for one in taken] == [(0, 1), (1, 1)]
        assert await self.dead(bus).count() == 0

    async def test_dead_letters_are_listed_replayed_and_purged(self) -> None:
        """With their reason, oldest first, and as batches that can be taken again."""
        bus = await self.new()
        dead = self.dead(bus)
        for number in range(4):
            await bus.publish(batch_of(number))
        done = anyio.Event()

        async def poison(delivery: Delivery) -> None:
            if number_of(delivery) < 3:
                raise LookupError("poison")
            await delivery.ack()
            done.set()

        await self.until(bus, poison, done)
        letters = await dead.letters()
        assert [letter.batch for letter in letters] == [batch_of(n) for n in range(3)]
        assert {letter.reason for letter in letters} == {"LookupError: poison"}
        assert {letter.shard for letter in letters} == {shard_for("web-1")}
        assert await dead.letters(after=letters[0].letter_id, limit=1) == [letters[1]]
        assert await dead.replay([letters[1].letter_id, "no letter"]) == 1
        assert await dead.letters(after=letters[1].letter_id) == [letters[2]]
        assert await dead.purge([letters[0].letter_id]) == 1
        assert await dead.replay(None) == 1
        assert await dead.count() == 0
        assert list(map(number_of, await self.take(bus, 2))) == [1, 2]
        assert await dead.purge(None) == 0
