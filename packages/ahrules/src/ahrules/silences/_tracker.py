"""What silences hold back, and what is owed when they end.

The state of one alert, agent or group (one `event_key`); *begins* is alert.opened, alert.flapping,
alert.settled while firing, agent.down or group.down; *ends* is alert.resolved, alert.settled while
ok, agent.up or group.up. *Silenced* means that a silence holds for this event now.

| state | event            | silenced | next | the event goes out                                  |
| ----- | ---------------- | -------- | ---- | --------------------------------------------------- |
| free  | begins           | no       | free | as it is                                            |
| free  | begins           | yes      | held | suppressed, `silence:<id>`; when full: told, as it  |
|       |                  |          |      | is                                                  |
| free  | ends, a reminder | no       | free | as it is                                            |
| free  | ends, a reminder | yes      | free | suppressed, `silence:<id>`                          |
| held  | begins           | no       | free | as it is: this is the one that was owed             |
| held  | begins           | yes      | held | suppressed; it is the one that is owed from now on  |
| held  | ends             | any      | free | suppressed: nobody was told that it began           |
| held  | a reminder       | any      | held | suppressed: nobody was told that it began           |
| told  | begins           | yes      | told | as it is                                            |
| told  | ends             | any      | free | as it is: it was told that it began                 |
| told  | a reminder       | yes      | told | suppressed, `silence:<id>`                          |

*Told* is what began while as many were held back as may be: it went out although it was silenced.
Once there were more of these than may be held back it is not known any more which they are: from
then on every end goes out as it is.

An event that comes suppressed already passes as it is and changes no state: who suppressed it
(flapping, a group) owes it.

A held one is *due* as soon as no silence holds for it: `due` gives it as a draft with the reason
`silence_ended`, again and again until its event is marked, which is the fifth line. Nothing is kept
of what is free: an alert that was told before a silence and goes on through it is owed nothing.
"""

from datetime import datetime
from typing import Any, Final

import attrs

from ahrules._arguments import expect
from ahrules._draft import (
    ALERT_STATE_LABEL,
    STATE_FIRING,
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
    text_from_json,
    unique,
)
from ahrules.silences._held import HeldEvent, HeldEvents
from ahrules.silences._set import SilenceSet
from ahwire.hub import Event, EventType, Silence

_REASON: Final = "silence_ended"
_BEGINS: Final = frozenset(
    {
        EventType.AGENT_DOWN,
        EventType.ALERT_OPENED,
        EventType.ALERT_FLAPPING,
        EventType.GROUP_DOWN,
    }
)


def mark_event(
    held: HeldEvent | None, event: Event, silence: Silence | None
) -> tuple[HeldEvent | None, Event]:
    """Return the next state of one key, and the event as it goes out: the table above.

    Args:
        held: What is held for the event's key; None: it is free.
        event: What happened, with its id.
        silence: The silence that holds for the event now.
    """
    if event.suppressed:
        return held, event
    if _begins(event):
        if silence is None:
            return None, event
        marked = _suppress(event, silence.silence_id)
        return HeldEvent(event=marked, silence_id=silence.silence_id), marked
    if held is None:
        return None, event if silence is None else _suppress(event, silence.silence_id)
    marked = _suppress(event, held.silence_id if silence is None else silence.silence_id)
    return held if event.type is EventType.ALERT_REMINDER else None, marked


def _begins(event: Event) -> bool:
    if event.type is EventType.ALERT_SETTLED:
        return event.labels.get(ALERT_STATE_LABEL) == STATE_FIRING
    return event.type in _BEGINS


def _ends(event: Event) -> bool:
    return not _begins(event) and event.type is not EventType.ALERT_REMINDER


def _suppress(event: Event, silence_id: str) -> Event:
    return attrs.evolve(event, suppressed=True, suppress_reason=f"silence:{silence_id}")


def _checked(silences: SilenceSet) -> SilenceSet:
    expect("silences", silences, SilenceSet, "give what compile_silences([...]) returns")
    return silences


def _held_from_json(data: object) -> tuple[EventKey, HeldEvent]:
    document, silence_id = row_from_json(data, "event", "silence_id")
    held = HeldEvent(event=event_from_json(document), silence_id=text_from_json(silence_id))
    if not (held.event.suppressed and _begins(held.event)):
        raise ValueError(f"the event {held.event.event_id} is none that a silence holds back")
    return event_key(held.event), held


