"""One rule over one series: its state, and what moves it.

Law, `told` in brackets. A point is newer than all before it; silence is judged by a tick.

| state | point: condition holds | point: it does not | silence: ok | keep | alert |
| --- | --- | --- | --- | --- | --- |
| OK | PENDING; FIRING [opened] at once without `for` | OK | OK | OK | SILENT [opened] |
| PENDING | FIRING [opened] once it held for `for` | OK | OK | PENDING | SILENT [opened] |
| FIRING | FIRING | KEPT; OK [resolved] without `keep_firing` | OK [resolved] | FIRING | FIRING |
| KEPT | FIRING | OK [resolved] once over for `keep_firing` | OK [resolved] | KEPT | KEPT |
| SILENT | [resolved], then as OK | OK [resolved] | | | SILENT |

- The condition compares with `threshold`; while FIRING, with `resolve_threshold`.
- A PENDING whose next point comes more than `no_data_after` behind the last one begins anew, unless
  the rule keeps its state without data.
- `for` and `keep_firing` count from point to point, by the points' own time: an alert is opened or
  ended by evidence, so delays and gaps move nothing.
"""

import math
from enum import IntEnum, unique
from typing import Final, NamedTuple

from ahrules.threshold._rules import Compiled
from ahrules.threshold._transition import TransitionKind, TransitionReason
from ahrules.threshold._window import Window
from ahwire.hub import NoData


class Told(NamedTuple):
    """What a move tells: the alert as it was then, for a second move may follow at once."""

    kind: TransitionKind
    reason: TransitionReason
    started_at: float
    peak: float | None


@unique
class AlertState(IntEnum):
    """The state of a rule over a series; the numbers stand in snapshots."""

    OK = 0
    PENDING = 1
    FIRING = 2
    KEPT = 3
    SILENT = 4


_OK: Final = AlertState.OK
_PENDING: Final = AlertState.PENDING
_FIRING: Final = AlertState.FIRING
_KEPT: Final = AlertState.KEPT
_SILENT: Final = AlertState.SILENT
OPEN: Final = frozenset({_FIRING, _KEPT, _SILENT})
"""The states in which an alert is open."""
REMINDERS_MAX: Final = 1 << 53
"""So many reminders of one alert are counted; a double tells them apart."""
_OPENED: Final = TransitionKind.OPENED
_RESOLVED: Final = TransitionKind.RESOLVED


