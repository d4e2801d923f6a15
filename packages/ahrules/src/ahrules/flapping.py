"""Alerts that open and resolve all the time: told once that they flap, and once that they settled.

The state of one alert (one `event_key`); a *change* is an alert.opened unless the alert is known to
fire, or an alert.resolved unless it is known to be ok.

| state    | input                                   | next     | the event   | besides        |
| -------- | --------------------------------------- | -------- | ----------- | -------------- |
| steady   | a change, fewer than `changes` of them  | steady   | as it is    |                |
|          | in the newest `window_seconds`          |          |             |                |
| steady   | a change that makes them `changes`      | flapping | suppressed  | alert.flapping |
| steady   | no change for over `window_seconds`     | unknown  |             |                |
| flapping | a change                                | flapping | suppressed  |                |
| flapping | no change for `quiet_seconds`           | unknown  |             | alert.settled  |
| flapping | a reminder                              | flapping | suppressed  |                |
| any      | resolved as `forgotten`: no server more | unknown  | as it is    | alert.settled  |
| any      | the same again, any other event         | as it is | as the      |                |
|          |                                         |          | state says  |                |

Edges: changes exactly `window_seconds` apart are within the window; an alert that was quiet for
exactly `quiet_seconds` has settled, and a change at that instant is the first of a steady one.
A server taken away is no change, and settles what flapped: what comes under its name is new.
An event that comes late, with a time before the newest change, counts as if it came with that one.
alert.flapping is told with the label `alert_state` (`firing` or `ok`: as the change left it) and
`flap_changes`; alert.settled with `alert_state` and the `duration_seconds` of the flapping, at the
instant at which the quiet was long enough, whenever that is looked at.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

import attrs
from attrs import field, frozen, validators

from ahrules._arguments import expect
from ahrules._draft import (
    ALERT_STATE_LABEL,
    STATE_FIRING,
    STATE_OK,
    EventDraft,
    EventKey,
    event_key,
)
from ahrules._moments import check_aware
from ahrules._reading import shown
from ahrules._snapshots import (
    VERSION,
    event_from_json,
    event_to_json,
    field_from_json,
    flag_from_json,
    key_from_json,
    list_from_json,
    reading,
    row_from_json,
    time_from_json,
    time_to_json,
    unique,
)
from ahwire.hub import Event, EventType, JsonValue

__all__ = ["FlapDetector", "FlapSettings", "FlapState", "FlapStep", "observe_alert", "settle_alert"]

_SUPPRESS_REASON: Final = "flapping"
_CHANGES_LABEL: Final = "flap_changes"
_FIRING: Final = {EventType.ALERT_OPENED: True, EventType.ALERT_RESOLVED: False}
_HIDDEN: Final = frozenset({*_FIRING, EventType.ALERT_REMINDER})
_FORGOTTEN: Final = "forgotten"
_CHANGES_MAX: Final = 100
_SECONDS_MAX: Final = 366 * 24 * 3_600.0


@frozen(kw_only=True)
class FlapSettings:
    """When an alert flaps.

    Attributes:
        changes: So many changes make it flap; 2 to 100.
        window_seconds: In how short a time; above 0, at most 366 days.
        quiet_seconds: How long without a change it has settled; above 0, at most 366 days.
    """

    changes: int = field(
        default=4,
        validator=[validators.instance_of(int), validators.ge(2), validators.le(_CHANGES_MAX)],
    )
    window_seconds: float = field(
        default=1_800.0,
        converter=float,
        validator=[validators.gt(0), validators.le(_SECONDS_MAX)],
    )
    quiet_seconds: float = field(
        default=1_800.0,
        converter=float,
        validator=[validators.gt(0), validators.le(_SECONDS_MAX)],
    )


@frozen(kw_only=True)
class FlapState:
    """What is kept of one alert.

    Attributes:
        firing: How the newest change left it.
        changed_at: The newest changes, oldest first; never empty, while flapping the newest only.
        since: When it began to flap; None: it is steady.
        newest: While flapping, the event of the newest change.
    """

    firing: bool
    changed_at: tuple[datetime, ...]
    since: datetime | None = None
    newest: Event | None = None


@frozen(kw_only=True)
class FlapStep:
    """What one input came to.

    Attributes:
        state: The next state; None: nothing is kept.
        event: The event that came in, as it goes out; None after `settle_alert`.
        drafts: What is told besides, in this order.
    """

    state: FlapState | None
    event: Event | None = None
    drafts: tuple[EventDraft, ...] = ()


def observe_alert(state: FlapState | None, event: Event, settings: FlapSettings) -> FlapStep:
    """Take an event of one alert; its `occurred_at` is the time. See the table of the module.

    Args:
        state: What is kept of the alert.
        event: What happened to it. Types other than opened, resolved and reminder pass.
        settings: When it flaps.
    """
    settled = settle_alert(state, event.occurred_at, settings)
    state, drafts = settled.state, settled.drafts
    firing = _FIRING.get(event.type)
    if firing is False and event.reason == _FORGOTTEN:
        return FlapStep(state=None, event=event, drafts=(*drafts, *_left(state, event)))
    flaps = state is not None and state.since is not None
    if firing is None or (state is not None and firing == state.firing):
        hidden = flaps and event.type in _HIDDEN
        return FlapStep(state=state, event=_hide(event) if hidden else event, drafts=drafts)
    if state is None:
        state = FlapState(firing=firing, changed_at=())
    now = max((event.occurred_at, *state.changed_at[-1:]))
    if flaps:
        state = attrs.evolve(state, firing=firing, changed_at=(now,), newest=event)
        return FlapStep(state=state, event=_hide(event), drafts=drafts)
    window = timedelta(seconds=settings.window_seconds)
    changed_at = (*(each for each in state.changed_at if now - each <= window), now)
    if len(changed_at) < settings.changes:
        state = FlapState(firing=firing, changed_at=changed_at)
        return FlapStep(state=state, event=event, drafts=drafts)
    state = FlapState(firing=firing, changed_at=(now,), since=now, newest=event)
    flapping = _told(EventType.ALERT_FLAPPING, state, now, labels={_CHANGES_LABEL: len(changed_at)})
    return FlapStep(state=state, event=_hide(event), drafts=(*drafts, flapping))


def settle_alert(state: FlapState | None, now: datetime, settings: FlapSettings) -> FlapStep:
    """Let time pass for one alert: the lines of the table in which nothing happened for long."""
    if state is None:
        return FlapStep(state=None)
    newest_at = state.changed_at[-1]
    if state.since is None:
        forgotten = now - newest_at > timedelta(seconds=settings.window_seconds)
        return FlapStep(state=None if forgotten else state)
    # The newest change may be near the end of the calendar: the difference is always a time.
    if now - newest_at < timedelta(seconds=settings.quiet_seconds):
        return FlapStep(state=state)
    settled_at = _quiet_until(newest_at, settings)
    draft = attrs.evolve(
        _told(EventType.ALERT_SETTLED, state, settled_at),
        duration_seconds=(settled_at - state.since).total_seconds(),
    )
    return FlapStep(state=None, drafts=(draft,))


def _left(state: FlapState | None, event: Event) -> tuple[EventDraft, ...]:
    """Return what ends the flapping of an alert that is taken away."""
    if state is None or state.since is None:
        return ()
    at = max(event.occurred_at, *state.changed_at)
    draft = _told(EventType.ALERT_SETTLED, attrs.evolve(state, firing=False), at)
    return (attrs.evolve(draft, duration_seconds=(at - state.since).total_seconds()),)


def _quiet_until(newest_at: datetime, settings: FlapSettings) -> datetime:
    """Return when the alert has settled, or the calendar's last instant."""
    try:
        return newest_at + timedelta(seconds=settings.quiet_seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=newest_at.tzinfo)


