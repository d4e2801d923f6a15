"""Judges a unit by the hub's lists of this process, unless its last owner had newer ones."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio.lowlevel
import anyio.to_thread

from ahcollector import metrics as names
from ahcollector.alerts._in_force import RulesInForce, SilencesInForce
from ahcollector.alerts._keeping import Slot
from ahcollector.alerts._unit import AlertUnit
from ahcollector.alerts.lists import HubLists, ListTimes
from ahcollector.clock import AsyncClock
from ahcollector.metrics import Metrics

__all__ = ["Currency"]

_log = logging.getLogger("ahcollector.alerts")

_LOOK_SECONDS = 10.0


class Currency:
    """Puts lists in force at units.

    Law: by rules older than those a unit was judged by, nothing is judged or ended: it goes on with
    the rules in its state. Silences that are older mark what happens, and let out nothing that was
    held back. Until lists as new are there, but for `wait_seconds` at most.

    Args:
        rules: Returns the rules of this process; None: not known yet.
        silences: Returns its silences; None: not known yet.
        lists: Knows of when both are; None: they are taken as they are.
        clock: Wall and steady time.
        wait_seconds: For so long a unit waits for lists as new as those of its last owner.
        metrics: Where to count.
    """

    def __init__(
        self,
        *,
        rules: Callable[[], RulesInForce | None],
        silences: Callable[[], SilencesInForce | None],
        lists: HubLists | None,
        clock: AsyncClock,
        wait_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._rules = rules
        self._silences = silences
        self._lists = lists
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._metrics = metrics
        self._looked_at = float("-inf")
        metrics.inc(names.RULES_LISTS_OLD, 0)

    async def look(self) -> None:
        """Take the lists that another process kept, where they are newer."""
        if self._lists is not None:
            self._looked_at = self._clock.monotonic()
            await self._lists.catch_up()

    async def refresh(self, slot: Slot, unit: AlertUnit) -> None:
        """Judge by what is in force now, and tell what that ends; others have their turns."""
        are_rules_new, are_silences_new = await self._compare(slot, unit)
        rules = self._rules() if are_rules_new else None
        silences, now = self._silences(), self._clock.time()
        lets_out = are_silences_new

        def refresh() -> None:
            unit.refresh(rules, silences, now, lets_out=lets_out)

        if not unit.is_current(rules, silences, lets_out=lets_out):
            if rules is not None and unit.is_large(rules):
                # Many patterns, or many series to ask: seconds, and never left in the middle.
                await anyio.to_thread.run_sync(refresh)
            else:
                refresh()
            for _step in unit.flow():
                await anyio.lowlevel.checkpoint()
        if self._lists is not None:
            # Each for itself: while one is behind, the other counts all the same.
            listed = self._lists.listed_at
            unit.judged_by = unit.judged_by.later(
                ListTimes(
                    rules=listed.rules if are_rules_new else 0.0,
                    silences=listed.silences if are_silences_new else 0.0,
                )
            )

    async def _compare(self, slot: Slot, unit: AlertUnit) -> tuple[bool, bool]:
        """Tell whether the rules and the silences here are as new as the unit's."""
        lists, steady = self._lists, self._clock.monotonic()
        if lists is None:
            return True, True
        needed, here = unit.judged_by, lists.as_of
        if (is_behind(here.rules, needed.rules) or is_behind(here.silences, needed.silences)) and (
            slot.behind_since is None or steady - self._looked_at >= _LOOK_SECONDS
        ):
            await self.look()
            here = lists.as_of
        found = (
            not is_behind(here.rules, needed.rules),
            not is_behind(here.silences, needed.silences),
        )
        if all(found):
            slot.behind_since = None
            return found
        if slot.behind_since is None:
            slot.behind_since = steady
        if steady - slot.behind_since < self._wait_seconds:
            return found
        self._give_in(slot, unit)
        return True, True

    def _give_in(self, slot: Slot, unit: AlertUnit) -> None:
        slot.behind_since = None
        unit.judged_by = ListTimes()
        self._metrics.inc(names.RULES_LISTS_OLD)
        _log.error(
            "alerts are judged by older rules or silences than their last owner had, for newer "
            "ones did not come: let this process read the hub's lists",
            extra={
                "company_id": unit.key.company_id,
                "shard": unit.key.shard,
                "waited_seconds": self._wait_seconds,
            },
        )


def is_behind(here: float, needed: float) -> bool:
    """Whether a list is older than one that is needed; 0: that one's time is not known."""
    return needed > 0 and here < needed