class SuppressionTracker:
    """Marks events that silences suppress, and says what is owed when a silence ends.

    It ends when its time is over, when its window is, or when the set is replaced. In memory, for
    one thread; `snapshot` is what a restart needs.

    Args:
        silences: The silences in force.
        held_max: How many alerts and agents may be held back. Once so many are, events that a
            silence would hold back are told: rather a message too many than one that is lost. What
            was told so is told to its end. Of so many more it is known which were; once there are
            still more, every end is told from then on, silenced or not.
    """

    def __init__(self, silences: SilenceSet | None = None, *, held_max: int = 100_000) -> None:
        if held_max < 1:
            raise ValueError(f"held_max is {held_max}; at least one alert must fit")
        self._silences = SilenceSet() if silences is None else _checked(silences)
        self._held_max = held_max
        self._held = HeldEvents(self._silences)
        # What was told although a silence held; or too many to know which.
        self._spilled: dict[EventKey, None] = {}
        self._tells_ends = False
        self._overflow_total = 0

    def __len__(self) -> int:
        """Return how many alerts and agents are held back."""
        return len(self._held)

    @property
    def overflow_total(self) -> int:
        """How many events were told although a silence held, because `held_max` were held."""
        return self._overflow_total

    def replace(self, silences: SilenceSet) -> None:
        """Put other silences in force; what no silence of them holds back is due."""
        self._silences = _checked(silences)
        self._held.replace(self._silences)

    def mark(self, event: Event, now: datetime) -> Event:
        """Return the event as it goes out, and keep what is owed for it.

        Args:
            event: What happened. Those of one key come in their order, drafts of `due` among them.
            now: When the silences are asked: an aware datetime.

        Raises:
            InstantError: `now` is naive.
        """
        key = event_key(event)
        held = self._held.get(key)
        following, marked = mark_event(held, event, self._silences.active(event, now))
        if marked is not event and self._tells_anyway(key, event, following):
            self._overflow_total += 1
            self._held.pop(key)
            return event
        if following is None:
            self._held.pop(key)
            if _ends(event) and not event.suppressed:
                self._spilled.pop(key, None)
        else:
            self._held.put(key, following)
        return marked

    def _tells_anyway(self, key: EventKey, event: Event, following: HeldEvent | None) -> bool:
        """Decide whether an event goes out although it is to be suppressed, and keep that."""
        if following is None:
            if not _ends(event):
                return False
            was_spilled = key in self._spilled
            self._spilled.pop(key, None)
            return was_spilled or self._tells_ends
        if key not in self._spilled:
            if self._held.get(key) is not None or len(self._held) < self._held_max:
                return False
            if len(self._spilled) < self._held_max:
                self._spilled[key] = None
            else:
                self._tells_ends = True
        return True

    def due(self, now: datetime) -> tuple[EventDraft, ...]:
        """Return what must be told now, because it began in silence, holds, and silence is over.

        Each draft is given until its event is marked: make the event, `mark` it, store both. An
        alert that begins or ends before that needs its draft no more.

        Args:
            now: An aware datetime.

        Raises:
            InstantError: `now` is naive.
        """
        check_aware(now)
        return tuple(
            EventDraft.again(held.event, occurred_at=now, reason=_REASON)
            for held in self._held.overdue(now)
        )

    def next_look(self, now: datetime) -> datetime | None:
        """Return when `due` may have something next: `now` itself when it has, None when never.

        Raises:
            InstantError: `now` is naive, or too near to the end of the calendar.
        """
        check_aware(now)
        if next(self._held.overdue(now), None) is not None:
            return now
        return self._held.next_change(now)

    def snapshot(self) -> dict[str, Any]:
        """Return everything that `restore` needs, as JSON values."""
        return {
            "version": VERSION,
            "held": [[event_to_json(held.event), held.silence_id] for held in self._held],
            "told": [list(key) for key in self._spilled],
            "tells_ends": self._tells_ends,
        }

    def restore(self, data: object) -> None:
        """Become what a snapshot says; the silences are not in it.

        Raises:
            SnapshotError: It cannot be read; nothing is changed.
        """
        with reading("what silences hold back", data) as document:
            rows = list_from_json(field_from_json(document, "held"), "what is held")
            held = unique(map(_held_from_json, rows))
            # Snapshots of before there was a bound to what is told have neither.
            told = list_from_json(field_from_json(document, "told", default=[]), "keys")
            spilled = unique((key_from_json(key), None) for key in told)
            tells_ends = flag_from_json(field_from_json(document, "tells_ends", default=False))
            both = held.keys() & spilled.keys()
            if both:
                raise ValueError(f"{shown(min(both))} is both held back and told")
        self._held.become(held)
        self._spilled, self._tells_ends = spilled, tells_ends

    def snapshot_alert(self, key: EventKey) -> dict[str, Any] | None:
        """Return what is kept of one alert, agent or group, for `restore_alert`; None: nothing."""
        held = self._held.get(key)
        told = key in self._spilled
        if held is None and not told and not self._tells_ends:
            return None
        return {
            "held": None if held is None else [event_to_json(held.event), held.silence_id],
            "told": told,
            "tells_ends": self._tells_ends,
        }

    def restore_alert(self, key: EventKey, data: object) -> None:
        """Take over what `snapshot_alert` gives, over what is kept of the key.

        Raises:
            SnapshotError: It cannot be read, or is another's; nothing is changed.
        """
        held: tuple[EventKey, HeldEvent] | None = None
        told = tells_ends = False
        with reading("what a silence holds back", {"version": VERSION}):
            if data is not None:
                row = field_from_json(data, "held")
                held = _held_from_json(row) if row else None
                told = flag_from_json(field_from_json(data, "told"))
                tells_ends = flag_from_json(field_from_json(data, "tells_ends"))
            if held is not None and (told or held[0] != key):
                what = "told too" if told else f"of {shown(held[0])}, not of {shown(key)}"
                raise ValueError(f"what is held is {what}")
        self._held.pop(key)
        self._spilled.pop(key, None)
        if held is not None:
            self._held.put(key, held[1])
        if told:
            self._spilled[key] = None
        self._tells_ends = self._tells_ends or tells_ends
