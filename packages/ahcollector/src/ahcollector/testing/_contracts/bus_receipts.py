"""What every `Bus` does: what becomes of what was handed over."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import anyio

from ahcollector.bus.base import (
    SHARDS,
    TRIES_MAX,
    Bus,
    BusDeadLetters,
    Delivery,
    Handler,
    Receipt,
    SampleBatch,
    StoredSeries,
    shard_for,
)

__all__ = ["WAIT_SECONDS", "BusReceipts", "batch_of", "number_of"]

WAIT_SECONDS = 10.0


def batch_of(number: int, *, server_id: str = "web-1", company_id: str = "acme") -> SampleBatch:
    """Return a batch with one sample; equal arguments give equal batches."""
    labels = (
        ("__name__", "ah_cpu_percent"),
        ("company_id", company_id),
        ("server_id", server_id),
        ("core", "0"),
    )
    return SampleBatch(
        company_id=company_id,
        server_id=server_id,
        agent_id=f"agent-{server_id}",
        request_id=f"{number:016x}",
        received_at_ms=1_700_000_000_000 + number,
        series=(
            StoredSeries(
                labels=labels, points=((1_700_000_000_000 + number * 1_000, float(number)),)
            ),
        ),
    )


def number_of(delivery: Delivery) -> int:
    return int(delivery.batch.request_id, 16)


class _Patient:
    """A handler that fails, or acknowledges, and tells when it is ready."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.fails = False
        self.asked = anyio.Event()
        self.opened = anyio.Event()
        self.done = anyio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        self.seen.append((number_of(delivery), delivery.attempt))
        if self.fails:
            raise LookupError("once more")
        await delivery.ack()
        if number_of(delivery) == 1:
            self.done.set()

    async def ready(self, shard: int) -> None:
        assert shard == shard_for("web-1")
        self.asked.set()
        await self.opened.wait()


