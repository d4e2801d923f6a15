"""Judges threshold rules over the stream of samples, and puts what they tell in the outbox."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.alerts._delivery import Delivery
from ahcollector.alerts._in_force import RulesInForce, SilencesInForce
from ahcollector.alerts._unit import AlertUnit
from ahcollector.alerts.base import AlertStateStore, UnitKey
from ahcollector.alerts.settings import AlertSettings
from ahcollector.bus.base import SHARDS, SampleBatch, shard_for
from ahcollector.clock import AsyncClock
from ahcollector.errors import AlertStateError, FencedAlertStateError, TemporaryStoreError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox.base import Outbox
from ahwire import EventType

__all__ = ["AlertEngine"]

_log = logging.getLogger("ahcollector.alerts")

_CLAIMS_MAX: Final = 3
_ALL_SHARDS: Final[Mapping[int, object]] = dict.fromkeys(range(SHARDS), True)
_ALERT_TYPES: Final = tuple(kind for kind in EventType if kind.value.startswith("alert."))


@attrs.define(eq=False)
class _Slot:
    """A unit that this process has or wants, and who may work on it now."""

    lock: anyio.Lock = attrs.field(factory=anyio.Lock)
    unit: AlertUnit | None = None
    tenure: object = None
    is_fenced: bool = False
    failing_since: float | None = None
    saved_at: float = float("-inf")


class AlertEngine:
    """Threshold rules for the shards of this process; a `SampleObserver`.

    There is one unit for each company in each shard. A unit is claimed at its store when its first
    batch comes or when its shard becomes this process' own, goes on where the owner before left it,
    and first finishes that one's events. What it decides is stored in one step with the states that
    decided it, then appended to the outbox, then forgotten at the store: killed or cancelled at any
    point, the next owner goes on with the same events. `observed` returns when what its batches
    decided is stored, so a batch that was acknowledged is either judged or will be judged again.

    Points move a state by their own time, newer ones only; a batch that is shown again, also by the
    next owner, moves nothing back. Counters that decide nothing yet (since when a condition holds,
    the points of a window) are stored each `state_interval_seconds` and at the end of `run`: killed
    in between, an alert can open that much later.

    While its store gives no answer, batches are refused for `patience_seconds`, so that they come
    again; then they pass, and what they would have decided is kept in memory and stored later. Only
    a crash within such a failure can lose a decision.

    Args:
        rules: Returns the rules in force (`RulePuller.current`); None: not known yet, and nothing
            is judged.
        silences: Returns the silences in force; None: not known yet, and none holds.
        store: Where states outlive the process.
        outbox: Where events go.
        clock: Wall and steady time.
        event_ids: Makes event ids, each above the last (`UUID7Generator.next`).
        tenures: Returns the shards that are this process' own now, each with what its tenure is
            known by: when that is another one, the unit is claimed anew. None: all shards are, as
            long as the process lives.
        settings: How it is judged.
        metrics: Where to count.
        tick_interval_seconds: Pause between two looks at reminders, silent series and silences.
        state_interval_seconds: How old a stored counter may become.
        stop_seconds: How long the last snapshot may take when `run` is cancelled.
    """

    def __init__(
        self,
        *,
        rules: Callable[[], RulesInForce | None],
        silences: Callable[[], SilencesInForce | None],
        store: AlertStateStore,
        outbox: Outbox,
        clock: AsyncClock,
        event_ids: Callable[[], str],
        tenures: Callable[[], Mapping[int, object]] | None = None,
        settings: AlertSettings | None = None,
        metrics: Metrics | None = None,
        tick_interval_seconds: float = 10.0,
        state_interval_seconds: float = 30.0,
        stop_seconds: float = 5.0,
    ) -> None:
        for name, value in (
            ("tick_interval_seconds", tick_interval_seconds),
            ("state_interval_seconds", state_interval_seconds),
            ("stop_seconds", stop_seconds),
        ):
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        self._rules = rules
        self._silences = silences
        self._store = store
        self._clock = clock
        self._event_ids = event_ids
        self._tenures = tenures if tenures is not None else lambda: _ALL_SHARDS
        self._settings = settings if settings is not None else AlertSettings()
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._tick_interval_seconds = tick_interval_seconds
        self._state_interval_seconds = state_interval_seconds
        self._stop_seconds = stop_seconds
        self._delivery = Delivery(store=store, outbox=outbox, clock=clock, metrics=self._metrics)
        self._slots: dict[UnitKey, _Slot] = {}
        self._listed: set[int] = set()
        self._trouble = Trouble(
            _log, "the states of alerts cannot be kept", "the states of alerts are kept again"
        )
        for kind in _ALERT_TYPES:
            self._metrics.inc(names.EVENTS_LOST, 0, type=kind.value)
        self._metrics.watch(names.RULES_EVENTS_RETRY, self._undelivered)
        self._metrics.watch(names.RULES_SERIES, self._series)

    # --- from the stream

    async def observed(self, batches: Sequence[SampleBatch]) -> None:
        """Judge batches; see `SampleObserver.observed`.

        Raises:
            TemporaryStoreError: The store of states gave no answer; the batches are to come again.
        """
        groups: dict[UnitKey, list[SampleBatch]] = {}
        for batch in batches:
            key = UnitKey(shard=shard_for(batch.server_id), company_id=batch.company_id)
            groups.setdefault(key, []).append(batch)
        rules = self._rules()
        for key, group in groups.items():
            if rules is None:
                self._drop("rules_unknown", group)
            elif key in self._slots or rules.metrics(key.company_id):
                await self._observe(key, group)

    async def _observe(self, key: UnitKey, group: list[SampleBatch]) -> None:
        slot = self._slots.setdefault(key, _Slot())

        def judge(unit: AlertUnit) -> Iterator[None]:
            if unit.undelivered >= self._settings.waiting_max:
                self._drop("events_waiting", group)
                return
            now = self._clock.time()
            for batch in group:
                yield from unit.observe(batch, now)

        async with slot.lock:
            try:
                await self._work(key, slot, judge)
            except AlertStateError as error:
                self._refuse(key, slot, group, error)

    def _refuse(
        self, key: UnitKey, slot: _Slot, group: list[SampleBatch], error: AlertStateError
    ) -> None:
        """Refuse batches whose decisions are not stored, unless that has gone on for too long."""
        steady = self._clock.monotonic()
        if slot.failing_since is None:
            slot.failing_since = steady
        if steady - slot.failing_since < self._settings.patience_seconds:
            raise TemporaryStoreError(
                f"alerts of company {key.company_id} in shard {key.shard}: {error}"
            ) from error
        if slot.unit is None:
            self._drop("state_unavailable", group)

    # --- by the clock

    async def run(self) -> None:
        """Tick at once and each interval, until cancelled; then store everything once more."""
        try:
            while True:
                await self.tick()
                await self._clock.sleep(self._tick_interval_seconds)
        finally:
            with anyio.move_on_after(self._stop_seconds, shield=True):
                await self.save()

    async def tick(self) -> None:
        """Let time pass for all units of this process; failures are told by log and metrics."""
        owned = frozenset(self._tenures())
        is_well = await self._look_for_units(owned)
        if self._rules() is None:
            return
        for key, slot in sorted(self._slots.items(), key=itemgetter(0)):
            async with slot.lock:
                try:
                    if key.shard in owned:
                        await self._tick(key, slot)
                    else:
                        await self._leave(key, slot)
                except AlertStateError as error:
                    self._tell_trouble(key, error)
            await anyio.lowlevel.checkpoint()
        if is_well and all(slot.failing_since is None for slot in self._slots.values()):
            self._trouble.is_over()

    async def save(self) -> None:
        """Store a whole snapshot of every unit that moved since its last one."""
        for key, slot in list(self._slots.items()):
            async with slot.lock:
                if slot.unit is None or slot.is_fenced or not slot.unit.is_moved:
                    continue
                try:
                    await self._save(key, slot, slot.unit, whole=True)
                    await self._delivery.deliver(slot.unit)
                except AlertStateError as error:
                    self._tell_trouble(key, error)

    async def _look_for_units(self, owned: frozenset[int]) -> bool:
        """Find the units of shards that have become this process' own; False: nobody can tell."""
        self._listed &= owned
        fresh = owned - self._listed
        if not fresh:
            return True
        try:
            for key in await self._store.units(fresh):
                self._slots.setdefault(key, _Slot())
        except AlertStateError as error:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="units")
            self._tell_trouble(None, error)
            return False
        self._listed |= fresh
        return True

    async def _tick(self, key: UnitKey, slot: _Slot) -> None:
        def look(unit: AlertUnit) -> Iterator[None]:
            unit.tick(self._clock.time())
            yield

        await self._work(key, slot, look)
        unit = slot.unit
        assert unit is not None, "work leaves a unit"
        for reason, count in unit.drops().items():
            self._metrics.inc(names.RULES_POINTS_DROPPED, count, reason=reason)
        rules = self._rules()
        if unit.is_empty and rules is not None and not rules.metrics(key.company_id):
            await self._store.remove(key, unit.epoch)
            del self._slots[key]

    async def _leave(self, key: UnitKey, slot: _Slot) -> None:
        """Let a unit go whose shard is another's now, with its newest counters if they may be."""
        del self._slots[key]
        if slot.unit is not None and slot.unit.is_moved and not slot.is_fenced:
            try:
                await self._save(key, slot, slot.unit, whole=True)
            except FencedAlertStateError:
                return  # the new owner was quicker

    # --- one step of a unit

    async def _work(
        self, key: UnitKey, slot: _Slot, act: Callable[[AlertUnit], Iterator[None]]
    ) -> None:
        """Do something to a unit, store what it decided, and deliver what is stored."""
        tenure = self._tenures().get(key.shard)
        if tenure is not None and tenure != slot.tenure:
            # Another process may have owned it since: what is in memory may be of before.
            slot.tenure, slot.is_fenced = tenure, slot.unit is not None
        for _ in range(_CLAIMS_MAX):
            unit = await self._claimed(key, slot)
            rules = self._rules()
            assert rules is not None, "nothing is judged before there are rules"
            unit.refresh(rules, self._silences(), self._clock.time())
            for _step in act(unit):
                await anyio.lowlevel.checkpoint()
            due = self._clock.monotonic() - slot.saved_at >= self._state_interval_seconds
            if unit.is_dirty or (due and unit.is_moved):
                try:
                    await self._save(key, slot, unit, whole=due)
                except FencedAlertStateError:
                    # Another process owned it meanwhile: what it decided counts, and not ours.
                    slot.is_fenced = True
                    continue
            slot.failing_since = None
            await self._delivery.deliver(unit)
            return
        raise AlertStateError(
            f"the alerts of company {key.company_id} in shard {key.shard} are taken over again and "
            "again: two processes own one shard"
        )

    async def _claimed(self, key: UnitKey, slot: _Slot) -> AlertUnit:
        """Return the unit, after taking it over where it is not this process' yet."""
        if slot.unit is not None and not slot.is_fenced:
            return slot.unit
        try:
            image = await self._store.claim(key)
        except AlertStateError:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="claim")
            raise
        if image.damaged:
            self._metrics.inc(names.RULES_STATE_FAILURES, image.damaged, call="damaged")
        if slot.unit is not None and image.is_empty:
            # The store has lost everything, and memory has not.
            slot.unit.adopt(image.epoch)
        elif slot.unit is not None and image.epoch == slot.unit.epoch + 1:
            # Nobody claimed it in between: memory has what is stored, and more.
            slot.unit.epoch = image.epoch
        else:
            unit = AlertUnit(
                key=key,
                settings=self._settings,
                event_ids=self._event_ids,
                lost=self._lose,
            )
            # A large one takes a second, in which others must have their turns.
            faults = await anyio.to_thread.run_sync(unit.restore, image)
            if faults:
                await self._tell_faults(key, unit, faults)
            slot.unit = unit
        slot.is_fenced = False
        slot.saved_at = self._clock.monotonic()
        return slot.unit

    async def _save(self, key: UnitKey, slot: _Slot, unit: AlertUnit, *, whole: bool) -> None:
        """Store what is not stored yet; a whole snapshot where one is due."""
        pieces = None if whole else unit.pieces()
        base: dict[str, str] | None = None
        if pieces is None:
            parts: dict[str, list[str]] = {}
            for part, text in unit.base_parts():
                parts.setdefault(part, []).append(text)
                await anyio.lowlevel.checkpoint()
            base = {part: "".join(texts) for part, texts in parts.items()}
        change = unit.change(base=base, pieces=pieces or {})
        try:
            await self._store.commit(key, unit.epoch, change)
        except AlertStateError:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="commit")
            raise
        unit.stored(change)
        if base is not None:
            slot.saved_at = self._clock.monotonic()

    async def _tell_faults(self, key: UnitKey, unit: AlertUnit, faults: list[str]) -> None:
        """What was stored is whole and cannot be used: another version's, most likely."""
        self._metrics.inc(names.RULES_STATE_FAILURES, len(faults), call="damaged")
        _log.error(
            "states of alerts cannot be used and are kept aside: their alerts may open again",
            extra={
                "company_id": key.company_id,
                "shard": key.shard,
                "faults": len(faults),
                "error": faults[0],
            },
        )
        await self._store.set_aside(key, unit.epoch)
        unit.is_whole_due = True

    # --- what is told of it

    def _tell_trouble(self, key: UnitKey | None, error: AlertStateError) -> None:
        extra = {"error": str(error)}
        if key is not None:
            extra |= {"company_id": key.company_id, "shard": str(key.shard)}
            slot = self._slots.get(key)
            if slot is not None and slot.failing_since is None:
                slot.failing_since = self._clock.monotonic()
        self._trouble.goes_on(self._clock.monotonic(), extra)

    def _drop(self, reason: str, batches: Sequence[SampleBatch]) -> None:
        points = sum(batch.samples for batch in batches)
        self._metrics.inc(names.RULES_POINTS_DROPPED, points, reason=reason)

    def _lose(self, kind: EventType) -> None:
        self._metrics.inc(names.EVENTS_LOST, type=kind.value)

    def _undelivered(self) -> float:
        units = [slot.unit for slot in self._slots.values() if slot.unit is not None]
        return float(sum(unit.undelivered for unit in units))

    def _series(self) -> float:
        units = [slot.unit for slot in self._slots.values() if slot.unit is not None]
        return float(sum(unit.series_count for unit in units))
