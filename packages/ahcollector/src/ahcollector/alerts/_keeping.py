"""Units and their store: taken over, and kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from ahcollector import metrics as names
from ahcollector.alerts._unit import AlertUnit
from ahcollector.alerts.base import AlertStateStore, UnitKey
from ahcollector.alerts.settings import AlertSettings
from ahcollector.clock import AsyncClock
from ahcollector.errors import AlertStateError, FencedAlertStateError
from ahcollector.metrics import Metrics
from ahwire import EventType

__all__ = ["Keeper", "Slot"]

_log = logging.getLogger("ahcollector.alerts")

_TAKEN_OVER: Final = "another process owns their alerts now"
_STOPPED: Final = (
    "it did not take them at the stop: alerts that go on open with their next points, and what "
    "ended is not told"
)


@attrs.define(eq=False)
class Slot:
    """A unit that this process has or wants, and who may work on it now.

    Attributes:
        lock: Held by who works on it.
        unit: None before it was claimed.
        tenure: Of the shard, when it was claimed last.
        is_fenced: It must be claimed before anything is done to it.
        failing_since: Since when its store gives no answer, by the steady clock.
        saved_at: When the last whole snapshot was stored, by the steady clock.
        left_at: Since when its shard is not this process' own, by the steady clock.
        has_passed: Batches were acknowledged whose decisions are in memory only.
        behind_since: Since when it waits for newer lists of the hub, by the steady clock.
        is_forgotten: Its store has forgotten everything since it was claimed.
    """

    lock: anyio.Lock = attrs.field(factory=anyio.Lock)
    unit: AlertUnit | None = None
    tenure: object = None
    is_fenced: bool = False
    failing_since: float | None = None
    saved_at: float = float("-inf")
    left_at: float | None = None
    has_passed: bool = False
    behind_since: float | None = None
    is_forgotten: bool = False

    @property
    def undelivered(self) -> int:
        """How many events this process has to bring on their way; stored ones are the owner's."""
        if self.unit is None:
            return 0
        return self.unit.undelivered if self.left_at is None else len(self.unit.new)


class Keeper:
    """Claims units at their store, and commits what they decided."""

    def __init__(
        self,
        *,
        store: AlertStateStore,
        clock: AsyncClock,
        event_ids: Callable[[], str],
        settings: AlertSettings,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._clock = clock
        self._event_ids = event_ids
        self._settings = settings
        self._metrics = metrics

    async def claimed(self, key: UnitKey, slot: Slot) -> AlertUnit:
        """Return the unit, after taking it over where it is not this process' yet."""
        if slot.unit is not None and not slot.is_fenced:
            return slot.unit
        try:
            image = await self._store.claim(key)
        except AlertStateError:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="claim")
            raise
        if image.damaged:
            self._metrics.inc(names.RULES_STATE_FAILURES, image.damaged, call="damaged")
        is_given_back = False
        if slot.unit is not None and image.is_empty:
            # The store has lost everything, and memory has not: it is stored again at once.
            is_given_back = not slot.unit.is_empty
            slot.unit.adopt(image.epoch)
        elif slot.unit is not None and image.epoch == slot.unit.epoch + 1:
            # Nobody claimed it in between: memory has what is stored, and more.
            slot.unit.epoch = image.epoch
        else:
            self.count_lost(key, slot)
            unit = AlertUnit(
                key=key,
                settings=self._settings.of(key.company_id),
                event_ids=self._event_ids,
                lost=self._lose,
            )
            # A large one takes a second, in which others must have their turns.
            faults = await anyio.to_thread.run_sync(unit.restore, image)
            if faults:
                await self._tell_faults(key, unit, faults)
            slot.unit = unit
        slot.is_fenced = slot.is_forgotten = False
        slot.left_at = None
        slot.saved_at = self._clock.monotonic()
        if is_given_back:
            slot.saved_at = float("-inf")
            self._tell_given_back(key)
        return slot.unit

    async def save(self, key: UnitKey, slot: Slot, unit: AlertUnit, *, whole: bool) -> None:
        """Store what is not stored yet; a whole snapshot where one is due."""
        pieces = None if whole else unit.pieces()
        base: dict[str, str] | None = None
        if pieces is None:
            parts: dict[str, list[str]] = {}
            for part, text in unit.base_parts():
                parts.setdefault(part, []).append(text)
                await anyio.lowlevel.checkpoint()
            base = {part: "".join(texts) for part, texts in parts.items()}
        change = unit.change(base=base, pieces=pieces or {})
        try:
            await self._store.commit(key, unit.epoch, change)
        except AlertStateError:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="commit")
            raise
        unit.stored(change)
        slot.has_passed = False
        if base is not None:
            slot.saved_at = self._clock.monotonic()

    async def removed(self, key: UnitKey, slot: Slot, unit: AlertUnit) -> bool:
        """Have the store forget a unit; False: another process owns it by now."""
        try:
            await self._store.remove(key, unit.epoch)
        except FencedAlertStateError:
            slot.is_fenced = True
            return False
        except AlertStateError:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="remove")
            raise
        return True

    async def _tell_faults(self, key: UnitKey, unit: AlertUnit, faults: list[str]) -> None:
        """What was stored is whole and cannot be used: another version's, most likely."""
        self._metrics.inc(names.RULES_STATE_FAILURES, len(faults), call="damaged")
        _log.error(
            "states of alerts cannot be used and are kept aside: their alerts may open again",
            extra={
                "company_id": key.company_id,
                "shard": key.shard,
                "faults": len(faults),
                "error": faults[0],
            },
        )
        await self._store.set_aside(key, unit.epoch)
        unit.is_whole_due = True

    def count_lost(self, key: UnitKey, slot: Slot, *, why: str = _TAKEN_OVER) -> None:
        """Count what a unit that goes from memory decided, where its batches do not come again.

        The outbox is no way out: by the states that are stored, the next points may decide the same
        again, under other ids.
        """
        unit = slot.unit
        if unit is None or not slot.has_passed or not unit.new:
            return
        slot.has_passed = False
        for event in unit.new:
            self._lose(event.type)
        _log.error(
            "events of rules are lost: they were decided while the store of the states of alerts "
            "gave no answer, and %s",
            why,
            extra={
                "company_id": key.company_id,
                "shard": key.shard,
                "events": len(unit.new),
            },
        )

    def count_stopped(self, slots: Mapping[UnitKey, Slot]) -> None:
        """Count what is left in memory when the process stops."""
        for key, slot in slots.items():
            self.count_lost(key, slot, why=_STOPPED)

    def _tell_given_back(self, key: UnitKey) -> None:
        self._metrics.inc(names.RULES_UNITS_FORGOTTEN, outcome="given_back")
        _log.warning(
            "the states of alerts that their store had forgotten are given to it again from memory",
            extra={"company_id": key.company_id, "shard": key.shard},
        )

    def _lose(self, kind: EventType) -> None:
        self._metrics.inc(names.EVENTS_LOST, type=kind.value)
