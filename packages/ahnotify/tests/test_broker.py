"""The embedded broker keeps the contract, and its leases are safe."""

from __future__ import annotations

import pytest

from ahnotify.broker.sql import SqlBroker
from ahnotify.database import Database
from ahnotify.errors import LeaseLostError
from ahnotify.testing.broker_contract import (
    CONTRACT_TOPOLOGY,
    DELIVERIES_MAX,
    BrokerContract,
    letter,
    nothing_comes,
    receive_within,
)


def make(database, clock) -> SqlBroker:
    return SqlBroker(
        database=database,
        clock=clock,
        topology=CONTRACT_TOPOLOGY,
        lease_seconds=30,
        deliveries_max=DELIVERIES_MAX,
    )


@pytest.fixture
def broker(database, clock):
    return make(database, clock)


@pytest.fixture
async def reopen(url, clock, anyio_backend):
    opened = []

    def another() -> SqlBroker:
        opened.append(Database.open(url))
        return make(opened[-1], clock)

    yield another
    for database in opened:
        await database.aclose()


@pytest.fixture
def pass_time(clock):
    return clock.advance


class TestSqlBroker(BrokerContract):
    pass


@pytest.mark.anyio
async def test_a_silent_holder_loses_its_message_and_cannot_end_it_any_more(broker, reopen, clock):
    await broker.publish([letter()])
    async with broker.consume("one", prefetch_items=1) as dead:
        old = await receive_within(dead)
        # A stopped process renews nothing: the clock jumps past the lease in one step.
        clock._now += 31
        other = reopen()
        async with other.consume("one", prefetch_items=1) as living:
            new = await receive_within(living)
            assert new.delivery_count == 2
            for end in (old.ack, old.nack):
                with pytest.raises(LeaseLostError):
                    await end()
            with pytest.raises(LeaseLostError):
                await old.dead_letter("late")
            await new.ack()


@pytest.mark.anyio
async def test_a_working_holder_keeps_its_message_for_longer_than_a_lease(broker, reopen, clock):
    await broker.publish([letter()])
    async with broker.consume("one", prefetch_items=1) as consumer:
        held = await receive_within(consumer)
        async with reopen().consume("one", prefetch_items=1) as other:
            for _ in range(12):
                await clock.advance(10)
                assert await nothing_comes(other, 0.05)
        await held.ack()


@pytest.mark.anyio
async def test_what_never_left_the_buffer_does_not_count_as_delivered(broker):
    await broker.publish([letter("a"), letter("b")])
    async with broker.consume("one", prefetch_items=2) as consumer:
        await receive_within(consumer)
    async with broker.consume("one", prefetch_items=2) as consumer:
        counts = {}
        for _ in range(2):
            delivery = await receive_within(consumer)
            counts[delivery.message_id] = delivery.delivery_count
    assert counts == {"a": 2, "b": 1}
