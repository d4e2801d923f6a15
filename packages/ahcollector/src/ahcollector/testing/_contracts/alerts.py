"""What every `AlertStateStore` does."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs

from ahcollector.alerts.base import AlertChange, AlertStateStore, UnitKey
from ahcollector.errors import FencedAlertStateError
from ahcollector.testing._contracts._expect import expect
from ahwire import Event, EventType

__all__ = ["AlertStateContract"]

_KEY = UnitKey(shard=7, company_id="acme")


def _event(number: int, *, company_id: str = "acme") -> Event:
    return Event(
        event_id=f"0190b6f2-0000-7000-8000-{number:012x}",
        type=EventType.ALERT_OPENED,
        seq=number,
        occurred_at=datetime(2026, 6, 15, 12, tzinfo=UTC),
        company_id=company_id,
        server_id="web-1",
        rule_id="cpu",
        series_key='ah_cpu{core="0",name="ä\\"\\n"}',
        value=97.5,
        suppressed=False,
    )


class AlertStateContract:
    """The suite; derive from it and give `new` and `reopen`."""

    async def new(self) -> AlertStateStore:
        """Return an empty store."""
        raise NotImplementedError

    async def reopen(self, store: AlertStateStore) -> AlertStateStore:
        """Return what another process finds where `store` wrote; a kill came between them."""
        raise NotImplementedError

    async def test_what_was_committed_is_there_for_the_next_owner(self) -> None:
        """The base, the pieces since, and the events in the order of their seq."""
        store = await self.new()
        first = await store.claim(_KEY)
        assert first.is_empty
        base = {"rules": "line\n" * 1000, "flapping": '{"a":"ä"}'}
        await store.commit(_KEY, first.epoch, AlertChange(seq=5, base=base))
        change = AlertChange(
            seq=12,
            pieces={'["s","web","a"]': "one", "b": "two"},
            intents=(_event(10), _event(12)),
        )
        await store.commit(_KEY, first.epoch, change)
        later = AlertChange(
            seq=13,
            pieces={"b": None, '["s","web","a"]': "new", "c": "three"},
            intents=(_event(13),),
        )
        await store.commit(_KEY, first.epoch, later)
        found = await (await self.reopen(store)).claim(_KEY)
        assert found.epoch > first.epoch
        assert (found.seq, dict(found.base)) == (13, base)
        assert dict(found.pieces) == {'["s","web","a"]': "new", "c": "three"}
        assert found.intents == (_event(10), _event(12), _event(13))
        assert found.damaged == 0

    async def test_commit_may_be_repeated(self) -> None:
        """Each event is there once, whatever answer was lost."""
        store = await self.new()
        epoch = (await store.claim(_KEY)).epoch
        change = AlertChange(seq=10, pieces={"a": "one"}, intents=(_event(10),))
        for _ in range(3):
            await store.commit(_KEY, epoch, change)
        found = await (await self.reopen(store)).claim(_KEY)
        assert found.intents == (_event(10),)
        assert dict(found.pieces) == {"a": "one"}

    async def test_base_replaces_all_pieces_and_keeps_events(self) -> None:
        """Pieces that come with it are newer than it."""
        store = await self.new()
        epoch = (await store.claim(_KEY)).epoch
        await store.commit(
            _KEY, epoch, AlertChange(seq=1, pieces={"a": "x", "b": "y"}, intents=(_event(1),))
        )
        whole = AlertChange(seq=2, base={"rules": "r2"}, pieces={"b": "z"}, intents=(_event(2),))
        await store.commit(_KEY, epoch, whole)
        await store.commit(_KEY, epoch, AlertChange(seq=2, base={"other": "o"}))
        found = await (await self.reopen(store)).claim(_KEY)
        assert (dict(found.base), dict(found.pieces)) == ({"other": "o"}, {})
        assert found.intents == (_event(1), _event(2))

    async def test_seq_never_goes_back(self) -> None:
        """Also when a change that was made before another one is repeated after it."""
        store = await self.new()
        epoch = (await store.claim(_KEY)).epoch
        for seq in (9, 10, 3):
            await store.commit(_KEY, epoch, AlertChange(seq=seq))
        assert (await (await self.reopen(store)).claim(_KEY)).seq == 10

    async def test_told_events_are_forgotten(self) -> None:
        """Each by its id; told again, or never there, changes nothing."""
        store = await self.new()
        epoch = (await store.claim(_KEY)).epoch
        events = tuple(_event(number) for number in range(1, 6))
        await store.commit(_KEY, epoch, AlertChange(seq=5, intents=events))
        await store.told(_KEY, [events[0].event_id, events[2].event_id])
        await store.told(_KEY, [events[0].event_id, _event(99).event_id])
        await store.told(_KEY, [])
        # A whole snapshot must not bring them back.
        await store.commit(_KEY, epoch, AlertChange(seq=5, base={"rules": "r"}))
        found = await store.claim(_KEY)
        assert found.intents == (events[1], events[3], events[4])

    async def test_owner_of_before_can_change_nothing(self) -> None:
        """A process that was asleep while its shard was taken over."""
        store = await self.new()
        old = (await store.claim(_KEY)).epoch
        await store.commit(_KEY, old, AlertChange(seq=1, base={"rules": "r"}))
        new = (await store.claim(_KEY)).epoch
        late = AlertChange(seq=9, base={}, pieces={"a": "x"}, intents=(_event(9),))
        with expect(FencedAlertStateError):
            await store.commit(_KEY, old, late)
        with expect(FencedAlertStateError):
            await store.set_aside(_KEY, old)
        with expect(FencedAlertStateError):
            await store.remove(_KEY, old)
        found = await store.claim(_KEY)
        assert (found.seq, dict(found.base), found.pieces, found.intents) == (
            1,
            {"rules": "r"},
            {},
            (),
        )
        with expect(FencedAlertStateError):
            await store.commit(_KEY, new, late)
        await store.commit(_KEY, found.epoch, late)

    async def test_unit_that_nobody_claimed_cannot_be_committed_to(self) -> None:
        """Nor one that was removed."""
        store = await self.new()
        with expect(FencedAlertStateError):
            await store.commit(_KEY, 0, AlertChange(seq=1))
        epoch = (await store.claim(_KEY)).epoch
        await store.remove(_KEY, epoch)
        assert await store.units([_KEY.shard]) == []
        with expect(FencedAlertStateError):
            await store.commit(_KEY, epoch, AlertChange(seq=1))
        again = await store.claim(_KEY)
        assert again.is_empty
        assert again.epoch > epoch
        with expect(FencedAlertStateError):
            await store.commit(_KEY, epoch, AlertChange(seq=1))

    async def test_unit_with_events_is_not_removed(self) -> None:
        """They would be lost."""
        store = await self.new()
        epoch = (await store.claim(_KEY)).epoch
        await store.commit(_KEY, epoch, AlertChange(seq=1, intents=(_event(1),)))
        await store.set_aside(_KEY, epoch)
        await store.remove(_KEY, epoch)
        assert (await store.claim(_KEY)).intents == (_event(1),)

    async def test_units_are_listed_by_shard_and_apart(self) -> None:
        """Companies with signs in their names, in several shards."""
        store = await self.new()
        keys = [
            UnitKey(shard=shard, company_id=company)
            for shard in (0, 7, 63)
            for company in ("acme", "acme:7", "a.b-c_d", "A" * 128)
        ]
        for number, key in enumerate(keys, 1):
            epoch = (await store.claim(key)).epoch
            intent = attrs.evolve(_event(number), company_id=key.company_id)
            change = AlertChange(seq=number, pieces={"n": str(number)}, intents=(intent,))
            await store.commit(key, epoch, change)
        again = await self.reopen(store)
        assert await again.units(range(64)) == sorted(keys)
        assert await again.units([7, 8]) == sorted(key for key in keys if key.shard == 7)
        assert await again.units([]) == []
        for number, key in enumerate(keys, 1):
            found = await again.claim(key)
            assert (found.seq, dict(found.pieces)) == (number, {"n": str(number)})
            assert [event.company_id for event in found.intents] == [key.company_id]

    async def test_a_look_moves_nothing_and_tells_who_owns_what(self) -> None:
        """The epoch of the newest claim, of those units that are known; the same birth always."""
        store = await self.new()
        other = attrs.evolve(_KEY, company_id="other")
        before = await store.look([_KEY, other])
        assert dict(before.epochs) == {}
        epoch = (await store.claim(_KEY)).epoch
        for _ in range(2):
            glance = await store.look([_KEY, other])
            assert (glance.birth, dict(glance.epochs)) == (before.birth, {_KEY: epoch})
        await store.commit(_KEY, epoch, AlertChange(seq=1))
        assert (await store.look([])).epochs == {}
        newer = (await store.claim(_KEY)).epoch
        assert (await store.look([_KEY])).epochs[_KEY] == newer
