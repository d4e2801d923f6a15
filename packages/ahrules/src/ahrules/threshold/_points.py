"""What a point does to a series that is held.

Law: `remember` leaves states, starts and what is told as they are, and all else as `take` would
have. So a state from when it moved last, and the points judged since, are what they were together.
"""

from math import isnan

from ahrules.threshold._registry import Registry
from ahrules.threshold._telling import Teller
from ahrules.threshold._ticking import Ticker
from ahrules.threshold._tracked import Tracked
from ahrules.threshold._transition import Transition, TransitionKind
from ahrules.threshold._watch import AlertState, Watch
from ahrules.threshold._window import Window

_OK = AlertState.OK
_WINDOW_POINTS_A_STEP = 32


class Points:
    """Judges points of one company.

    Args:
        teller: Makes the transitions.
        ticker: Knows the last tick.
    """

    def __init__(self, teller: Teller, ticker: Ticker) -> None:
        self._teller = teller
        self._ticker = ticker

    def take(
        self, registry: Registry, tracked: Tracked, ts: float, value: float
    ) -> list[Transition]:
        """Judge a point that is newer than all before."""
        last_ts = tracked.last_ts
        tracked.last_ts = ts
        tracked.last_value = value
        tracked.heard_at = self._ticker.now
        tracked.away = 0.0
        registry.work += len(tracked.watches)
        told: list[Transition] = []
        for watch in tracked.watches:
            rule = watch.rule
            seen = value
            try:
                if watch.window is not None:
                    seen = _aggregate(registry, watch, watch.window, ts, value)
                    if isnan(seen):
                        continue
                if watch.state is _OK and not rule.compare(seen, rule.threshold):
                    watch.value = seen  # as nearly always
                    continue
                state, since = watch.state, watch.since
                moves = watch.judge(ts, seen, last_ts)
                if watch.state is not state or watch.since != since:
                    registry.moved[tracked] = None
                self._teller.tell(tracked, watch, moves, ts, told)
                if moves and moves[-1].kind is TransitionKind.OPENED:
                    self._ticker.opened(watch)
            except Exception as error:  # noqa: BLE001 - one rule stops no other
                registry.note_failed(tracked, rule, error)
        return told

    def take_late(self, registry: Registry, tracked: Tracked, ts: float, value: float) -> None:
        """Let a point count where a window reaches back to it, and move nothing."""
        registry.drops["late"] += 1
        _add_late(tracked, ts, value)

    def remember(self, registry: Registry, tracked: Tracked, ts: float, value: float) -> None:
        """Take a point that was judged before."""
        if ts <= tracked.last_ts:
            _add_late(tracked, ts, value)
            return
        tracked.last_ts, tracked.last_value = ts, value
        tracked.heard_at = self._ticker.now
        tracked.away = 0.0
        for watch in tracked.watches:
            seen = value
            try:
                if watch.window is not None:
                    seen = _aggregate(registry, watch, watch.window, ts, value)
                if not isnan(seen):
                    watch.remember(seen)
            except Exception as error:  # noqa: BLE001 - it raised when it judged the point, too
                registry.note_failed(tracked, watch.rule, error)


def _add_late(tracked: Tracked, ts: float, value: float) -> None:
    for watch in tracked.watches:
        if watch.window is not None:
            watch.window.add_late(ts, value)


def _aggregate(registry: Registry, watch: Watch, window: Window, ts: float, value: float) -> float:
    window.add(ts, value)
    registry.work += window.size // _WINDOW_POINTS_A_STEP
    drops = registry.drops
    if window.cut:
        drops["window_points_max"] += window.cut
        window.cut = 0
    seen = watch.rule.aggregate(window)
    if isnan(seen):
        drops["not_finite"] += 1
    return seen
