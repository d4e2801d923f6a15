"""Which series are held and which rules watch them: bounded, and counted where it is full.

Law: a series is held once one of the rules names its metric. Which of them it meets is asked once,
when it comes and when rules change, and then never again but where a bound was reached.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ahrules._reading import is_unicode, shown
from ahrules.threshold._book import RuleBook
from ahrules.threshold._by_metric import MetricRules
from ahrules.threshold._rules import Compiled
from ahrules.threshold._series import Series
from ahrules.threshold._tracked import NEVER, EvaluatorBounds, Host, Tracked
from ahrules.threshold._unjudged import Unjudged
from ahrules.threshold._watch import Watch

_UNJUDGED_MAX: Final = 20


class Registry:
    """Series by server, with the watches of the rules over them.

    Attributes:
        hosts: Servers of which a series is held.
        book: The rules.
        series: How many series are held.
        watches: How many rules over series: a rule counts once for each series that it watches.
        work: How many rules were asked or judged over series since the start, and how many series
            ticks looked at.
        drops: What was not taken, by reason.
        epoch: Rises with each change of the rules.
        moved: Series of which a state moved, until somebody takes them.
    """

    def __init__(self, bounds: EvaluatorBounds, book: RuleBook) -> None:
        self.bounds = bounds
        self.book = book
        self.hosts: dict[str, Host] = {}
        self.series = 0
        self.watches = 0
        self.work = 0
        self.drops: Counter[str] = Counter()
        self.epoch = 0
        self.moved: dict[Tracked, None] = {}
        self._key_chars = 0
        self._unjudged: dict[tuple[str, str], Unjudged] = {}
        # After a restart a bound may be larger than before.
        self._has_room_again = True

    def __iter__(self) -> Iterator[Tracked]:
        """Yield all series; they may leave meanwhile, one that comes may be missed."""
        for host in list(self.hosts.values()):
            yield from list(host.series.values())

    def get(self, server: str, key: str) -> Tracked | None:
        """Return a series that is held."""
        host = self.hosts.get(server)
        return host.series.get(key) if host else None

    def admit(self, server: str, series: Series, born_at: float) -> Tracked | None:
        """Hold a new series, or count why it cannot be held and return None."""
        bounds = self.bounds
        chars = len(series.key)
        if not (is_unicode(server) and is_unicode(series.key)):
            self.drops["not_utf8"] += 1
        elif self.series >= bounds.series_max:
            self.drops["series_max"] += 1
        elif chars > bounds.key_chars_max:
            self.drops["key_chars_max"] += 1
        elif self._key_chars + chars > bounds.key_chars_total_max:
            self.drops["key_chars_total_max"] += 1
        else:
            tracked = Tracked(server, series)
            tracked.heard_at = born_at
            is_new_host = server not in self.hosts
            self.place(tracked)
            if is_new_host:
                # It was there by the last tick; else its next sign of life looked like a return.
                self.hosts[server].seen_at = born_at
            self.adopt(tracked, self._candidates(tracked), born_at)
            return tracked
        return None

    def place(self, tracked: Tracked) -> None:
        """Hold a series whatever the bounds say."""
        host = self.hosts.get(tracked.server)
        if host is None:
            host = self.hosts[tracked.server] = Host()
        host.series[tracked.series.key] = tracked
        self.series += 1
        self.watches += len(tracked.watches)
        self._key_chars += len(tracked.series.key)

    def adopt(
        self,
        tracked: Tracked,
        rules: Iterable[Compiled],
        born_at: float,
        *,
        counts: bool = True,
    ) -> None:
        """Let those of the rules watch the series that meet it and do not yet.

        Of those that cannot, for want of room, the first is told of where it `counts`. Where there
        is no room for any more, the others are not asked.
        """
        bounds = self.bounds
        watches = tracked.watches
        watched = {watch.rule.rule.rule_id for watch in watches}
        asked = 0
        for rule in rules:
            if rule.rule.rule_id in watched:
                continue
            if asked >= bounds.series_rules_max:
                if counts:
                    self.leave_unjudged("series_rules_max", tracked, rule, bounds.series_rules_max)
                break
            asked += 1
            if not rule.meets(tracked.server, tracked.series):
                continue
            if len(watches) >= bounds.series_watches_max:
                reason, bound = "series_watches_max", bounds.series_watches_max
            elif self.watches >= bounds.watches_max:
                reason, bound = "watches_max", bounds.watches_max
            elif rule.series >= bounds.rule_series_max:
                reason, bound = "rule_series_max", bounds.rule_series_max
            else:
                rule.series += 1
                self.watches += 1
                watches.append(Watch(rule, rule.window(bounds.window_points_max), born_at))
                continue
            tracked.is_short = True
            if counts:
                self.leave_unjudged(reason, tracked, rule, bound)
            if reason != "rule_series_max":
                break
        self.work += asked

    def leave_unjudged(
        self, reason: str, tracked: Tracked, rule: Compiled, bound: int | None, error: str = ""
    ) -> None:
        """Count that a rule does not judge a series, and keep it for who asks which."""
        self.drops[reason] += 1
        name = (reason, rule.rule.rule_id)
        if name not in self._unjudged and len(self._unjudged) < _UNJUDGED_MAX:
            self._unjudged[name] = Unjudged(
                reason=reason,
                rule_id=rule.rule.rule_id,
                server_id=tracked.server,
                series_key=tracked.series.key,
                bound=bound,
                error=error,
            )

    def note_failed(self, tracked: Tracked, rule: Compiled, error: Exception) -> None:
        """Count that a rule raised when it judged a series."""
        self.leave_unjudged("rule_failed", tracked, rule, None, shown(error))

    def take_unjudged(self) -> tuple[Unjudged, ...]:
        """Return what was not judged since this was asked last: the first few."""
        found = tuple(self._unjudged.values())
        self._unjudged.clear()
        return found

    def _candidates(self, tracked: Tracked) -> Sequence[Compiled]:
        rules = self.book.by_metric.get(tracked.series.name)
        return () if rules is None else rules.candidates(tracked.server, tracked.series)

    def adopt_added(
        self, tracked: Tracked, added: Mapping[str, MetricRules], born_at: float
    ) -> bool:
        """Let rules that were added watch it if they meet it; False: none is on its metric."""
        rules = added.get(tracked.series.name)
        if rules is None:
            return False
        self.adopt(tracked, rules.candidates(tracked.server, tracked.series), born_at)
        return True

    def merge(self, series: Sequence[Tracked], before: RuleBook, now: float) -> None:
        """Hold these instead of those of their names, and let all be watched as the rules say.

        Args:
            series: Already counted at the rules that watch them.
            before: The rules by which the series that are held are watched.
            now: From when they count as heard, and what begins to watch them counts silence.
        """
        for tracked in series:
            old = self.get(tracked.server, tracked.series.key)
            if old is not None:
                self.leave(old)
        added = self.book.added(before)
        for tracked in self if added else ():
            if self.adopt_added(tracked, added, now):
                tracked.due_at = NEVER
        for tracked in series:
            tracked.heard_at = now
            self.place(tracked)
            # The snapshot may be from before a rule that is known here came, or from after it left.
            self.adopt(tracked, self._candidates(tracked), now)

    def turn_back(self, now: float) -> None:
        """The clock was set back: what it called later than this has happened by now."""
        for host in self.hosts.values():
            host.seen_at = min(host.seen_at, now)
            for tracked in host.series.values():
                tracked.heard_at = min(tracked.heard_at, now)
                tracked.due_at = NEVER
                for watch in tracked.watches:
                    watch.born_at = min(watch.born_at, now)

    def adopt_short(self, born_at: float) -> Iterator[None]:
        """Let rules take series that there was no room for, where some have left.

        Yields after each series that was asked; left in between, it is begun anew.
        """
        if not self._has_room_again:
            return
        for tracked in self:
            if self.watches >= self.bounds.watches_max:
                break
            if tracked.is_short and len(tracked.watches) < self.bounds.series_watches_max:
                tracked.is_short = False
                # Each series was counted when it came.
                self.adopt(tracked, self._candidates(tracked), born_at, counts=False)
                tracked.due_at = NEVER
                yield
        self._has_room_again = False

    def release(self, tracked: Tracked, watch: Watch) -> None:
        """A rule watches one series less."""
        bounds = self.bounds
        is_full = watch.rule.series >= bounds.rule_series_max or self.watches >= bounds.watches_max
        if is_full or tracked.is_short:
            self._has_room_again = True
        watch.rule.series -= 1
        self.watches -= 1

    def leave(self, tracked: Tracked) -> None:
        """Hold the series no longer."""
        for watch in tracked.watches:
            self.release(tracked, watch)
        host = self.hosts[tracked.server]
        del host.series[tracked.series.key]
        if not host.series:
            del self.hosts[tracked.server]
        self.series -= 1
        self._key_chars -= len(tracked.series.key)
        self.moved.pop(tracked, None)
