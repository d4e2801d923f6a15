"""Threshold rules over the series of one company.

Law: points move states by their own time (`_watch` has the table), newer ones only; silence and
reminders are judged by ticks, by the caller's clock. Silence of a series is measured from the
latest of its newest point's time, the tick before that point came, the tick at which its rule came,
the start, and the server's return: when it was seen, for the first time since that point or the
start, after it was away for longer than the rule is patient. It counts once it is as long as the
rule says and the server was seen as late as that. The start is the first tick, and again each tick
that comes more than `blind_seconds` behind the one before, or before it: who did not look cannot
tell silence. A tick more than `ahead_seconds` before a series' newest point turns the series back:
that point counts as of now, and how long anything held is not known.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isfinite
from types import MappingProxyType

import attrs

from ahrules._arguments import expect, refuse, unix_seconds
from ahrules._ruleset import RuleError
from ahrules.threshold._book import empty_book, make_book
from ahrules.threshold._changing import RuleChange
from ahrules.threshold._points import Points
from ahrules.threshold._registry import Registry
from ahrules.threshold._restoring import Restored
from ahrules.threshold._rules import Compiled
from ahrules.threshold._series import Series
from ahrules.threshold._snapshot import encode
from ahrules.threshold._telling import Teller, cause
from ahrules.threshold._ticking import Ticker
from ahrules.threshold._tracked import EvaluatorBounds
from ahrules.threshold._transition import Transition, TransitionKind, TransitionReason
from ahrules.threshold._unjudged import Unjudged
from ahrules.threshold._watch import AlertState
from ahwire.hub import ThresholdRule


class Evaluator:
    """Tells which alerts open and end, of one company; not safe for several threads.

    One evaluator holds one company: tenants share no state, no bound and no snapshot. It does no
    I/O and reads no clock. All times are Unix seconds. `restore` comes first, then `set_rules`,
    then points and ticks. A tick every 10 seconds or so is meant.

    Args:
        company_id: The tenant. Rules of others are passed over.
        no_data_after_seconds: Silence that counts, for rules that do not say.
        blind_seconds: A tick that comes so much behind the one before is a new start.
        idle_seconds: A series without an open alert leaves when no point came for so long.
        ahead_seconds: A series whose newest point lies so far ahead of a tick had a wrong clock:
            more than your door lets in from the future, and by how much your own clocks may differ.
        bounds: How much is held; None: the defaults.
    """

    def __init__(
        self,
        *,
        company_id: str,
        no_data_after_seconds: float = 300.0,
        blind_seconds: float = 120.0,
        idle_seconds: float = 86_400.0,
        ahead_seconds: float = 600.0,
        bounds: EvaluatorBounds | None = None,
    ) -> None:
        for name, seconds in (
            ("no_data_after_seconds", no_data_after_seconds),
            ("blind_seconds", blind_seconds),
            ("idle_seconds", idle_seconds),
            ("ahead_seconds", ahead_seconds),
        ):
            if not 0 < seconds < inf:
                raise ValueError(f"{name} is {seconds}; it must be a number above 0")
        self.company_id = company_id
        self._no_data_after = no_data_after_seconds
        self._registry = Registry(bounds or EvaluatorBounds(), empty_book())
        self._teller = Teller(company_id)
        self._ticker = Ticker(
            self._teller,
            blind_seconds=blind_seconds,
            idle_seconds=idle_seconds,
            ahead_seconds=ahead_seconds,
        )
        self._points = Points(self._teller, self._ticker)

    # ------------------------------------------------------------------------------ what is told

    def observe(
        self, server: str, series: Series, ts: float, value: float | None
    ) -> list[Transition]:
        """Take a point and tell what it opens or ends; nothing, for nearly all.

        None, NaN and infinities are no data: they fire nothing, resolve nothing and end no silence.
        A point that is not newer than the series' newest moves no state; it counts in the window of
        an aggregate, where it falls in. A point from the future makes those before it late, until
        a tick turns the series back: bound it at the door.

        Args:
            server: Where the series is from.
            series: Which one.
            ts: The point's own time.
            value: What it says.

        Raises:
            TypeError: An argument is of the wrong kind; nothing changed.
        """
        registry = self._registry
        try:
            is_watched = series.name in registry.book.by_metric
        except AttributeError:
            refuse("series", series, "give a Series")
        if not is_watched:
            return []
        host = registry.hosts.get(server)
        tracked = host.series.get(series.key) if host is not None else None
        if tracked is not None and not tracked.watches:
            tracked.pass_by(self._ticker.now)
            return []
        # Nearly all are floats, and finite.
        if type(value) is not float or type(ts) is not float or not isfinite(value - ts):
            if value is None or not _is_data(ts, value):
                registry.drops["not_finite"] += 1
                return []
            ts, value = float(ts), float(value)
        if tracked is None:
            expect("server", server, str, "give the server's id")
            tracked = registry.admit(server, series, self._ticker.now)
            if tracked is None or not tracked.watches:
                return []
        if ts <= tracked.last_ts:
            self._points.take_late(registry, tracked, ts, value)
            return []
        return self._points.take(registry, tracked, ts, value)

    def remember(self, server: str, series: Series, ts: float, value: float) -> None:
        """Take a point that was judged since the series' state was kept; between points and ticks.

        It counts in windows and is the series' newest, and moves no state: what it moved is in the
        state that was kept. Together with `take_moved` that makes a state of before, and the points
        since, what they were. A series that is not held is, from now on.

        Raises:
            TypeError, ValueError: The time or the value is no finite number; nothing changed.
        """
        ts = unix_seconds("ts", ts)
        if not _is_data(ts, value):
            refuse("value", value, "give a finite number, as the one that was judged was")
        registry = self._registry
        tracked = registry.get(server, series.key)
        if tracked is None and series.name in registry.book.by_metric:
            tracked = registry.admit(server, series, self._ticker.now)
        if tracked is not None:
            self._points.remember(registry, tracked, ts, float(value))

    def host_seen(self, server: str, ts: float) -> None:
        """The server gave a sign of life at `ts`, by the clock of the ticks.

        Raises:
            TypeError, ValueError: `ts` is no finite number; nothing changed.
        """
        ts = unix_seconds("ts", ts)
        registry = self._registry
        host = registry.hosts.get(server)
        if host is not None:
            host.see(ts, self._ticker.start, registry.book.patience)

    def tick(self, now: float) -> list[Transition]:
        """Tell which series fell silent and which reminders are due; let idle series leave.

        Raises:
            TypeError, ValueError: `now` is no finite number; nothing changed.
        """
        return [told for step in self.tick_steps(now, work_max=inf) for told in step]

    def tick_steps(self, now: float, *, work_max: float = 2_000) -> Iterator[list[Transition]]:
        """Do what `tick` does, and yield what is told in steps of so much `work`.

        Nothing else is asked of the evaluator between two steps. Left in between, the next tick
        takes up what was not looked at.

        Raises:
            TypeError, ValueError: `now` is no finite number; nothing changed.
        """
        return self._ticker.steps(self._registry, unix_seconds("now", now), work_max)

    def set_rules(self, rules: Iterable[ThresholdRule], now: float) -> list[Transition]:
        """Take these rules and no others, and tell which alerts that ends.

        An alert of a changed rule stays, with its start, where the condition holds under the new
        version for the last value; else it is resolved with `rule_changed`. One whose rule is gone,
        disabled or refused is resolved with that reason. A rule that is as before changes nothing;
        a changed aggregation begins with the last point.

        Raises:
            TypeError, ValueError: `now` is no finite number, or a rule is none; nothing changed.
        """
        now = unix_seconds("now", now)
        book = make_book(
            rules,
            company_id=self.company_id,
            no_data_after_seconds=self._no_data_after,
            before=self._registry.book.rules,
        )
        return RuleChange(self._registry, self._teller, now=now, born_at=self._ticker.now).to(book)

    def forget(self, server: str, now: float) -> list[Transition]:
        """Take a server away: its alerts are resolved with `forgotten`, its series leave.

        Raises:
            TypeError, ValueError: `now` is no finite number; nothing changed.
        """
        now = unix_seconds("now", now)
        told: list[Transition] = []
        host = self._registry.hosts.get(server)
        for tracked in list(host.series.values()) if host else ():
            for watch in tracked.watches:
                self._teller.close(tracked, watch, TransitionReason.FORGOTTEN, now, told)
            self._registry.leave(tracked)
        return told

    # ------------------------------------------------------------------------------ what there is

    @property
    def refused(self) -> tuple[RuleError, ...]:
        """The rules that cannot be used, with their faults by field path."""
        return self._registry.book.refused

    @property
    def series_count(self) -> int:
        """How many series are held."""
        return self._registry.series

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers of which series are held."""
        return tuple(self._registry.hosts)

    @property
    def drops(self) -> Mapping[str, int]:
        """What was not taken since the start, by reason.

        Points: `not_finite`, `late`, `window_points_max` (left a window early), `rule_failed` (a
        rule raised: it moved nothing, the others were judged). New series: `series_max`,
        `key_chars_max`, `key_chars_total_max`, `not_utf8` (counted at each of their points),
        `rule_series_max` (one rule does not watch one series), `series_rules_max`,
        `series_watches_max`, `watches_max` (a rule and those behind it do not watch one series).
        """
        return MappingProxyType(dict(self._registry.drops))

    @property
    def watches_count(self) -> int:
        """How many rules over series are held: a rule counts once for each series it watches."""
        return self._registry.watches

    @property
    def work(self) -> int:
        """How much was done since the start: rules that were asked of a series or judged.

        For who has other things to do and wants to know when to pause. A point costs at most the
        bounds' `series_rules_max` and `series_watches_max`, windows a little more.
        """
        return self._registry.work

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics that the rules are on."""
        return frozenset(self._registry.book.by_metric)

    @property
    def window_metrics(self) -> frozenset[str]:
        """The metrics that rules with a window are on."""
        rules = (compiled.rule for compiled in self._registry.book.rules.values())
        return frozenset(rule.metric for rule in rules if rule.agg_seconds is not None)

    def has_window(self, server: str, series_key: str) -> bool:
        """Tell whether a rule with a window watches a series."""
        tracked = self._registry.get(server, series_key)
        return tracked is not None and any(watch.window is not None for watch in tracked.watches)

    def take_moved(self) -> tuple[tuple[str, str], ...]:
        """Return the series of which a state moved by points or ticks since this was asked last.

        Server and key of each. It may have told nothing: `for` began or began anew, or an alert is
        over and kept. Those that left since are not among them.
        """
        moved = self._registry.moved
        found = tuple((tracked.server, tracked.series.key) for tracked in moved)
        moved.clear()
        return found

    def take_unjudged(self) -> tuple[Unjudged, ...]:
        """Return which rules did not judge which series since this was asked last.

        The first series of each rule and reason, at most 20; `drops` counts all.
        """
        return self._registry.take_unjudged()

    def state(self, rule_id: str, server: str, series_key: str) -> AlertState | None:
        """Return the state of a rule over a series; None: it does not watch it."""
        tracked = self._registry.get(server, series_key)
        for watch in tracked.watches if tracked else ():
            if watch.rule.rule.rule_id == rule_id:
                return watch.state
        return None

    def open_alerts(self, now: float) -> Iterator[Transition]:
        """Yield every open alert as it would be told now: as opened, with its own start."""
        now = unix_seconds("now", now)
        for tracked in self._registry:
            for watch in tracked.watches:
                if watch.is_open:
                    told = watch.told(TransitionKind.OPENED, cause(watch))
                    yield self._teller.transition(tracked, watch, told, now)

    # -------------------------------------------------------------------------------- what is kept

    def snapshot(self) -> bytes:
        """Return all state and the rules, for `restore`; see `snapshot_chunks` for many series."""
        return b"".join(self.snapshot_chunks())

    def snapshot_chunks(self, series_max: int = 1_000) -> Iterator[bytes]:
        """Yield the snapshot in parts of so many series, each encoded when it is asked for.

        Points and ticks may come between two parts; each series stands as it was when its part was
        made. The parts put together are a snapshot.

        Raises:
            SnapshotError: The rules were changed between two parts; begin anew.
        """
        registry = self._registry
        rules = [compiled.rule for compiled in registry.book.rules.values()]
        yield from encode(
            self.company_id, rules, registry, series_max=series_max, epoch=lambda: registry.epoch
        )

    def snapshot_series(self, server: str, series_key: str) -> bytes | None:
        """Return a snapshot of one series with its rules, to be stored with what it told."""
        tracked = self._registry.get(server, series_key)
        if tracked is None:
            return None
        rules = [watch.rule.rule for watch in tracked.watches]
        return b"".join(encode(self.company_id, rules, [tracked], series_max=1, epoch=lambda: 0))

    def restore(self, data: bytes) -> None:
        """Become what the snapshot says, rules included; the next tick is a start.

        Raises:
            SnapshotError: It is damaged, of another version or another company; nothing changed.
        """
        old = self._registry
        found = self._restored(data, known={})
        registry = Registry(old.bounds, found.book)
        registry.epoch, registry.drops = old.epoch + 1, old.drops
        self._registry = registry
        self._ticker.begin_anew()
        for tracked in found.count():
            registry.place(tracked)

    def merge(self, data: bytes) -> None:
        """Take over the series of a newer snapshot, such as `snapshot_series` gives, after restore.

        Its rules are added where they are not known; a rule that is known stays as it is, and
        watches a series that the snapshot has without it from now on.

        Raises:
            SnapshotError: As `restore`.
        """
        registry = self._registry
        before = registry.book
        found = self._restored(data, known=before.rules)
        book = attrs.evolve(found.book, disabled=before.disabled, refused=before.refused)
        registry.book = book
        registry.epoch += found.has_new_rules
        registry.merge(found.count(), before, self._ticker.now)

    # ------------------------------------------------------------------------------------- pieces

    def _restored(self, data: bytes, known: Mapping[str, Compiled]) -> Restored:
        return Restored(
            data,
            company_id=self.company_id,
            no_data_after_seconds=self._no_data_after,
            points_max=self._registry.bounds.window_points_max,
            known=known,
        )


def _is_data(ts: float, value: float) -> bool:
    try:
        return isfinite(value) and isfinite(ts)
    except OverflowError:
        return False  # an integer that no double holds
    except TypeError:
        unix_seconds("ts", ts)
        refuse("value", value, "give a number, or None for no data")
