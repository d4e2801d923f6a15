"""What becomes of series and alerts when the rules change.

Law: a watch whose rule is as before is left alone. One whose rule has changed goes over to the new
version, keeping its state and start where the condition holds under that for the last value. All
others end, and an alert that was open is resolved with the reason.
"""

from collections.abc import Mapping

import attrs

from ahrules.threshold._book import RuleBook
from ahrules.threshold._registry import Registry
from ahrules.threshold._rules import Compiled
from ahrules.threshold._telling import Teller, why_gone
from ahrules.threshold._tracked import NEVER, Tracked
from ahrules.threshold._transition import Transition, TransitionReason
from ahrules.threshold._watch import AlertState, Watch


class RuleChange:
    """Takes a registry over to another book of rules.

    Args:
        registry: What is held.
        teller: Makes the transitions.
        now: When this happens.
        born_at: The tick before.
    """

    def __init__(self, registry: Registry, teller: Teller, *, now: float, born_at: float) -> None:
        self._registry = registry
        self._teller = teller
        self._now = now
        self._born_at = born_at

    def to(self, book: RuleBook) -> list[Transition]:
        """Make it so, and return what is told of it."""
        registry = self._registry
        before = registry.book
        registry.book = book
        told: list[Transition] = []
        if _same(book.rules, before.rules):
            return told
        registry.epoch += 1
        for tracked in registry:
            tracked.watches = [
                watch for watch in tracked.watches if self._stays(tracked, watch, told)
            ]
            tracked.due_at = NEVER
        added = book.added(before)
        # Only then, so that no series takes the room of one that is watched already.
        for tracked in registry:
            if tracked.series.name not in book.by_metric:
                registry.leave(tracked)
                continue
            registry.adopt_added(tracked, added, self._born_at)
        return told

    def _stays(self, tracked: Tracked, watch: Watch, told: list[Transition]) -> bool:
        """Take one watch over to the new rules, or end it."""
        old = watch.rule
        rule_id = old.rule.rule_id
        new = self._registry.book.rules.get(rule_id)
        if new is old:
            return True
        if new is not None and new.meets(tracked.server, tracked.series):
            self._move(tracked, watch, new)
            self._teller.tell(tracked, watch, watch.change(new, self._now), self._now, told)
            return True
        reason = why_gone(self._registry.book, rule_id) if new is None else _CHANGED
        # The alert was the old rule's; that it ended is the new one's doing.
        rule = old.rule if new is None else attrs.evolve(old.rule, version=new.rule.version)
        self._teller.close(tracked, watch, reason, self._now, told, rule=rule)
        self._registry.release(tracked, watch)
        return False

    def _move(self, tracked: Tracked, watch: Watch, new: Compiled) -> None:
        """Give the watch the window of its new rule: another one begins with the last point."""
        old = watch.rule.rule
        new.series += 1
        if (old.agg_seconds, old.agg) == (new.rule.agg_seconds, new.rule.agg):
            return
        watch.window = new.window(self._registry.bounds.window_points_max)
        if tracked.last_ts == NEVER:
            return
        if watch.state is not AlertState.SILENT:
            watch.value = tracked.last_value
        if watch.window is not None:
            watch.window.add(tracked.last_ts, tracked.last_value)


_CHANGED = TransitionReason.RULE_CHANGED


def _same(one: Mapping[str, Compiled], other: Mapping[str, Compiled]) -> bool:
    """Whether the same rules stand in both."""
    return len(one) == len(other) and all(other.get(key) is rule for key, rule in one.items())
