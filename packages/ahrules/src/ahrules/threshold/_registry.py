"""Which series are held and which rules watch them: bounded, and counted where it is full.

Law: a series is held once one of the rules names its metric. Which of them it meets is asked once,
when it comes and when rules change, and then never again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ahrules._reading import is_unicode
from ahrules.threshold._rules import Compiled, RuleBook
from ahrules.threshold._series import Series
from ahrules.threshold._tracked import NEVER, EvaluatorBounds, Host, Tracked
from ahrules.threshold._watch import Watch


class Registry:
    """Series by server, with the watches of the rules over them.

    Attributes:
        hosts: Servers of which a series is held.
        book: The rules.
        series: How many series are held.
        drops: What was not taken, by reason.
        epoch: Rises with each change of the rules.
    """

    def __init__(self, bounds: EvaluatorBounds, book: RuleBook) -> None:
        self.bounds = bounds
        self.book = book
        self.hosts: dict[str, Host] = {}
        self.series = 0
        self.drops: Counter[str] = Counter()
        self.epoch = 0
        self._key_chars = 0
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
            self.place(tracked)
            self.adopt(tracked, self.book.by_metric.get(series.name, ()), born_at)
            return tracked
        return None

    def place(self, tracked: Tracked) -> None:
        """Hold a series whatever the bounds say."""
        host = self.hosts.get(tracked.server)
        if host is None:
            host = self.hosts[tracked.server] = Host()
        host.series[tracked.series.key] = tracked
        self.series += 1
        self._key_chars += len(tracked.series.key)

    def adopt(self, tracked: Tracked, rules: Iterable[Compiled], born_at: float) -> None:
        """Let those of the rules watch the series that meet it and do not yet."""
        watched = {watch.rule.rule.rule_id for watch in tracked.watches}
        for rule in rules:
            if rule.rule.rule_id in watched or not rule.meets(tracked.server, tracked.series):
                continue
            if rule.series >= self.bounds.rule_series_max:
                self.drops["rule_series_max"] += 1
                tracked.is_short = True
                continue
            rule.series += 1
            window = rule.window(self.bounds.window_points_max)
            tracked.watches.append(Watch(rule, window, born_at))

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
        for tracked in self:
            added = added_rules(self.book, before, tracked.series.name)
            if added:
                self.adopt(tracked, added, now)
                tracked.due_at = NEVER
        for tracked in series:
            tracked.heard_at = now
            self.place(tracked)
            # The snapshot may be from before a rule that is known here came, or from after it left.
            self.adopt(tracked, self.book.by_metric.get(tracked.series.name, ()), now)

    def turn_back(self, now: float) -> None:
        """The clock was set back: what it called later than this has happened by now."""
        for host in self.hosts.values():
            host.seen_at = min(host.seen_at, now)
            for tracked in host.series.values():
                tracked.heard_at = min(tracked.heard_at, now)
                tracked.due_at = NEVER
                for watch in tracked.watches:
                    watch.born_at = min(watch.born_at, now)

    def adopt_short(self, born_at: float) -> None:
        """Let rules that were full take series that meet them, where some have left."""
        if not self._has_room_again:
            return
        self._has_room_again = False
        bound = self.bounds.rule_series_max
        for tracked in self:
            if tracked.is_short:
                rules = self.book.by_metric.get(tracked.series.name, ())
                free = [rule for rule in rules if rule.series < bound]
                # Those that are still full are not asked, so that each series is counted once.
                tracked.is_short = len(free) < len(rules)
                self.adopt(tracked, free, born_at)
                tracked.due_at = NEVER

    def release(self, watch: Watch) -> None:
        """A rule watches one series less."""
        if watch.rule.series >= self.bounds.rule_series_max:
            self._has_room_again = True
        watch.rule.series -= 1

    def leave(self, tracked: Tracked) -> None:
        """Hold the series no longer."""
        for watch in tracked.watches:
            self.release(watch)
        host = self.hosts[tracked.server]
        del host.series[tracked.series.key]
        if not host.series:
            del self.hosts[tracked.server]
        self.series -= 1
        self._key_chars -= len(tracked.series.key)


def empty_book() -> RuleBook:
    """Return the book without rules."""
    return RuleBook(rules={}, disabled=frozenset(), refused=(), by_metric={})


def added_rules(book: RuleBook, before: RuleBook, metric: str) -> Sequence[Compiled]:
    """Return the rules on a metric that are new or changed."""
    rules = book.by_metric.get(metric, ())
    return [rule for rule in rules if before.rules.get(rule.rule.rule_id) is not rule]
