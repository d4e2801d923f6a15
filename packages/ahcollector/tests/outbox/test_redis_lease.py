"""The sender's lease in Redis: one holder, fences that only rise, whatever is lost."""

import time

import anyio
import pytest

from ahcollector.errors import FencedOutboxError, OutboxError
from ahcollector.metrics import LEASE_HELD, NullMetrics
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.outbox import T0, event

pytestmark = [pytest.mark.anyio, pytest.mark.service]


class Gauges(NullMetrics):
    def __init__(self):
        self.of = {}

    def set(self, metric, value, /, **labels):
        self.of[metric] = value


async def test_one_holds_it_and_renews_it(outboxes):
    one, other = outboxes.lease(lease_seconds=0.3), outboxes.lease(lease_seconds=0.3)
    before = time.time_ns() // 1_000_000
    fence = await one.hold()
    assert before - 1 <= fence <= time.time_ns() // 1_000_000 + 1
    for _ in range(12):
        await anyio.sleep(0.05)
        assert await one.hold() == fence
        assert await other.hold() is None


@pytest.mark.fault
async def test_who_shows_no_life_is_followed_within_the_lease(outboxes):
    """A holder that was killed; the next fence is above its own."""
    one, other = outboxes.lease(lease_seconds=0.4), outboxes.lease(lease_seconds=0.4)
    fence = await one.hold()
    ended = time.monotonic()
    while (next_fence := await other.hold()) is None:
        await anyio.sleep(0.01)
    assert 0.3 < time.monotonic() - ended < 0.4 + 1.0
    assert next_fence > fence
    assert await one.hold() is None


@pytest.mark.fault
async def test_c20_a_holder_that_stood_still_can_settle_nothing_from_the_moment_it_is_followed(
    outboxes,
):
    """C20: also before its successor settled anything."""
    clock = FakeClock()
    outbox = outboxes()
    stopped, other = outboxes.lease(clock=clock, lease_seconds=0.2), outboxes.lease()
    await outbox.append([event(1)], T0)
    old = await stopped.hold()
    await anyio.sleep(0.25)
    new = await other.hold()
    # By its own clock no time went by.
    assert await stopped.hold() == old
    for call in (
        outbox.ack([event(1).event_id], old),
        outbox.dead([event(1).event_id], "rejected", T0, old),
    ):
        with pytest.raises(FencedOutboxError) as caught:
            await call
        assert caught.value.newest == new
    await stopped.drop(new)
    assert await stopped.hold() is None
    assert await outbox.ack([event(1).event_id], new) == 1


async def test_a_lease_that_was_given_up_is_free_at_once(outboxes):
    one, other = outboxes.lease(), outboxes.lease()
    fence = await one.hold()
    await one.drop(None)
    assert await other.hold() > fence
    await one.drop(None)
    assert await one.hold() is None, "who does not hold it cannot end it"


async def test_after_a_refusal_the_next_is_above_the_newest(outboxes):
    one, other = outboxes.lease(), outboxes.lease()
    newest = await one.hold() + 1_000_000_000
    await one.drop(newest)
    again = await one.hold()
    assert again == newest + 1
    await one.drop(None)
    assert await other.hold() == newest + 2


@pytest.mark.fault
async def test_a_redis_that_lost_everything_cannot_turn_the_fence_back(outboxes):
    """Not by its loss, and not by its clock either, once the hub named the newest."""
    one = outboxes.lease(lease_seconds=0.1)
    client = outboxes.client()
    fence = await one.hold()
    for key in ("ob:fence", "outbox:sender"):
        await client.call("DEL", client.prefix + key)
    await anyio.sleep(0.1)
    assert await one.hold() > fence
    far = fence + 10_000_000_000
    await one.drop(far)
    # What the process was told it knows, also when Redis lost it again.
    for key in ("ob:fence", "outbox:sender"):
        await client.call("DEL", client.prefix + key)
    assert await one.hold() == far + 1


async def test_a_lease_under_a_fence_that_was_seen_is_taken_anew(outboxes):
    """Whoever settled with a newer one: what this holder would settle is refused anyway."""
    clock = FakeClock()
    lease, outbox = outboxes.lease(clock=clock), outboxes()
    newer = await lease.hold() + 1_000_000_000
    await outbox.ack([], newer)
    clock.advance(6)
    assert await lease.hold() == newer + 1


async def test_fences_are_exact_to_their_last_digit(outboxes):
    one, other = outboxes.lease(), outboxes.lease()
    await one.drop(2**52 - 1)
    assert await one.hold() == 2**52
    await one.drop(None)
    assert await other.hold() == 2**52 + 1


