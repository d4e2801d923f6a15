"""What every `Broker` must do; needs pytest and anyio's plugin.

Subclass `BrokerContract` in a test module and give it the fixtures `broker` (a fresh one with
`CONTRACT_TOPOLOGY` and a delivery limit of `DELIVERIES_MAX`), `reopen` (a callable that gives
another broker on the same queues, as a restarted process would have) and `pass_time` (a coroutine
function that lets that many seconds pass for the broker).
"""
# ruff: noqa: D102 - a test's name is what it proves

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import pytest

from ahnotify.broker.base import Broker, Consumer, Delivery, Message, Topology
from ahnotify.errors import UnroutableError

__all__ = ["CONTRACT_TOPOLOGY", "DELIVERIES_MAX", "BrokerContract", "receive_within"]

CONTRACT_TOPOLOGY: Final = Topology(
    routes={"one": ("one",), "both": ("left", "right"), "fanout": ()}, dead_letters="dead"
)
DELIVERIES_MAX: Final = 5

PassTime = Callable[[float], Awaitable[None]]


async def receive_within(consumer: Consumer, seconds: float = 5) -> Delivery:
    """The next message, or TimeoutError."""
    with anyio.fail_after(seconds):
        return await consumer.receive()


async def nothing_comes(consumer: Consumer, seconds: float = 0.2) -> bool:
    """Whether no message comes for a while of real time."""
    with anyio.move_on_after(seconds):
        await consumer.receive()
        return False
    return True


def letter(name: str = "m-1", topic: str = "one") -> Message:
    """A small message."""
    return Message(
        topic=topic,
        body=name.encode(),
        message_id=name,
        tenant_id="acme",
        headers={"kind": "letter"},
    )


