"""Units whose shard is no longer this process' own, and a store that has forgotten everything.

Where the shards' leases are in the same Redis as the states, both are lost at once: the shard is
away for a moment, and what is in memory is then the only thing that knows which alerts are open. So
a unit stays in memory until another process is known to have claimed it, or for a bounded time.
"""

from __future__ import annotations

import contextlib
import logging

from ahcollector import metrics as names
from ahcollector.alerts._keeping import Keeper, Slot
from ahcollector.alerts.base import AlertStateStore, StoreGlance, UnitKey
from ahcollector.alerts.settings import AlertSettings
from ahcollector.clock import AsyncClock
from ahcollector.errors import AlertStateError, FencedAlertStateError
from ahcollector.metrics import Metrics

__all__ = ["LeftUnits"]

_log = logging.getLogger("ahcollector.alerts")


class LeftUnits:
    """Hands units over with what they counted, and lets them go once that is safe.

    Law: a unit with decisions that are not stored yet goes only when another process has claimed
    it, or over the bounds; what of it is lost then is counted.
    """

    def __init__(
        self,
        *,
        store: AlertStateStore,
        keeper: Keeper,
        clock: AsyncClock,
        settings: AlertSettings,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._birth: str | None = None
        # Zeros are there for the alerts that watch them.
        metrics.inc(names.RULES_STATES_LOST, 0)
        for outcome in ("given_back", "lost"):
            metrics.inc(names.RULES_UNITS_FORGOTTEN, 0, outcome=outcome)

    async def look(self, slots: dict[UnitKey, Slot]) -> None:
        """Tell a store that has forgotten everything, and let go what is another's or too old.

        Raises:
            AlertStateError: The store gives no answer; nothing was let go.
        """
        left = [key for key, slot in slots.items() if slot.left_at is not None]
        try:
            glance = await self._store.look(left)
        except AlertStateError:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="look")
            raise
        self._note_birth(glance, slots)
        for key in left:
            slot = slots.get(key)
            if slot is None:
                continue
            async with slot.lock:
                # It may have been claimed again since the store was asked.
                if slot.left_at is not None and slots.get(key) is slot:
                    self._release(key, slot, glance, slots)

    async def leave(self, key: UnitKey, slot: Slot) -> None:
        """Store what a unit counted, for the next owner; where that fails, it is tried again.

        Raises:
            AlertStateError: The store gives no answer.
        """
        if slot.left_at is None:
            slot.left_at = self._clock.monotonic()
        unit = slot.unit
        if unit is None or slot.is_fenced:
            return
        if unit.is_moved or unit.is_dirty:
            # The new owner was quicker, or the store has forgotten the unit: `look` will tell.
            with contextlib.suppress(FencedAlertStateError):
                await self._keeper.save(key, slot, unit, whole=True)
        slot.is_fenced = True
        slot.failing_since = None

    def bound(self, slots: dict[UnitKey, Slot]) -> None:
        """Let those go that were left first, where there are too many."""
        left = [
            (slot.left_at, key, 0 if slot.unit is None else slot.unit.series_count)
            for key, slot in slots.items()
            if slot.left_at is not None and not slot.lock.locked()
        ]
        series = sum(count for _, _, count in left)
        room = self._settings.left_units_max
        for place, (_, key, count) in enumerate(sorted(left)):
            if len(left) - place <= room and series <= self._settings.left_series_max:
                return
            series -= count
            self._drop(key, slots)

    def _release(
        self, key: UnitKey, slot: Slot, glance: StoreGlance, slots: dict[UnitKey, Slot]
    ) -> None:
        epoch = glance.epochs.get(key)
        if slot.unit is None:
            del slots[key]
        elif epoch is not None and epoch != slot.unit.epoch:
            if slot.is_forgotten:
                self._metrics.inc(names.RULES_UNITS_FORGOTTEN, outcome="lost")
                _log.error(
                    "the states of alerts that their store had forgotten were begun anew by "
                    "another process: alerts that are open open again, and what ended is not told",
                    extra={"company_id": key.company_id, "shard": key.shard},
                )
            self._drop(key, slots)
        elif slot.is_fenced and self._is_too_old(slot):
            self._drop(key, slots)

    def _is_too_old(self, slot: Slot) -> bool:
        left_at = slot.left_at
        assert left_at is not None, "it was left"
        return self._clock.monotonic() - left_at >= self._settings.left_seconds

    def _drop(self, key: UnitKey, slots: dict[UnitKey, Slot]) -> None:
        self._keeper.count_lost(key, slots[key])
        del slots[key]

    def _note_birth(self, glance: StoreGlance, slots: dict[UnitKey, Slot]) -> None:
        before, self._birth = self._birth, glance.birth
        if before in (None, glance.birth):
            return
        for slot in slots.values():
            slot.is_forgotten = slot.unit is not None
        self._metrics.inc(names.RULES_STATES_LOST)
        _log.error(
            "the store of the states of alerts has forgotten everything: what this process has in "
            "memory is given to it again where no other process begins it anew; let Redis keep its "
            "data (appendonly yes)",
            extra={"units": sum(slot.is_forgotten for slot in slots.values())},
        )
