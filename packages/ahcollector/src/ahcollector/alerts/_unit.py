"""One company in one shard: its evaluator, its stages, and what of both is not stored yet.

Pure: what it decides is stored and told by the engine, which waits in between.

Law: a decision stays in `new`, and what it moved in the dirty names, until `stored` is called for a
change that carries them. So a change that may or may not have been stored is made again, with the
same events and the states as they are by then.

What is judged is told in steps: what was not told yet stands in `_coming`, in order, whoever left
in between, and no state is stored before it is told.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

from ahcollector.alerts._in_force import RulesInForce, SilencesInForce
from ahcollector.alerts._known import KnownSeries
from ahcollector.alerts._pace import STEP_WORK, Pace
from ahcollector.alerts._parts import UnitParts
from ahcollector.alerts._unjudged import UnjudgedLog
from ahcollector.alerts.base import AlertChange, AlertImage, UnitKey
from ahcollector.alerts.lists import ListTimes
from ahcollector.alerts.settings import AlertSettings
from ahcollector.alerts.stages import FlapStage, Pipeline, SilenceStage, Stage
from ahcollector.bus.base import SampleBatch
from ahrules import (
    Evaluator,
    EventDraft,
    Transition,
    event_key,
)
from ahwire import DecodeError, Event, EventType, next_seq

__all__ = ["AlertUnit"]

_log = logging.getLogger("ahcollector.alerts")

_STEP_SERIES: Final = 100
_LARGE: Final = 500


class AlertUnit:
    """Judges the series of one unit; for one task at a time.

    Args:
        key: Which one.
        settings: How.
        event_ids: Makes event ids, each above the last.
        lost: Told of an event that breaks the contract of events.

    Attributes:
        epoch: What its commits carry.
        new: Events decided, not stored yet, in order.
        waiting: Events stored, not in the outbox yet, in order.
        appended: Ids of those that the outbox has and the store still keeps.
        is_moved: Whether anything moved since the last whole snapshot.
        is_whole_due: Whether the next change must be a whole snapshot.
        departures_seen: Of which version of the departures its servers were last held against.
    """

    def __init__(
        self,
        *,
        key: UnitKey,
        settings: AlertSettings,
        event_ids: Callable[[], str],
        lost: Callable[[EventType], None],
    ) -> None:
        self.key = key
        self._settings = settings
        self._event_ids = event_ids
        self._lost = lost
        self._evaluator = Evaluator(
            company_id=key.company_id,
            no_data_after_seconds=settings.no_data_after_seconds,
            ahead_seconds=settings.ahead_seconds,
            bounds=settings.bounds,
        )
        self._silences = SilenceStage(held_max=settings.held_max)
        stages: list[Stage] = [self._silences]
        if settings.flapping is not None:
            stages.insert(0, FlapStage(settings.flapping, alerts_max=settings.bounds.series_max))
        self._pipeline = Pipeline(stages, self._mint)
        self._rules: RulesInForce | None = None
        self._metrics: AbstractSet[str] = frozenset()
        self._window_metrics: frozenset[str] = frozenset()
        self._known = KnownSeries(settings.bounds.series_max)
        self._parts = UnitParts(self._evaluator, self._pipeline)
        self._seq = 0
        self._now_ms = 0
        self._counted: dict[str, int] = {}
        self._unjudged = UnjudgedLog(key)
        self._coming: deque[Iterator[Event]] = deque()
        self._pace = Pace()
        self.epoch = 0
        self.new: list[Event] = []
        self.waiting: dict[str, Event] = {}
        self.appended: dict[str, None] = {}
        self.is_moved = False
        self.is_whole_due = False
        self.departures_seen: str | None = None

    # --- what is judged

    def is_current(
        self,
        rules: RulesInForce | None,
        silences: SilencesInForce | None,
        *,
        lets_out: bool = True,
    ) -> bool:
        """Whether `refresh` would change nothing."""
        return (rules is None or rules is self._rules) and (
            silences is None or self._silences.holds(silences.silences, lets_out=lets_out)
        )

    def is_large(self, rules: RulesInForce) -> bool:
        """Whether a change of the rules takes so long that it must not hold up others."""
        held = self._evaluator.watches_count + self.series_count + len(self._pipeline)
        return held + rules.count + self._pace.silences > _LARGE

    def refresh(
        self,
        rules: RulesInForce | None,
        silences: SilencesInForce | None,
        now: float,
        *,
        lets_out: bool = True,
    ) -> None:
        """Judge by these from now on, in any thread that has the unit; `flow` tells what ends.

        Args:
            rules: The rules; None: those that there are, restored ones too.
            silences: The silences; None: as with the rules.
            now: When this happens.
            lets_out: Whether what none of the silences holds back is told.
        """
        if silences is not None:
            self._silences.replace(silences.silences, lets_out=lets_out)
            self._pace.silences = silences.silences.count_of(self.key.company_id)
        if rules is None or rules is self._rules:
            return
        company_id = self.key.company_id
        told = self._evaluator.set_rules(rules.of(company_id), now)
        self._rules, self._metrics = rules, rules.metrics(company_id)
        self._window_metrics = self._evaluator.window_metrics
        self._unjudged = UnjudgedLog(self.key)
        # Pieces that are stored from now on are of these rules, and must not meet a base of others.
        self.is_whole_due = self.is_moved = True
        self._tell(told, now)

    @property
    def judged_by(self) -> ListTimes:
        """Of when the newest lists are that it was judged by."""
        return self._parts.lists

    @judged_by.setter
    def judged_by(self, lists: ListTimes) -> None:
        self._parts.lists = lists

    def observe(self, batch: SampleBatch, now: float) -> Iterator[None]:
        """Judge the points of a batch; those that are not newer move nothing.

        Yields after every so much work; the rest may be left for when the batch comes again.
        """
        evaluator = self._evaluator
        server_id = batch.server_id
        yield from self.flow()
        evaluator.host_seen(server_id, batch.received_at_ms / 1000)
        for number, stored in enumerate(batch.series):
            if number % _STEP_SERIES == 0:
                yield
            if stored.labels[0][1] not in self._metrics:
                continue
            self.is_moved = True
            series = self._known.of(stored)
            has_windows = series.name in self._window_metrics
            for at_ms, value in sorted(stored.points):
                told = evaluator.observe(server_id, series, at_ms / 1000, value)
                if has_windows:
                    self._parts.journal.note(evaluator, server_id, series, at_ms / 1000, value)
                if told:
                    self._tell(told, now)
                    yield from self.flow()
                if self._pace.is_rest_due(evaluator.work):
                    yield

    def tick(self, now: float) -> Iterator[None]:
        """Let time pass; yields after every so much work."""
        yield from self.flow()
        for told in self._evaluator.tick_steps(now, work_max=STEP_WORK):
            self._tell(told, now)
            yield from self.flow()
            yield
        self._now_ms = int(now * 1000)
        self._coming.append(self._pipeline.tick(_moment(now)))
        yield from self.flow()

    def forget(self, server_id: str, now: float) -> None:
        """Take a server away: its alerts end, its series leave; `flow` tells it."""
        self._tell(self._evaluator.forget(server_id, now), now)
        self.is_whole_due = self.is_moved = True

    def forget_all(self, now: float) -> Iterator[None]:
        """Take all servers away; yields after each."""
        for server_id in self._evaluator.servers:
            self.forget(server_id, now)
            yield from self.flow()
            yield

    def flow(self) -> Iterator[None]:
        """Tell what was judged; yields after every so many events, the rest may be left for later.

        What is left is told before anything is stored.
        """
        while self._coming:
            for event in self._coming[0]:
                self._parts.moved_alerts[event_key(event)] = None
                self.new.append(event)
                self.is_moved = True
                self._pace.told()
                if self._pace.is_rest_due(self._evaluator.work):
                    yield
            self._coming.popleft()

    def departed(self, server_id: str, at_ms: int, now: float) -> None:
        """Take away a server that left at `at_ms`, unless it is known to have come back since."""
        if not self._parts.returned.knows(server_id, at_ms):
            self.forget(server_id, now)

    def returned(self, server_id: str, at_ms: int, now: float) -> None:
        """Note that a server which left at `at_ms` sends again; what it was before ends first."""
        if not self._parts.returned.knows(server_id, at_ms):
            self.forget(server_id, now)
            self._parts.returned.note(server_id, at_ms)

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers of which series are held."""
        return self._evaluator.servers

    def _tell(self, transitions: Iterable[Transition], now: float) -> None:
        self._now_ms = int(now * 1000)
        for transition in transitions:
            self._parts.moved_series[transition.server_id, transition.series_key] = None
            try:
                draft = transition.draft()
            except ValueError as error:
                self._lose(EventType(f"alert.{transition.kind}"), error)
                continue
            self._coming.append(self._pipeline.tell(draft, _moment(now)))

    def _mint(self, draft: EventDraft) -> Event | None:
        seq = next_seq(self._now_ms, self._seq)
        try:
            event = draft.event(event_id=self._event_ids(), seq=seq)
        except DecodeError as error:
            self._lose(draft.type, error)
            return None
        self._seq = seq
        return event

    def _lose(self, kind: EventType, error: Exception) -> None:
        _log.error(
            "an event of a rule cannot be told",
            extra={"company_id": self.key.company_id, "type": kind.value, "error": str(error)},
        )
        self._lost(kind)

    # --- what is stored

    @property
    def is_dirty(self) -> bool:
        """Whether a decision is not stored yet, or what the next ones hang on."""
        return bool(self._coming or self.new) or self._parts.is_dirty

    @property
    def undelivered(self) -> int:
        """How many events are on their way to the outbox."""
        return len(self.new) + len(self.waiting) - len(self.appended)

    @property
    def series_count(self) -> int:
        """How many series are held."""
        return self._evaluator.series_count

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be missed."""
        return not (
            self.series_count or len(self._pipeline) or self._coming or self.new or self.waiting
        )

    def base_parts(self) -> Iterator[tuple[str, str]]:
        """Yield a whole snapshot in parts, each made when it is asked for.

        Nothing may move the unit in between.
        """
        deque(self.flow(), maxlen=0)
        yield from self._parts.whole()

    def pieces(self) -> dict[str, str | None] | None:
        """Return what moved, by name; None when that needs a whole snapshot."""
        deque(self.flow(), maxlen=0)
        return None if self.is_whole_due else self._parts.pieces()

    def change(self, *, base: dict[str, str] | None, pieces: dict[str, str | None]) -> AlertChange:
        """Return what is to be stored."""
        return AlertChange(seq=self._seq, base=base, pieces=pieces, intents=tuple(self.new))

    def stored(self, change: AlertChange) -> None:
        """Note that a change is stored; nothing moved since it was made."""
        for event in change.intents:
            self.waiting[event.event_id] = event
        self.new.clear()
        self._parts.stored(whole=change.base is not None)
        if change.base is not None:
            self.is_moved = self.is_whole_due = False

    def told(self, event_ids: Iterable[str]) -> None:
        """Note that the outbox has events and the store keeps them no more."""
        for event_id in event_ids:
            self.waiting.pop(event_id, None)
            self.appended.pop(event_id, None)

    def adopt(self, epoch: int) -> None:
        """Go on under a new epoch where the store has forgotten everything: it is told anew."""
        self.epoch = epoch
        self.new = [*self.waiting.values(), *self.new]
        self.waiting.clear()
        self.appended.clear()
        self.is_whole_due = self.is_moved = True

    def restore(self, image: AlertImage) -> list[str]:
        """Become what is stored, as far as it can be read; return what could not be.

        Only for a unit that is new. `refresh` comes next.
        """
        self.epoch, self._seq = image.epoch, image.seq
        self.waiting = {event.event_id: event for event in image.intents}
        faults = self._parts.restore(image)
        # Until `refresh` brings others, it is judged by the rules that are stored with it.
        self._metrics = self._evaluator.metrics
        self._window_metrics = self._evaluator.window_metrics
        self.is_moved = True
        return faults

    def drops(self) -> dict[str, int]:
        """Return what was not judged since this was last asked, by reason."""
        now = dict(self._evaluator.drops)
        fresh = {reason: count - self._counted.get(reason, 0) for reason, count in now.items()}
        self._counted = now
        self._unjudged.name(self._evaluator.take_unjudged())
        return {reason: count for reason, count in fresh.items() if count}


def _moment(unix_seconds: float) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)