@pytest.mark.anyio
class BrokerContract:
    """The contract; every method is one promise of `Broker`."""

    async def test_a_message_arrives_as_it_was_published(self, broker: Broker) -> None:
        await broker.publish([letter()])
        async with broker.consume("one", prefetch_items=1) as consumer:
            delivery = await receive_within(consumer)
            assert delivery.body == b"m-1"
            assert delivery.message_id == "m-1"
            assert delivery.tenant_id == "acme"
            assert delivery.headers["kind"] == "letter"
            assert delivery.delivery_count == 1
            assert delivery.queue == "one"
            await delivery.ack()

    async def test_a_topic_reaches_every_queue_that_takes_it(self, broker: Broker) -> None:
        await broker.publish([letter(topic="both")])
        for queue in ("left", "right"):
            async with broker.consume(queue, prefetch_items=1) as consumer:
                await (await receive_within(consumer)).ack()

    async def test_a_topic_that_no_queue_takes_is_refused(self, broker: Broker) -> None:
        with pytest.raises(UnroutableError):
            await broker.publish([letter(topic="nowhere")])

    async def test_a_topic_that_nobody_need_hear_is_taken(self, broker: Broker) -> None:
        await broker.publish([letter(topic="fanout")])

    async def test_a_published_message_survives_a_restart(
        self, broker: Broker, reopen: Callable[[], Broker]
    ) -> None:
        await broker.publish([letter()])
        async with reopen().consume("one", prefetch_items=1) as consumer:
            await (await receive_within(consumer)).ack()

    async def test_an_acked_message_never_comes_again(
        self, broker: Broker, reopen: Callable[[], Broker], pass_time: PassTime
    ) -> None:
        await broker.publish([letter()])
        async with broker.consume("one", prefetch_items=1) as consumer:
            await (await receive_within(consumer)).ack()
        await pass_time(3_600)
        async with reopen().consume("one", prefetch_items=1) as consumer:
            assert await nothing_comes(consumer)

    async def test_a_message_given_back_comes_again_after_its_delay(
        self, broker: Broker, pass_time: PassTime
    ) -> None:
        await broker.publish([letter()])
        async with broker.consume("one", prefetch_items=1) as consumer:
            await (await receive_within(consumer)).nack(delay_seconds=10)
            assert await nothing_comes(consumer)
            await pass_time(11)
            delivery = await receive_within(consumer)
            assert delivery.delivery_count == 2
            await delivery.ack()

    async def test_a_delayed_message_waits_and_a_later_shorter_delay_passes_it(
        self, broker: Broker, pass_time: PassTime
    ) -> None:
        await broker.publish([letter("slow")], delay_seconds=1_800)
        await broker.publish([letter("quick")], delay_seconds=60)
        async with broker.consume("one", prefetch_items=2) as consumer:
            assert await nothing_comes(consumer)
            await pass_time(61)
            assert (await receive_within(consumer)).message_id == "quick"
            assert await nothing_comes(consumer)

    async def test_no_more_than_the_prefetch_is_held(self, broker: Broker) -> None:
        await broker.publish([letter(f"m-{number}") for number in range(4)])
        async with broker.consume("one", prefetch_items=2) as consumer:
            first = await receive_within(consumer)
            await receive_within(consumer)
            assert await nothing_comes(consumer)
            await first.ack()
            await receive_within(consumer)

    async def test_leaving_gives_back_at_once_what_was_held(self, broker: Broker) -> None:
        await broker.publish([letter("a"), letter("b")])
        async with broker.consume("one", prefetch_items=2) as consumer:
            await receive_within(consumer)
        async with broker.consume("one", prefetch_items=2) as consumer:
            names = {(await receive_within(consumer)).message_id for _ in range(2)}
        assert names == {"a", "b"}

    async def test_two_consumers_never_hold_the_same_message(self, broker: Broker) -> None:
        await broker.publish([letter(f"m-{number}") for number in range(20)])
        seen: list[str] = []
        complete = anyio.Event()

        async def read() -> None:
            async with broker.consume("one", prefetch_items=3) as consumer:
                while True:
                    delivery = await consumer.receive()
                    seen.append(delivery.message_id)
                    await delivery.ack()
                    if len(seen) >= 20:
                        complete.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(read)
            with anyio.fail_after(10):
                await complete.wait()
            tasks.cancel_scope.cancel()
        assert sorted(seen) == sorted({f"m-{number}" for number in range(20)})

    async def test_a_dead_letter_keeps_its_body_and_tells_why_and_whence(
        self, broker: Broker
    ) -> None:
        await broker.publish([letter()])
        async with broker.consume("one", prefetch_items=1) as consumer:
            await (await receive_within(consumer)).dead_letter("it is broken")
            assert await nothing_comes(consumer)
        async with broker.consume("dead", prefetch_items=1) as consumer:
            delivery = await receive_within(consumer)
            assert delivery.body == b"m-1"
            assert delivery.headers["reason"] == "it is broken"
            assert delivery.headers["source_queue"] == "one"
            await delivery.ack()

    async def test_poison_ends_in_the_dead_letters_and_is_not_gone(
        self, broker: Broker, pass_time: PassTime
    ) -> None:
        await broker.publish([letter()])
        for _ in range(DELIVERIES_MAX):
            async with broker.consume("one", prefetch_items=1) as consumer:
                await receive_within(consumer)
            await pass_time(1)
        async with broker.consume("one", prefetch_items=1) as consumer:
            assert await nothing_comes(consumer)
        async with broker.consume("dead", prefetch_items=1) as consumer:
            delivery = await receive_within(consumer)
            assert delivery.headers["reason"] == "delivery_limit"

    async def test_a_cancelled_receive_loses_nothing(self, broker: Broker) -> None:
        async with broker.consume("one", prefetch_items=1) as consumer:
            with anyio.move_on_after(0.05):
                await consumer.receive()
            await broker.publish([letter()])
            await (await receive_within(consumer)).ack()

    async def test_depth_tells_what_is_ready_held_and_delayed(self, broker: Broker) -> None:
        await broker.publish([letter("a"), letter("b"), letter("c")])
        await broker.publish([letter("d")], delay_seconds=60)
        async with broker.consume("one", prefetch_items=1) as consumer:
            await receive_within(consumer)
            depth = await broker.depth("one")
        assert (depth.ready, depth.unacked, depth.delayed) == (2, 1, 1)
