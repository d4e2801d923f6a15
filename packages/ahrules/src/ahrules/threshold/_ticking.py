"""What time does to series: silence and reminders are told, and idle series leave.

Law: time is looked at in steps. Left between two of them, the next tick takes up all that was not
looked at: a series whose time has come stays due until it was.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from ahrules.threshold._registry import Registry
from ahrules.threshold._telling import Teller, cause
from ahrules.threshold._tracked import NEVER, Tracked
from ahrules.threshold._transition import Transition, TransitionKind
from ahrules.threshold._watch import Watch

_GOLDEN: Final = 0.6180339887498949


class Ticker:
    """Lets time pass for the series of one company.

    Args:
        teller: Makes the transitions.
        blind_seconds: A tick that comes so much behind the one before is a new start.
        idle_seconds: A series without an open alert leaves when no point came for so long.
        ahead_seconds: A series whose newest point lies so far ahead of a tick is turned back.

    Attributes:
        now: The last tick.
        start: The first one of those that came without a pause.
    """

    def __init__(
        self, teller: Teller, *, blind_seconds: float, idle_seconds: float, ahead_seconds: float
    ) -> None:
        self._teller = teller
        self._blind = blind_seconds
        self._idle = idle_seconds
        self._ahead = ahead_seconds
        self.now = NEVER
        self.start = NEVER
        self._spread = 0.0
        # Watches whose alert opened before the first tick: how late that was is not known yet.
        self._opened_early: set[Watch] = set()

    def begin_anew(self) -> None:
        """Know nothing of the ticks before: the next one is a start."""
        self.now = self.start = NEVER
        self._opened_early.clear()

    def opened(self, watch: Watch) -> None:
        """Note that a point opened an alert.

        One that begins in the past is told once, not once more as a reminder.
        """
        if self.now > NEVER:
            watch.pass_reminders(self.now)
        else:
            self._opened_early.add(watch)

    def steps(self, registry: Registry, now: float, work_max: float) -> Iterator[list[Transition]]:
        """Let time pass, and yield what is told after each `work_max` of rules over series."""
        self._begin(registry, now)
        told: list[Transition] = []
        begun = registry.work
        latest = now + self._ahead
        for tracked in registry:
            if tracked.last_ts > latest:
                tracked.turn_back(now)
                registry.moved[tracked] = None
            if tracked.due_at > now:
                continue
            registry.work += 1 + len(tracked.watches)
            if self._look(registry, tracked, now, told):
                registry.leave(tracked)
            if registry.work - begun >= work_max:
                yield told
                told, begun = [], registry.work
        for _ in registry.adopt_short(now):
            if registry.work - begun >= work_max:
                yield told
                told, begun = [], registry.work
        yield told

    def _begin(self, registry: Registry, now: float) -> None:
        is_start = not self.now <= now <= self.now + self._blind
        if is_start:
            self.start = now
        if now < self.now:
            registry.turn_back(now)
        self.now = now
        for watch in self._opened_early:
            watch.pass_reminders(now)
        self._opened_early.clear()
        if is_start:
            for tracked in registry:
                tracked.due_at, tracked.away = NEVER, 0.0

    def _look(
        self, registry: Registry, tracked: Tracked, now: float, told: list[Transition]
    ) -> bool:
        """Tell what a tick finds, set when to look again, and say whether the series leaves."""
        quiet_from = max(tracked.last_ts, tracked.heard_at, self.start)
        idle = self._idle
        due_at = inf
        teller = self._teller
        seen_at = registry.hosts[tracked.server].seen_at
        stays = False
        for watch in tracked.watches:
            after = watch.rule.no_data_after
            idle = max(idle, after)
            deadline = max(quiet_from, watch.born_at) + after
            try:
                if now < deadline:
                    due_at = min(due_at, deadline)
                elif seen_at < deadline:
                    due_at = now
                else:
                    # A point that ends this silence cannot be followed by another one any earlier.
                    due_at = min(due_at, now + after)
                    state = watch.state
                    teller.tell(tracked, watch, watch.fall_silent(now), now, told)
                    if watch.state is not state:
                        registry.moved[tracked] = None
                if watch.remind(now):
                    reminder = watch.told(TransitionKind.REMINDER, cause(watch))
                    told.append(teller.transition(tracked, watch, reminder, now))
                due_at = min(due_at, watch.next_reminder_at())
            except Exception as error:  # noqa: BLE001 - one rule stops no other
                registry.note_failed(tracked, watch.rule, error)
            stays = stays or watch.is_open
        due_at = min(due_at, quiet_from + idle)
        # Looking too early costs little; series that came together must not all be due together.
        self._spread = (self._spread + _GOLDEN) % 1.0
        tracked.due_at = due_at - (due_at - now) * self._spread / 2
        return not stays and now >= quiet_from + idle