class BusReceipts:
    """A part of the suite; `BusContract` is the whole."""

    async def new(self, *, queue_batches_max: int = 256) -> Bus:
        """Return an empty bus with this bound of waiting entries a shard, on the system's clock."""
        raise NotImplementedError

    def dead(self, bus: Bus) -> BusDeadLetters:
        """Return the dead letters of a bus; its attribute `dead` unless this is overridden."""
        letters: BusDeadLetters = getattr(bus, "dead")  # noqa: B009 - no part of the protocol
        return letters

    async def until(self, bus: Bus, handler: Handler, done: anyio.Event) -> None:
        """Subscribe to all shards until `done` is set."""
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.subscribe, range(SHARDS), handler)
                await done.wait()
                tasks.cancel_scope.cancel()

    async def take(self, bus: Bus, count: int) -> list[Delivery]:
        """Take and acknowledge `count` deliveries."""
        taken: list[Delivery] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            taken.append(delivery)
            await delivery.ack()
            if len(taken) >= count:
                done.set()

        await self.until(bus, handler, done)
        return taken

    async def test_what_is_asked_for_again_comes_before_what_waits_in_the_old_order(self) -> None:
        """Whole, with a receipt of its own, and as a first try."""
        bus = await self.new()
        for number in range(100):
            await bus.publish(batch_of(number))
        seen: list[Delivery] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            seen.append(delivery)
            if len(seen) == 80:
                for one in [*seen[40:], *seen[:40]]:
                    await one.receipt.again()
            elif len(seen) > 80:
                await delivery.receipt.ack()
            if len(seen) == 180:
                done.set()

        await self.until(bus, handler, done)
        assert list(map(number_of, seen)) == [*range(80), *range(80), *range(80, 100)]
        assert [one.batch for one in seen] == [batch_of(number_of(one)) for one in seen]
        assert {(one.attempt, one.shard) for one in seen} == {(1, shard_for("web-1"))}
        await bus.publish(batch_of(100))
        assert list(map(number_of, await self.take(bus, 1))) == [100]

    async def test_an_idle_subscriber_is_handed_what_is_asked_for_again(self) -> None:
        """Long after its handler returned, and as often as it is asked for."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        receipts: list[Receipt] = []
        came = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            receipts.append(delivery.receipt)
            came.set()

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.subscribe, range(SHARDS), handler)
                for turn in range(2 * TRIES_MAX):
                    await came.wait()
                    await anyio.wait_all_tasks_blocked()
                    assert len(receipts) == turn + 1
                    assert not any(bus.depth().values())
                    came = anyio.Event()
                    await receipts[-1].again()
                await came.wait()
                await receipts[-1].ack()
                tasks.cancel_scope.cancel()
        assert await self.dead(bus).count() == 0
        await bus.publish(batch_of(1))
        assert list(map(number_of, await self.take(bus, 1))) == [1]

    async def test_a_hand_over_is_settled_once(self) -> None:
        """Not again after an acknowledgement, and not acknowledged by a receipt that is spent."""
        bus = await self.new()
        for number in range(3):
            await bus.publish(batch_of(number))
        seen: list[Delivery] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            seen.append(delivery)
            if len(seen) == 1:
                await delivery.ack()
                await delivery.again()
            elif len(seen) == 2:
                await delivery.again()
                await delivery.receipt.again()
                await delivery.ack()
            elif len(seen) == 3:
                await seen[1].ack()
                await seen[1].again()
            else:
                done.set()

        await self.until(bus, handler, done)
        for one in seen:
            # Too late: they are the next subscriber's, once.
            await one.again()
        assert list(map(number_of, seen)) == [0, 1, 1, 2]
        assert list(map(number_of, await self.take(bus, 2))) == [1, 2]
        await bus.publish(batch_of(3))
        assert list(map(number_of, await self.take(bus, 1))) == [3]

    async def test_a_batch_asked_for_again_that_fails_then_is_tried_five_times(self) -> None:
        """C9: of those, only failures count."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        await bus.publish(batch_of(1))
        tries: list[int] = []
        held: list[Receipt] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            if number_of(delivery) > 0 and held:
                await held.pop().again()
                return
            if number_of(delivery) > 0:
                done.set()
                return
            tries.append(delivery.attempt)
            if len(tries) == 1:
                held.append(delivery.receipt)
                return
            raise LookupError("poison")

        await bus.publish(batch_of(2))
        await self.until(bus, handler, done)
        assert tries == [1, *range(1, TRIES_MAX + 1)]
        assert [letter.batch for letter in await self.dead(bus).letters()] == [batch_of(0)]

    async def test_a_further_try_waits_until_the_handler_is_ready(self) -> None:
        """C9: a first one does not, and ends of subscriptions meanwhile cost no try."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        await bus.publish(batch_of(1))
        handler = _Patient()
        handler.fails = True
        await self.until(bus, handler, handler.asked)
        assert handler.seen == [(0, 1)]
        for _ in range(2 * TRIES_MAX):
            handler.asked = anyio.Event()
            await self.until(bus, handler, handler.asked)
        # A bus may have counted the second try when it found what the first subscription left.
        assert {number for number, _ in handler.seen} == {0}
        assert max(attempt for _, attempt in handler.seen) <= 2
        handler.fails, handler.done = False, anyio.Event()
        handler.opened.set()
        await self.until(bus, handler, handler.done)
        assert [number for number, _ in handler.seen[-2:]] == [0, 1]
        assert handler.seen[-2][1] <= 3
        assert await self.dead(bus).count() == 0

    async def test_what_is_held_or_asked_for_again_at_the_end_is_the_next_subscribers(self) -> None:
        """In the old order, together with what was never handed over."""
        bus = await self.new()
        for number in range(50):
            await bus.publish(batch_of(number))
        seen: list[Delivery] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            seen.append(delivery)
            if len(seen) == 40:
                for one in seen[::-2]:
                    await one.again()
                done.set()
                await anyio.sleep_forever()

        await self.until(bus, handler, done)
        assert list(map(number_of, await self.take(bus, 50))) == list(range(50))

    async def test_at_its_end_a_closed_bus_still_takes_acknowledgements(self) -> None:
        """Of what was handed over before; then the subscription ends, and nothing is left."""
        bus = await self.new()
        for number in range(100):
            await bus.publish(batch_of(number))
        await bus.close()
        held: list[Receipt] = []
        ends: list[int] = []

        async def handler(delivery: Delivery) -> None:
            held.append(delivery.receipt)

        async def at_end() -> None:
            ends.append(len(held))
            await anyio.sleep(0.01)
            for one in held:
                await one.ack()

        with anyio.fail_after(WAIT_SECONDS):
            await bus.subscribe(range(SHARDS), handler, at_end=at_end)
            await bus.subscribe(range(SHARDS), handler)
        assert ends == [100]
        assert len(held) == 100
        assert not any(bus.depth().values())

    async def test_a_subscription_that_is_cancelled_has_no_end_of_that_kind(self) -> None:
        """What it holds is the next one's."""
        bus = await self.new()
        await bus.publish(batch_of(0))
        done = anyio.Event()

        async def handler(_: Delivery) -> None:
            done.set()

        async def at_end() -> None:
            raise AssertionError

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(bus.subscribe, range(SHARDS), handler, at_end=at_end))
                await done.wait()
                tasks.cancel_scope.cancel()
        assert list(map(number_of, await self.take(bus, 1))) == [0]

    async def test_a_receipt_does_not_keep_its_batch(self) -> None:
        """Where the bus itself does not keep it: many may be held for long."""
        bus = await self.new()
        for number in range(3):
            await bus.publish(batch_of(number))
        receipts: list[Receipt] = []
        batches: list[weakref.ref[SampleBatch]] = []
        done = anyio.Event()

        async def handler(delivery: Delivery) -> None:
            receipts.append(delivery.receipt)
            batches.append(weakref.ref(delivery.batch))
            if len(receipts) == 3:
                done.set()

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.subscribe, range(SHARDS), handler)
                await done.wait()
                while bus.is_shared and any(one() is not None for one in batches):
                    await anyio.sleep(0.01)
                    gc.collect()
                for receipt in receipts:
                    await receipt.ack()
                while any(one() is not None for one in batches):
                    await anyio.sleep(0.01)
                    gc.collect()
                tasks.cancel_scope.cancel()
