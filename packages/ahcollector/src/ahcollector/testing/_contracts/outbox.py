"""What every `Outbox` does."""

from __future__ import annotations

from datetime import UTC, datetime

from ahcollector.errors import FencedOutboxError, OutboxError
from ahcollector.outbox import OutboxBounds
from ahcollector.outbox.base import Outbox
from ahcollector.testing._contracts._expect import expect
from ahwire import Event, EventType
from ahwire.limits import MAX_FENCE, MAX_HUB_BYTES

__all__ = ["OutboxContract", "event"]

T0 = 1_700_000_000.0
BOUNDS = OutboxBounds(dead_max=100)


def event(number: int, *, text: str = "") -> Event:
    """Return an event; equal numbers give equal events."""
    return Event(
        event_id=f"018bcfe5-6800-7000-8000-{number:012x}",
        type=EventType.AGENT_DOWN,
        seq=number,
        occurred_at=datetime.fromtimestamp(T0, UTC),
        company_id="acme",
        server_id=f"server-{number}",
        agent_id=f"agent-{number}",
        suppressed=False,
        labels={"text": text} if text else {},
    )


class OutboxContract:
    """The suite; derive from it and give `new` (and `reopen` where there is something durable)."""

    durable = False

    async def new(self, bounds: OutboxBounds = BOUNDS) -> Outbox:
        """Return an empty outbox of these bounds."""
        raise NotImplementedError

    async def reopen(self, outbox: Outbox) -> Outbox:
        """Return what a new process finds after `outbox` was left behind without a goodbye."""
        raise NotImplementedError

    async def again(self, outbox: Outbox) -> Outbox:
        """Reopen where there is something durable."""
        return await self.reopen(outbox) if self.durable else outbox

    async def ids(self, outbox: Outbox) -> list[int]:
        """Return the numbers of what waits."""
        return [entry.event.seq for entry in await outbox.peek(1_000)]

    async def dead_ids(self, outbox: Outbox) -> list[int]:
        """Return the numbers of the dead letters."""
        letters = await outbox.dead_letters()
        return [Event.from_json(letter.body).seq for letter in letters]

    async def test_events_come_out_whole_and_in_order(self) -> None:
        """As they were appended, also after a restart."""
        outbox = await self.new()
        assert await outbox.append([event(2), event(1)], T0) == 2
        assert await outbox.append([event(3, text="ü \u2028 \n \x00 \U0001f600")], T0 + 1) == 1
        outbox = await self.again(outbox)
        entries = await outbox.peek(10)
        assert [entry.event for entry in entries] == [
            event(2),
            event(1),
            event(3, text="ü \u2028 \n \x00 \U0001f600"),
        ]
        assert [entry.enqueued_at for entry in entries] == [T0, T0, T0 + 1]
        assert await self.ids(outbox) == [2, 1, 3]
        assert len(await outbox.peek(2)) == 2

    async def test_an_id_it_has_is_ignored(self) -> None:
        """Waiting, just delivered, or dead: a repeated append changes nothing."""
        outbox = await self.new()
        await outbox.append([event(1), event(2), event(3)], T0)
        await outbox.ack([event(1).event_id], None)
        await outbox.dead([event(2).event_id], "rejected: no", T0, None)
        outbox = await self.again(outbox)
        assert await outbox.append([event(1), event(2), event(3), event(4), event(4)], T0) == 1
        assert await self.ids(outbox) == [3, 4]

    async def test_acknowledged_events_are_gone(self) -> None:
        """And unknown ids are no error."""
        outbox = await self.new()
        await outbox.append([event(1), event(2), event(3)], T0)
        assert await outbox.ack([event(2).event_id, event(9).event_id], None) == 1
        assert await outbox.ack([event(2).event_id], None) == 0
        outbox = await self.again(outbox)
        assert await self.ids(outbox) == [1, 3]

    async def test_dead_letters_keep_the_event_and_the_reason(self) -> None:
        """Until they are replayed or purged."""
        outbox = await self.new()
        await outbox.append([event(1), event(2), event(3)], T0)
        assert await outbox.dead([event(1).event_id], "rejected: unknown agent", T0 + 5, None) == 1
        outbox = await self.again(outbox)
        [letter] = await outbox.dead_letters()
        assert letter.letter_id == event(1).event_id
        assert letter.body == event(1).to_json()
        assert (letter.reason, letter.enqueued_at, letter.dead_at, letter.replayable) == (
            "rejected: unknown agent",
            T0,
            T0 + 5,
            True,
        )
        assert await outbox.replay([letter.letter_id, "unknown"], T0 + 10) == 1
        outbox = await self.again(outbox)
        assert await outbox.dead_letters() == []
        assert await self.ids(outbox) == [2, 3, 1]
        assert (await outbox.peek(3))[2].enqueued_at == T0 + 10
        await outbox.dead([event(1).event_id, event(2).event_id], "refused", T0 + 11, None)
        assert await outbox.purge([event(2).event_id]) == 1
        outbox = await self.again(outbox)
        assert await self.dead_ids(outbox) == [1]
        assert await outbox.purge(None) == 1
        assert await self.dead_ids(await self.again(outbox)) == []

    async def test_what_is_too_old_becomes_a_dead_letter(self) -> None:
        """Appended before the cutoff, exactly."""
        outbox = await self.new()
        await outbox.append([event(1)], T0)
        await outbox.append([event(2)], T0 + 1)
        assert await outbox.expire(T0, T0 + 2) == 0
        assert await outbox.expire(T0 + 1, T0 + 2) == 1
        outbox = await self.again(outbox)
        assert await self.ids(outbox) == [2]
        [letter] = await outbox.dead_letters()
        assert letter.reason == "expired"

    async def test_dead_letters_are_bounded(self) -> None:
        """The oldest go, counted: beyond the number, and beyond their retention."""
        outbox = await self.new(OutboxBounds(dead_max=3))
        await outbox.append([event(number) for number in range(6)], T0)
        for number in range(5):
            await outbox.dead([event(number).event_id], "rejected", T0 + number, None)
        assert await self.dead_ids(outbox) == [2, 3, 4]
        assert (await outbox.stats(T0)).dead_dropped == 2
        assert await self.dead_ids(await self.again(outbox)) == [2, 3, 4]

    async def test_dead_letters_end_with_their_retention(self) -> None:
        """Expire drops what is older than 30 days."""
        outbox = await self.new()
        await outbox.append([event(1), event(2)], T0)
        await outbox.dead([event(1).event_id], "rejected", T0, None)
        await outbox.dead([event(2).event_id], "rejected", T0 + 10, None)
        await outbox.expire(T0 - 1, T0 + 30 * 86_400 + 5)
        assert await self.dead_ids(await self.again(outbox)) == [2]

    async def test_dead_letters_come_in_pages(self) -> None:
        """Oldest first."""
        outbox = await self.new()
        await outbox.append([event(number) for number in range(5)], T0)
        await outbox.dead([event(number).event_id for number in range(5)], "rejected", T0, None)
        first = await outbox.dead_letters(limit=2)
        second = await outbox.dead_letters(after=first[-1].letter_id, limit=2)
        third = await outbox.dead_letters(after=second[-1].letter_id, limit=2)
        found = [Event.from_json(letter.body).seq for letter in first + second + third]
        assert found == [0, 1, 2, 3, 4]
        assert await outbox.dead_letters(after=third[-1].letter_id) == []
        await outbox.purge([first[-1].letter_id])
        behind_what_is_gone = await outbox.dead_letters(after=first[-1].letter_id, limit=1)
        assert behind_what_is_gone == first[:1]

    async def test_an_old_fence_is_refused_and_changes_nothing(self) -> None:
        """C20: who lost the lease can neither acknowledge nor bury."""
        outbox = await self.new()
        await outbox.append([event(1), event(2)], T0)
        assert await outbox.ack([event(9).event_id], 7) == 0
        with expect(FencedOutboxError):
            await outbox.ack([event(1).event_id], 6)
        with expect(FencedOutboxError):
            await outbox.dead([event(1).event_id], "rejected", T0, 6)
        assert await self.ids(outbox) == [1, 2]
        assert await outbox.ack([event(1).event_id], 7) == 1
        assert await outbox.ack([event(2).event_id], None) == 1

    async def test_what_no_lease_can_give_is_no_fence(self) -> None:
        """It is refused like an old one, and not remembered: it would shut out every other."""
        outbox = await self.new()
        await outbox.append([event(1), event(2)], T0)
        for odd in (-(2**63), -1, MAX_FENCE, MAX_FENCE + 1, 2**63 - 1, 2**63, 10**30):
            with expect(FencedOutboxError):
                await outbox.ack([event(1).event_id], odd)
            with expect(FencedOutboxError):
                await outbox.dead([event(1).event_id], "rejected", T0, odd)
        assert await self.ids(outbox) == [1, 2]
        assert await outbox.ack([event(1).event_id], 0) == 1
        assert await outbox.ack([event(2).event_id], MAX_FENCE - 1) == 1
        with expect(FencedOutboxError):
            await outbox.ack([event(2).event_id], MAX_FENCE - 2)

    async def test_a_full_outbox_refuses_and_keeps_what_it_has(self) -> None:
        """All of an append, or nothing of it."""
        outbox = await self.new(OutboxBounds(events_max=2))
        await outbox.append([event(1)], T0)
        with expect(OutboxError):
            await outbox.append([event(2), event(3)], T0)
        assert await self.ids(await self.again(outbox)) == [1]

    async def test_a_full_outbox_has_room_again(self) -> None:
        """Known events are no reason to refuse, and what left made room."""
        outbox = await self.new(OutboxBounds(events_max=2))
        await outbox.append([event(1), event(2)], T0)
        assert await outbox.append([event(1), event(2)], T0) == 0
        await outbox.ack([event(1).event_id], None)
        assert await outbox.append([event(1), event(2), event(3)], T0) == 1
        assert await self.ids(outbox) == [2, 3]
        await outbox.dead([event(2).event_id], "rejected", T0, None)
        assert await outbox.append([event(4)], T0) == 1
        with expect(OutboxError):
            await outbox.append([event(5)], T0)

    async def test_the_queue_is_bounded_by_bytes(self) -> None:
        """Whatever was appended, acknowledged and replayed before."""
        size = len(event(1, text="x" * 1_000).to_json())
        outbox = await self.new(OutboxBounds(events_bytes_max=2 * size + 500))
        for turn in range(5):
            first, second = (event(2 * turn + n, text="x" * 1_000) for n in (1, 2))
            assert await outbox.append([first, second], T0) == 2
            with expect(OutboxError):
                await outbox.append([event(100, text="x" * 1_000)], T0)
            await outbox.dead([first.event_id], "rejected", T0, None)
            await outbox.ack([second.event_id], None)
            assert await outbox.replay(None, T0) == 1
            assert await outbox.ack([first.event_id], None) == 1
        assert (await outbox.stats(T0)).depth == 0

    async def test_a_page_has_room_in_a_request_to_the_hub(self) -> None:
        """Also where each event is a long list; the first is there, however large it is."""
        outbox = await self.new(OutboxBounds())
        events = [event(number, text="x" * 150_000) for number in range(1, 101)]
        for begin in range(0, 100, 20):
            await outbox.append(events[begin : begin + 20], 1.0)
        seen: list[str] = []
        while page := await outbox.peek(200):
            found = [entry.event for entry in page]
            assert sum(len(each.to_json()) + 1 for each in found) < MAX_HUB_BYTES - 100
            seen += [each.event_id for each in found]
            await outbox.ack(seen, None)
        assert seen == [each.event_id for each in events]

    async def test_dead_letters_are_bounded_by_bytes(self) -> None:
        """The oldest go."""
        size = len(event(1, text="x" * 1_000).to_json())
        outbox = await self.new(OutboxBounds(dead_bytes_max=3 * size + 500))
        await outbox.append([event(number, text="x" * 1_000) for number in range(5)], T0)
        for number in range(5):
            await outbox.dead([event(number).event_id], "rejected", T0, None)
        outbox = await self.again(outbox)
        assert await self.dead_ids(outbox) == [2, 3, 4]
        assert (await outbox.stats(T0)).dead_bytes == 3 * size

    async def test_letters_go_back_as_far_as_there_is_room(self) -> None:
        """The oldest first; when there is none for the first, that is an error."""
        outbox = await self.new(OutboxBounds(events_max=3))
        await outbox.append([event(1), event(2), event(3)], T0)
        ids = [event(number).event_id for number in (3, 1, 2)]
        await outbox.dead(ids, "rejected", T0, None)
        await outbox.append([event(4)], T0)
        assert await outbox.replay(None, T0 + 1) == 2
        outbox = await self.again(outbox)
        assert len(await self.dead_ids(outbox)) == 1
        assert len(await self.ids(outbox)) == 3
        with expect(OutboxError):
            await outbox.replay(None, T0 + 1)
        assert await outbox.replay(["unknown"], T0 + 1) == 0

    async def test_many_letters_go_back_in_order_and_as_far_as_there_is_room(self) -> None:
        """More than are moved in one step."""
        outbox = await self.new(OutboxBounds(events_max=1_250, dead_max=2_000))
        events = [event(number) for number in range(1_200)]
        await outbox.append(events, T0)
        await outbox.dead([one.event_id for one in events], "rejected", T0, None)
        await outbox.append([event(number) for number in range(2_000, 2_100)], T0)
        assert await outbox.replay(None, T0 + 1) == 1_150
        outbox = await self.again(outbox)
        assert len(await self.dead_ids(outbox)) == 50
        assert await self.ids(outbox) == [*range(2_000, 2_100), *range(900)]

    async def test_every_method_may_be_repeated(self) -> None:
        """C10: whoever got no answer asks again, and nothing is done twice."""
        outbox = await self.new()
        for _ in range(2):
            await outbox.append([event(number) for number in range(6)], T0)
        for _ in range(2):
            await outbox.ack([event(0).event_id], 7)
            await outbox.dead([event(1).event_id, event(2).event_id], "rejected", T0, 7)
        for _ in range(2):
            await outbox.replay([event(1).event_id], T0)
            await outbox.purge([event(2).event_id])
        assert await self.ids(outbox) == [3, 4, 5, 1]
        for _ in range(2):
            await outbox.expire(T0 + 1, T0 + 1)
        outbox = await self.again(outbox)
        assert await self.ids(outbox) == []
        assert await self.dead_ids(outbox) == [3, 4, 5, 1]

    async def test_reasons_are_kept_as_they_are(self) -> None:
        """Whatever a hub says."""
        outbox = await self.new()
        reasons = [
            "",
            "rejected: \x00 \n 7 1 \u00fc \U0001f600",
            "refused: half a pair \ud83d",
            "1 - 0 3 ",
        ]
        await outbox.append([event(number) for number in range(4)], T0)
        for number, reason in enumerate(reasons):
            await outbox.dead([event(number).event_id], reason, T0, None)
        letters = await (await self.again(outbox)).dead_letters()
        assert [letter.reason for letter in letters] == reasons
        assert [letter.body for letter in letters] == [event(n).to_json() for n in range(4)]

    async def test_stats_tell_the_state(self) -> None:
        """Depth, age and dead letters."""
        outbox = await self.new()
        empty = await outbox.stats(T0)
        assert (empty.depth, empty.oldest_age_seconds, empty.dead, empty.dead_bytes) == (0, 0, 0, 0)
        await outbox.append([event(1), event(2)], T0)
        await outbox.dead([event(1).event_id], "rejected", T0, None)
        stats = await (await self.again(outbox)).stats(T0 + 60)
        assert (stats.depth, stats.oldest_age_seconds, stats.dead) == (1, 60, 1)
        assert stats.dead_bytes == len(event(1).to_json())
        assert stats.damaged_lines == 0