def _told(
    kind: EventType,
    state: FlapState,
    occurred_at: datetime,
    *,
    labels: Mapping[str, JsonValue] = MappingProxyType({}),
) -> EventDraft:
    assert state.newest is not None, "a flapping alert keeps its newest event"
    draft = EventDraft.again(state.newest, occurred_at=occurred_at, reason=None)
    alert_state = STATE_FIRING if state.firing else STATE_OK
    return attrs.evolve(
        draft,
        type=kind,
        duration_seconds=None,
        peak_value=None,
        labels={**draft.labels, ALERT_STATE_LABEL: alert_state, **labels},
    )


def _hide(event: Event) -> Event:
    if event.suppressed:
        return event
    return attrs.evolve(event, suppressed=True, suppress_reason=_SUPPRESS_REASON)


class FlapDetector:
    """`observe_alert` and `settle_alert` for many alerts. In memory, for one thread.

    Args:
        settings: When an alert flaps.
        alerts_max: How many alerts are kept. Over it, the steady one that was looked at longest
            ago is forgotten, which can only delay that it is seen to flap; when all of them flap, a
            new one is not watched, and its events pass.
    """

    def __init__(
        self, settings: FlapSettings = FlapSettings(), *, alerts_max: int = 100_000
    ) -> None:
        if alerts_max < 1:
            raise ValueError(f"alerts_max is {alerts_max}; at least one alert must fit")
        expect("settings", settings, FlapSettings, "give FlapSettings(changes=...)")
        self._settings = settings
        self._alerts_max = alerts_max
        self._steady: OrderedDict[EventKey, FlapState] = OrderedDict()
        self._flapping: dict[EventKey, FlapState] = {}
        self._forgotten_total = 0

    def __len__(self) -> int:
        """Return how many alerts are kept."""
        return len(self._steady) + len(self._flapping)

    @property
    def flapping(self) -> frozenset[EventKey]:
        """The alerts that flap."""
        return frozenset(self._flapping)

    @property
    def forgotten_total(self) -> int:
        """How many alerts were forgotten, or not watched, because `alerts_max` were kept."""
        return self._forgotten_total

    def observe(self, event: Event) -> FlapStep:
        """Take an event; its `occurred_at` is the time.

        Args:
            event: Of any type; those of one key come in their order.
        """
        key = event_key(event)
        step = observe_alert(self._state(key), event, self._settings)
        self._put(key, step.state)
        return step

    def settle(self, key: EventKey, now: datetime) -> tuple[EventDraft, ...]:
        """Let time pass for one alert, as `tick` does for all, and return what settled.

        `observe` does it too, but by then the event has its seq, and what settled before it must
        have a lower one: ask before the event is made.
        """
        step = settle_alert(self._state(key), now, self._settings)
        self._put(key, step.state)
        return step.drafts

    def tick(self, now: datetime) -> tuple[EventDraft, ...]:
        """Return what settled, in the order in which it did, and forget what was long quiet.

        Args:
            now: An aware datetime.

        Raises:
            InstantError: `now` is naive.
        """
        check_aware(now)
        drafts: list[EventDraft] = []
        for key, state in [*self._flapping.items(), *self._steady.items()]:
            step = settle_alert(state, now, self._settings)
            drafts += step.drafts
            if step.state is None:
                self._put(key, None)
        return tuple(sorted(drafts, key=lambda draft: draft.occurred_at))

    def next_look(self) -> datetime | None:
        """Return when `tick` has something to tell, unless an event comes before; None: never."""
        newest = min((state.changed_at[-1] for state in self._flapping.values()), default=None)
        if newest is None:
            return None
        return _quiet_until(newest, self._settings)

    def snapshot(self) -> dict[str, Any]:
        """Return everything that `restore` needs, as JSON values."""
        return {
            "version": VERSION,
            "alerts": [
                [list(key), *_state_to_json(state)]
                for states in (self._steady, self._flapping)
                for key, state in states.items()
            ],
        }

    def restore(self, data: object) -> None:
        """Become what a snapshot says, under the settings given now.

        Raises:
            SnapshotError: It cannot be read; nothing is changed.
        """
        with reading("flapping alerts", data) as document:
            alerts = list_from_json(field_from_json(document, "alerts"), "alerts")
            found = unique(_alert_from_json(each) for each in alerts)
        self._steady.clear()
        self._flapping.clear()
        for key, state in found.items():
            self._put(key, state)

    def snapshot_alert(self, key: EventKey) -> list[Any] | None:
        """Return what is kept of one alert, for `restore_alert`; None: nothing."""
        state = self._state(key)
        return None if state is None else [list(key), *_state_to_json(state)]

    def restore_alert(self, key: EventKey, data: object) -> None:
        """Take over one alert, such as `snapshot_alert` gives, over what is kept of it.

        Raises:
            SnapshotError: It cannot be read, or is another alert's; nothing is changed.
        """
        with reading("a flapping alert", {"version": VERSION}):
            found = None if data is None else _alert_from_json(data)
            if found is not None and found[0] != key:
                raise ValueError(f"it is of {shown(found[0])}, not of {shown(key)}")
        self._put(key, None if found is None else found[1])

    def _state(self, key: EventKey) -> FlapState | None:
        return self._flapping.get(key) or self._steady.get(key)

    def _put(self, key: EventKey, state: FlapState | None) -> None:
        known = self._flapping.pop(key, None) or self._steady.pop(key, None)
        if state is None:
            return
        if known is None and len(self) >= self._alerts_max:
            self._forgotten_total += 1
            if not self._steady:
                return
            self._steady.popitem(last=False)
        if state.since is None:
            self._steady[key] = state
        else:
            self._flapping[key] = state