class Watch:
    """The state of one rule over one series.

    Attributes:
        since: When the condition began (PENDING), when it was over (KEPT); else of no meaning.
        started_at: When the open alert opened.
        reminders: How many reminders of the open alert are due or past.
        value: What was compared last; None before the first point, and from SILENT to the next.
        peak: The farthest value on the alert's side since the condition began.
        born_at: The tick after which the rule began to watch; silence counts from then.
        window: The last points; None where the last one says all.
    """

    __slots__ = (
        "born_at",
        "peak",
        "reminders",
        "rule",
        "since",
        "started_at",
        "state",
        "value",
        "window",
    )

    def __init__(self, rule: Compiled, window: Window | None, born_at: float) -> None:
        self.rule = rule
        self.window = window
        self.born_at = born_at
        self.state = _OK
        self.since = 0.0
        self.started_at = 0.0
        self.reminders = 0
        self.value: float | None = None
        self.peak: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether an alert is open."""
        return self.state in OPEN

    def told(self, kind: TransitionKind, reason: TransitionReason) -> Told:
        """Return what is told of the alert as it is."""
        return Told(kind, reason, self.started_at, self.peak)

    def judge(self, ts: float, value: float, last_ts: float) -> list[Told]:
        """Take a value that is newer than all before; `last_ts` is the time of the one before."""
        state = self.state
        rule = self.rule
        told: list[Told] = []
        self.value = value
        if state is _FIRING:
            if rule.compare(value, rule.ends_at):
                self.peak = rule.farther(value, self.peak)
            elif rule.rule.keep_firing_seconds > 0:
                self.state, self.since = _KEPT, ts
            else:
                self._end()
                told.append(self.told(_RESOLVED, TransitionReason.CONDITION))
            return told
        holds = rule.compare(value, rule.threshold)
        if state is _KEPT:
            if holds:
                self.state, self.peak = _FIRING, rule.farther(value, self.peak)
            elif ts >= self.since + rule.rule.keep_firing_seconds:
                self._end()
                told.append(self.told(_RESOLVED, TransitionReason.CONDITION))
            return told
        if state is _SILENT:
            self._end()
            told.append(self.told(_RESOLVED, TransitionReason.DATA_RETURNED))
        if not holds:
            self._end()
        elif self._waited(ts, value, last_ts):
            self.state, self.started_at, self.reminders = _FIRING, ts, 0
            told.append(self.told(_OPENED, TransitionReason.CONDITION))
        return told

    def _waited(self, ts: float, value: float, last_ts: float) -> bool:
        """Begin or go on with PENDING; tell whether the condition held for long enough."""
        rule = self.rule
        gap = ts > last_ts + rule.no_data_after and rule.rule.no_data is not NoData.KEEP
        if self.state is not _PENDING or gap:
            self.state, self.since, self.peak = _PENDING, ts, value
        else:
            self.peak = rule.farther(value, self.peak)
        return ts >= self.since + rule.rule.for_seconds

    def turn_back(self, now: float) -> None:
        """The clock of the points before was wrong: how long anything held is not known.

        What began later than now began now; an open alert stays open until a point ends it.
        """
        if self.state is _PENDING:
            self._end()
        elif self.state is _KEPT:
            self.state = _FIRING
        self.started_at = min(self.started_at, now)
        told = self.reminders
        self.pass_reminders(now)
        self.reminders = min(told, self.reminders)

    def remember(self, value: float) -> None:
        """Take a value that was judged before: it moved nothing that is not known."""
        if self.state is _SILENT:
            return
        self.value = value
        rule = self.rule
        bound = rule.ends_at if self.state is _FIRING else rule.threshold
        if self.state in (_FIRING, _PENDING) and rule.compare(value, bound):
            self.peak = rule.farther(value, self.peak)

    def fall_silent(self, now: float) -> list[Told]:
        """The series is silent although its host is not."""
        no_data = self.rule.rule.no_data
        if no_data is NoData.ALERT and not self.is_open:
            self.state, self.started_at, self.reminders = _SILENT, now, 0
            self.value = self.peak = None
            return [self.told(_OPENED, TransitionReason.NO_DATA)]
        if no_data is NoData.OK:
            was_open = self.is_open
            self._end()
            return [self.told(_RESOLVED, TransitionReason.NO_DATA)] if was_open else []
        return []

    def remind(self, now: float) -> bool:
        """Tell whether a reminder is due; those that were missed are not made up for."""
        seconds = self.rule.rule.reminder_seconds
        if seconds is None or not self.is_open:
            return False
        # Of times that no calendar has the quotient may be no number: then all of them are due.
        due = int(min(REMINDERS_MAX - 1, (now - self.started_at) // seconds))
        # The k-th is due at started_at + k * seconds, however the quotient was rounded.
        if now >= self.started_at + (due + 1) * seconds:
            due += 1
        if due <= self.reminders:
            return False
        self.reminders = due
        return True

    def pass_reminders(self, now: float) -> None:
        """Count those that were due until now as told: the next one lies ahead."""
        self.reminders = 0
        self.remind(now)

    def next_reminder_at(self) -> float:
        """When the next reminder is due; infinity: there is none."""
        seconds = self.rule.rule.reminder_seconds
        if seconds is None or not self.is_open:
            return math.inf
        return self.started_at + (self.reminders + 1) * seconds

    def change(self, rule: Compiled, now: float) -> list[Told]:
        """Go over to a changed rule: an alert stays where its condition holds under that."""
        value, before = self.value, self.rule.rule
        self.rule = rule
        if before.reminder_seconds != rule.rule.reminder_seconds:
            self.pass_reminders(now)
        if before.op is not rule.rule.op:
            self.peak = value if self.peak is not None else None
        if self.state is _SILENT:
            holds = rule.tells_silence
        elif self.state is _FIRING:
            holds = value is not None and rule.compare(value, rule.ends_at)
        else:
            holds = value is not None and rule.compare(value, rule.threshold)
        if holds:
            if self.state is _KEPT:
                self.state = _FIRING
            return []
        was_open = self.is_open
        self._end()
        return [self.told(_RESOLVED, TransitionReason.RULE_CHANGED)] if was_open else []

    def _end(self) -> None:
        self.state = _OK
