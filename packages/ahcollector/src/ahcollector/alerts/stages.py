"""What stands between an event that was decided and the outbox: flapping, silences.

A *stage* takes the events of one company in their order, each with its id and seq, and says how it
goes on and what is told besides. Stages are pure: their clock is an argument, and what they keep
can be stored alert by alert (`snapshot_alert`) beside the event that moved it.

`Pipeline` leads events through stages. It is used for the events of threshold rules; any other
events of a company, such as those of agents, can be led through stages in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from ahrules import (
    EventDraft,
    EventKey,
    FlapDetector,
    FlapSettings,
    SilenceSet,
    SuppressionTracker,
    event_key,
)
from ahwire import Event

__all__ = ["FlapStage", "Mint", "Pipeline", "SilenceStage", "Stage"]

Mint = Callable[[EventDraft], Event | None]
"""Gives a draft its id and seq; None when it breaks the contract of events, which is counted."""


class Stage(Protocol):
    """One step on the way; for one company, in memory, not for several threads."""

    @property
    def name(self) -> str:
        """What its state is stored under."""
        ...

    def before(self, key: EventKey, at: datetime) -> Iterable[EventDraft]:
        """Return what is told before an event of `key` that happened `at`.

        Asked before the event gets its seq, so that what is returned here has a lower one.
        """
        ...

    def take(self, event: Event, now: datetime) -> tuple[Event, Iterable[EventDraft]]:
        """Return the event as it goes on, and what is told after it."""
        ...

    def tick(self, now: datetime) -> Iterable[EventDraft]:
        """Return what is told because time passed."""
        ...

    def snapshot(self) -> Any:
        """Return all state as JSON values, for `restore`."""
        ...

    def restore(self, data: Any) -> None:
        """Become what a snapshot says. Raises `ahrules.SnapshotError`."""
        ...

    def snapshot_alert(self, key: EventKey) -> Any:
        """Return what is kept of one alert, for `restore_alert`; None: nothing."""
        ...

    def restore_alert(self, key: EventKey, data: Any) -> None:
        """Take over what is kept of one alert. Raises `ahrules.SnapshotError`."""
        ...

    def __len__(self) -> int:
        """Return how many alerts something is kept of."""
        ...


class FlapStage:
    """Tells once that an alert flaps, and once that it settled; in between its events are marked.

    Args:
        settings: When an alert flaps.
        alerts_max: How many alerts are kept.
    """

    name = "flapping"

    def __init__(self, settings: FlapSettings, *, alerts_max: int = 20_000) -> None:
        self._detector = FlapDetector(settings, alerts_max=alerts_max)

    def before(self, key: EventKey, at: datetime) -> Iterable[EventDraft]:
        """Return that the alert settled before."""
        return self._detector.settle(key, at)

    def take(self, event: Event, now: datetime) -> tuple[Event, Iterable[EventDraft]]:
        """Mark the event of an alert that flaps, and tell when it begins to."""
        del now  # an event's own time says whether it flaps
        step = self._detector.observe(event)
        assert step.event is not None, "an event that was observed goes on"
        return step.event, step.drafts

    def tick(self, now: datetime) -> Iterable[EventDraft]:
        """Return what settled."""
        return self._detector.tick(now)

    def snapshot(self) -> Any:
        """Return all state."""
        return self._detector.snapshot()

    def restore(self, data: Any) -> None:
        """Become what a snapshot says."""
        self._detector.restore(data)

    def snapshot_alert(self, key: EventKey) -> Any:
        """Return what is kept of one alert."""
        return self._detector.snapshot_alert(key)

    def restore_alert(self, key: EventKey, data: Any) -> None:
        """Take over one alert."""
        self._detector.restore_alert(key, data)

    def __len__(self) -> int:
        return len(self._detector)


class SilenceStage:
    """Marks events that silences suppress, and tells what is owed when a silence ends.

    Until silences were given once, none holds, and nothing is owed: what an earlier process held
    back is not told because this one has not heard of its silence yet.

    Args:
        held_max: How many alerts may be held back.
    """

    name = "silences"

    def __init__(self, *, held_max: int = 100_000) -> None:
        self._tracker = SuppressionTracker(held_max=held_max)
        self._silences: SilenceSet | None = None
        self._lets_out = False

    def holds(self, silences: SilenceSet, *, lets_out: bool = True) -> bool:
        """Whether these are the silences in force."""
        return silences is self._silences and lets_out == self._lets_out

    def replace(self, silences: SilenceSet, *, lets_out: bool = True) -> None:
        """Put silences in force; the same ones again cost nothing.

        Args:
            silences: All of them.
            lets_out: Whether what none of them holds back is told. Not so while they are older than
                those by which it was held back.
        """
        self._lets_out = lets_out
        if silences is not self._silences:
            self._silences = silences
            self._tracker.replace(silences)

    def before(self, key: EventKey, at: datetime) -> Iterable[EventDraft]:
        """Return nothing: what is owed is told by `tick`."""
        del key, at
        return ()

    def take(self, event: Event, now: datetime) -> tuple[Event, Iterable[EventDraft]]:
        """Mark the event if a silence holds for it now."""
        return self._tracker.mark(event, now), ()

    def tick(self, now: datetime) -> Iterable[EventDraft]:
        """Return what is owed."""
        return self._tracker.due(now) if self._lets_out else ()

    def snapshot(self) -> Any:
        """Return all state but the silences."""
        return self._tracker.snapshot()

    def restore(self, data: Any) -> None:
        """Become what a snapshot says."""
        self._tracker.restore(data)

    def snapshot_alert(self, key: EventKey) -> Any:
        """Return what is kept of one alert."""
        return self._tracker.snapshot_alert(key)

    def restore_alert(self, key: EventKey, data: Any) -> None:
        """Take over one alert."""
        self._tracker.restore_alert(key, data)

    def __len__(self) -> int:
        return len(self._tracker)


class Pipeline:
    """Leads the events of one company through stages, in order.

    An event is led through once it is decided, and what comes out is stored with the stages' state
    before it is told: `snapshot_alert` of its `event_key` is what it may have moved. What a stage
    tells besides is led through that stage too and those behind it.

    Args:
        stages: In the order in which they see an event.
        mint: Gives drafts their id and seq.
    """

    def __init__(self, stages: Sequence[Stage], mint: Mint) -> None:
        self._stages = tuple(stages)
        self._mint = mint

    def tell(self, draft: EventDraft, now: datetime) -> Iterator[Event]:
        """Yield the events of a draft that happened, as they go out."""
        key = event_key(draft)
        for place, stage in enumerate(self._stages):
            for earlier in stage.before(key, draft.occurred_at):
                yield from self._made(earlier, place, now)
        yield from self._made(draft, 0, now)

    def take(self, event: Event, now: datetime) -> Iterator[Event]:
        """Yield an event that has its id and seq already, and what follows it."""
        yield from self._pass(event, 0, now)

    def tick(self, now: datetime) -> Iterator[Event]:
        """Yield what is told because time passed."""
        for place, stage in enumerate(self._stages):
            for draft in stage.tick(now):
                yield from self._made(draft, place, now)

    def _made(self, draft: EventDraft, place: int, now: datetime) -> Iterator[Event]:
        event = self._mint(draft)
        if event is not None:
            yield from self._pass(event, place, now)

    def _pass(self, event: Event, place: int, now: datetime) -> Iterator[Event]:
        if place == len(self._stages):
            yield event
            return
        marked, drafts = self._stages[place].take(event, now)
        yield from self._pass(marked, place + 1, now)
        for draft in drafts:
            yield from self._made(draft, place, now)

    # --- what is kept

    def snapshot(self) -> dict[str, str]:
        """Return the state of each stage as JSON, by its name."""
        return {stage.name: _dump(stage.snapshot()) for stage in self._stages}

    def snapshot_alert(self, key: EventKey) -> str | None:
        """Return what the stages keep of one alert as JSON; None: nothing."""
        found = {stage.name: stage.snapshot_alert(key) for stage in self._stages}
        kept = {name: data for name, data in found.items() if data is not None}
        return _dump(kept) if kept else None

    def restorers(self) -> dict[str, Callable[[str], None]]:
        """Return what takes the parts of `snapshot`, by name. Each may raise `SnapshotError`."""
        return {stage.name: _restorer(stage) for stage in self._stages}

    def restore_alert(self, key: EventKey, text: str) -> None:
        """Take over one alert. Raises `ahrules.SnapshotError`, ValueError or TypeError."""
        kept = json.loads(text)
        for stage in self._stages:
            stage.restore_alert(key, kept.get(stage.name))

    def __len__(self) -> int:
        """Return how many alerts the stages keep something of, counted once a stage."""
        return sum(map(len, self._stages))


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _restorer(stage: Stage) -> Callable[[str], None]:
    return lambda text: stage.restore(json.loads(text))