def _state_to_json(state: FlapState) -> list[Any]:
    return [
        state.firing,
        [time_to_json(each) for each in state.changed_at],
        None if state.since is None else time_to_json(state.since),
        None if state.newest is None else event_to_json(state.newest),
    ]


def _alert_from_json(data: object) -> tuple[EventKey, FlapState]:
    name, firing, changes, since, newest = row_from_json(
        data, "key", "firing", "changed_at", "since", "newest"
    )
    key = key_from_json(name)
    state = FlapState(
        firing=flag_from_json(firing),
        changed_at=tuple(map(time_from_json, list_from_json(changes, "changes"))),
        since=None if since is None else time_from_json(since),
        newest=None if newest is None else event_from_json(newest),
    )
    times = state.changed_at
    if not times or len(times) > _CHANGES_MAX or list(times) != sorted(times):
        raise ValueError(f"{shown(changes)} are no changes of an alert, oldest first")
    if (state.since is None) != (state.newest is None):
        raise ValueError("an alert flaps without an event, or has one although it is steady")
    if state.since is not None and (len(times) > 1 or state.since > times[-1]):
        raise ValueError("an alert that flaps has not one change, from when it began or later")
    if state.newest is not None and (
        event_key(state.newest) != key or _FIRING.get(state.newest.type) is not state.firing
    ):
        raise ValueError(f"the newest event of {shown(key)} is another's, or no change of it")
    return key, state