@pytest.mark.fault
@pytest.mark.parametrize("newest", [2**52, 2**53 - 1, 2**53, 2**63 - 2, 2**63 - 1, 2**64, -1])
async def test_a_newest_that_none_can_be_above_is_not_followed(outboxes, newest):
    """What a hub once said in error would stop the lease of every process for good."""
    one, other = outboxes.lease(), outboxes.lease()
    fence = await one.hold()
    await one.drop(newest)
    for lease in (other, one):
        again = await lease.hold()
        assert fence < again < fence + 60_000
        await lease.drop(None)
        fence = again


@pytest.mark.fault
@pytest.mark.parametrize("kept", [2**53 - 2, 2**53 - 1, 2**53, 10**18, 2**63 - 1, 2**64, "9" * 30])
async def test_a_counter_at_its_end_goes_on_with_the_time(outboxes, kept):
    """An earlier version followed what it was told; nothing is left to mend by hand."""
    client, outbox = outboxes.client(), outboxes()
    await client.call("SET", client.key("ob", "fence"), str(kept))
    before = time.time_ns() // 1_000_000 - 1
    one, other = outboxes.lease(), outboxes.lease()
    fence = await one.hold()
    assert before <= fence < before + 60_000
    await outbox.append([event(1)], T0)
    if str(kept) != str(2**53 - 2):
        with pytest.raises(FencedOutboxError, match="none that a lease can give"):
            await outbox.ack([event(1).event_id], int(kept))
    assert await one.hold() == fence
    assert await outbox.ack([event(1).event_id], fence) == 1
    await one.drop(None)
    assert await other.hold() > fence


@pytest.mark.fault
async def test_a_lease_whose_counter_went_back_is_kept_all_the_same(outboxes):
    """Its own last fence was the last that there is: it does not ask for one above that."""
    clock = FakeClock()
    client, lease = outboxes.client(), outboxes.lease(clock=clock)
    await client.call("SET", client.key("ob", "fence"), str(2**53 - 3))
    assert await lease.hold() == 2**53 - 2
    await lease.drop(None)
    fence = await lease.hold()
    assert fence < 2**52
    clock.advance(6)
    assert await lease.hold() == fence
    await lease.drop(None)
    assert await lease.hold() > fence


@pytest.mark.parametrize("found", ["", "nonsense", "12", "12 somebody"])
async def test_what_would_never_end_is_no_lease(outboxes, found):
    client = outboxes.client()
    await client.call("SET", client.key("outbox", "sender"), found)
    assert await outboxes.lease().hold() is not None


@pytest.mark.fault
async def test_c10_a_lease_whose_reply_was_lost_is_found_again(outboxes_at, line, private_redis):
    """C10: Redis gave it, and nobody heard so; asking again gives the same, not a wait."""
    async with outboxes_at(line.port) as new:
        lease, other = new.lease(), new.lease()
        await other.drop(await other.hold())
        line.loses = True
        with pytest.raises(OutboxError):
            await lease.hold()
        fence = await lease.hold()
        assert fence is not None
        assert await other.hold() is None


async def test_it_is_asked_for_again_when_a_third_is_over(outboxes):
    """So two thirds are left for a request to the hub."""
    clock = FakeClock()
    client = outboxes.client()
    lease = outboxes.lease(client=client, clock=clock, lease_seconds=15.0)
    fence = await lease.hold()
    clock.advance(4.9)
    await client.call("DEL", client.key("outbox", "sender"))
    assert await lease.hold() == fence
    clock.advance(0.2)
    assert await lease.hold() > fence


async def test_the_gauge_tells_who_holds_it(outboxes_at, private_redis):
    clock, gauges = FakeClock(), Gauges()
    async with outboxes_at(private_redis.port) as new:
        lease = new.lease(client=new.client(timeout_seconds=0.5), clock=clock, metrics=gauges)
        other = new.lease()
        await lease.hold()
        assert gauges.of[LEASE_HELD] == 1
        await lease.drop(None)
        assert gauges.of[LEASE_HELD] == 0
        await other.hold()
        assert await lease.hold() is None
        assert gauges.of[LEASE_HELD] == 0
        await other.drop(None)
        await lease.hold()
        private_redis.kill()
        clock.advance(6)
        with pytest.raises(OutboxError):
            await lease.hold()
        assert gauges.of[LEASE_HELD] == 1, "Redis is gone, and the lease is not over yet"
        clock.advance(10)
        with pytest.raises(OutboxError):
            await lease.hold()
        assert gauges.of[LEASE_HELD] == 0
        with pytest.raises(OutboxError):
            await lease.drop(None)


async def test_a_reply_that_came_after_the_lease_is_none(outboxes):
    """The process was stopped between the command and its reply."""
    clock = FakeClock()

    class Late:
        prefix = "late:"

        async def run(self, *_, **__):
            clock.advance(15.0)
            return b"7"

    lease = outboxes.lease(client=Late(), clock=clock)
    assert await lease.hold() is None


async def test_a_lease_of_no_time_is_refused(outboxes):
    with pytest.raises(ValueError, match="lease_seconds"):
        outboxes.lease(lease_seconds=0.01)
