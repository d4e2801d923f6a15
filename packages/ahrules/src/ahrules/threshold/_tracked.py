"""The series that an evaluator holds, by server."""

import math
from typing import Final

from attrs import field, frozen, validators

from ahrules.threshold._series import Series
from ahrules.threshold._watch import Watch

NEVER: Final = -math.inf
"""The time of what has not happened yet."""


@frozen(kw_only=True)
class EvaluatorBounds:
    """How much one evaluator holds. What does not fit is counted and not watched.

    Attributes:
        series_max: Series, with or without an alert, whose metric a rule names.
        rule_series_max: Series that one rule watches.
        watches_max: Rules over series in all: each rule counts once for each series that it
            watches, and takes some 120 bytes there, its window not counted.
        series_watches_max: Rules that watch one series: so many are judged for one point, all at
            once. Those that come first are taken.
        series_rules_max: Rules that a new series is asked for. None of those is counted that name
            other servers or other values of a label than the series has.
        window_points_max: Points of one rule's window over one series, 16 bytes each; when there
            are more, the window reaches less far back.
        key_chars_max: Characters of a series' key; an event carries no longer ones.
        key_chars_total_max: Characters of all keys together.
    """

    series_max: int = field(default=200_000, validator=validators.ge(1))
    rule_series_max: int = field(default=100_000, validator=validators.ge(1))
    watches_max: int = field(default=500_000, validator=validators.ge(1))
    series_watches_max: int = field(default=200, validator=validators.ge(1))
    series_rules_max: int = field(default=5_000, validator=validators.ge(1))
    window_points_max: int = field(default=1_000, validator=validators.ge(1))
    key_chars_max: int = field(default=65_536, validator=validators.ge(1))
    key_chars_total_max: int = field(default=1 << 26, validator=validators.ge(1))


class Tracked:
    """A series of a server, and the rules over it.

    Attributes:
        last_ts: Time of its newest point.
        last_value: What that said.
        heard_at: The last tick before that came.
        away: The longest time that its server was away since it came, or since the start.
        due_at: Before then no tick can have anything to say about it.
        is_short: Whether a rule that meets it could not take one more series.
    """

    __slots__ = (
        "away",
        "due_at",
        "heard_at",
        "is_short",
        "last_ts",
        "last_value",
        "series",
        "server",
        "watches",
    )

    def __init__(self, server: str, series: Series) -> None:
        self.server = server
        self.series = series
        self.watches: list[Watch] = []
        self.last_ts = NEVER
        self.last_value = 0.0
        self.heard_at = NEVER
        self.away = 0.0
        self.due_at = NEVER
        self.is_short = False

    def come_back(self, ts: float, away: float) -> None:
        """Its server, away for so long, is seen again: silence counts from now.

        Once between two points for each rule, or who sends more seldom than the rule is patient
        would never be told as silent.
        """
        if away <= self.away:
            return
        for watch in self.watches:
            if self.away <= watch.rule.no_data_after < away:
                watch.born_at = max(watch.born_at, ts)
        self.away = away

    def turn_back(self, now: float) -> None:
        """The clock of its newest point was wrong: take that for one of now."""
        for watch in self.watches:
            watch.turn_back(now)
            if watch.window is not None:
                watch.window.turn_back(now, self.last_value)
        self.last_ts = now
        self.due_at = NEVER

    def pass_by(self, now: float) -> None:
        """Keep nothing of a point that no rule watches but that the series is there."""
        self.heard_at = now
        self.last_ts = NEVER


class Host:
    """A server: when it was seen, and its series by key."""

    __slots__ = ("seen_at", "series")

    def __init__(self) -> None:
        self.seen_at = NEVER
        self.series: dict[str, Tracked] = {}

    def see(self, ts: float, start: float, patience: float) -> None:
        """Note a sign of life.

        Args:
            ts: When, by the clock of the ticks.
            start: Of the ticks: nobody knows what was before.
            patience: The shortest silence that any rule tells of.
        """
        if ts <= self.seen_at:
            return
        away = ts - max(self.seen_at, start)
        self.seen_at = ts
        if away > patience:
            for tracked in self.series.values():
                tracked.come_back(ts, away)
