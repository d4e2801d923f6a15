"""Judges threshold rules over the stream of samples, and puts what they tell in the outbox."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.alerts._currency import Currency
from ahcollector.alerts._delivery import Delivery
from ahcollector.alerts._in_force import RulesInForce, SilencesInForce
from ahcollector.alerts._keeping import Keeper, Slot
from ahcollector.alerts._leaving import Leaving
from ahcollector.alerts._left import LeftUnits
from ahcollector.alerts._unit import AlertUnit
from ahcollector.alerts.base import AlertStateStore, UnitKey
from ahcollector.alerts.lists import HubLists
from ahcollector.alerts.settings import AlertSettings
from ahcollector.bus.base import SHARDS, SampleBatch, shard_for
from ahcollector.clock import AsyncClock
from ahcollector.departures.sieve import Sieve
from ahcollector.errors import AlertStateError, FencedAlertStateError, TemporaryStoreError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox.base import Outbox
from ahwire import EventType

__all__ = ["AlertEngine"]

_log = logging.getLogger("ahcollector.alerts")

_Act = Callable[[AlertUnit, Sequence[SampleBatch]], Iterator[None]]
_CLAIMS_MAX: Final = 3
_ALL_SHARDS: Final[Mapping[int, object]] = dict.fromkeys(range(SHARDS), True)
_ALERT_TYPES: Final = tuple(kind for kind in EventType if kind.value.startswith("alert."))


class AlertEngine:
    """Threshold rules for the shards of this process; a `SampleObserver`.

    There is one unit for each company in each shard. A unit is claimed at its store when its first
    batch comes or when its shard becomes this process' own, goes on where the owner before left it,
    and first finishes that one's events. What it decides is stored in one step with the states that
    decided it, then appended to the outbox, then forgotten at the store: killed or cancelled at any
    point, the next owner goes on with the same events. `observed` returns when what its batches
    decided is stored, so a batch that was acknowledged is either judged or will be judged again.

    Points move a state by their own time, newer ones only; a batch that is shown again, also by the
    next owner, moves nothing back. What the next decisions hang on (since when a condition holds,
    the points of a window) is stored before `observed` returns; what decides nothing (the newest
    value, the peak) each `state_interval_seconds` and at the end of `run`.

    While its store gives no answer, batches are refused for `patience_seconds`, so that they come
    again; then they pass, and what they would have decided is kept in memory and stored later. Only
    a crash or a stop within such a failure can lose a decision; a stop counts and logs it.

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
        sieve: Tells who left: their batches are not judged, and their alerts end with the reason
            `forgotten`, within a tick of the process that owns their shard. None: nobody leaves.
        lists: Knows of when the rules and silences are, so that a unit that is taken over is not
            judged by older ones than before. None: they are taken as they are.
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
        sieve: Sieve | None = None,
        lists: HubLists | None = None,
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
        self._store = store
        self._clock = clock
        self._tenures = tenures if tenures is not None else lambda: _ALL_SHARDS
        self._settings = settings if settings is not None else AlertSettings()
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._tick_interval_seconds = tick_interval_seconds
        self._state_interval_seconds = state_interval_seconds
        self._stop_seconds = stop_seconds
        self._keeper = Keeper(
            store=store,
            clock=clock,
            event_ids=event_ids,
            settings=self._settings,
            metrics=self._metrics,
        )
        self._left = LeftUnits(
            store=store,
            keeper=self._keeper,
            clock=clock,
            settings=self._settings,
            metrics=self._metrics,
        )
        self._currency = Currency(
            rules=rules,
            silences=silences,
            lists=lists,
            clock=clock,
            wait_seconds=self._settings.lists_wait_seconds,
            metrics=self._metrics,
        )
        self._leaving = Leaving(sieve=sieve, clock=clock, metrics=self._metrics)
        self._delivery = Delivery(store=store, outbox=outbox, clock=clock, metrics=self._metrics)
        self._slots: dict[UnitKey, Slot] = {}
        # The tenures under which the units of shards were asked for.
        self._listed: dict[int, object] = {}
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
        slot = self._slots.setdefault(key, Slot())

        def judge(unit: AlertUnit, living: Sequence[SampleBatch]) -> Iterator[None]:
            if unit.undelivered >= self._settings.waiting_max:
                self._drop("events_waiting", living)
                return
            now = self._clock.time()
            for batch in living:
                yield from unit.observe(batch, now)

        async with slot.lock:
            try:
                await self._work(key, slot, judge, group)
            except AlertStateError as error:
                self._refuse(key, slot, group, error)

    def _refuse(
        self, key: UnitKey, slot: Slot, group: list[SampleBatch], error: AlertStateError
    ) -> None:
        """Refuse batches whose decisions are not stored, unless that has gone on for too long."""
        steady = self._clock.monotonic()
        if slot.failing_since is None:
            slot.failing_since = steady
        # What a unit decided that another process owns by now is not in memory for later.
        if slot.is_fenced or steady - slot.failing_since < self._settings.patience_seconds:
            raise TemporaryStoreError(
                f"alerts of company {key.company_id} in shard {key.shard}: {error}"
            ) from error
        if slot.unit is None:
            self._drop("state_unavailable", group)
        else:
            slot.has_passed = True

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
            self._keeper.count_stopped(self._slots)

    async def tick(self) -> None:
        """Let time pass for all units of this process; failures are told by log and metrics."""
        await self._currency.look()
        owned = dict(self._tenures())
        is_well = await self._look_for_units(owned)
        try:
            await self._leaving.look()
            await self._left.look(self._slots)
        except AlertStateError as error:
            is_well = False
            self._tell_trouble(None, error)
        if self._rules() is None:
            return
        for key, slot in sorted(self._slots.items(), key=itemgetter(0)):
            async with slot.lock:
                try:
                    if key.shard in owned:
                        await self._tick(key, slot)
                    else:
                        await self._left.leave(key, slot)
                except AlertStateError as error:
                    self._tell_trouble(key, error)
            await anyio.lowlevel.checkpoint()
        self._left.bound(self._slots)
        if is_well and all(slot.failing_since is None for slot in self._slots.values()):
            self._trouble.is_over()

    async def forget_server(self, company_id: str, server_id: str) -> None:
        """Resolve the alerts of a server that was taken away, with reason `forgotten`.

        Whichever process owns them: it takes them up again from here. Its series begin anew where
        it sends again.

        Raises:
            AlertStateError: The store of states gives no answer, or the rules are not known yet.
        """
        key = UnitKey(shard=shard_for(server_id), company_id=company_id)
        if key not in self._slots and key not in await self._store.units([key.shard]):
            return

        def forget(unit: AlertUnit, _: Sequence[SampleBatch]) -> Iterator[None]:
            unit.forget(server_id, self._clock.time())
            return unit.flow()

        await self._forget(key, f"server {server_id}", forget)

    async def forget_company(self, company_id: str) -> None:
        """Resolve all alerts of a company that was taken away, as `forget_server` does.

        May be repeated; cancelled or failed, some of its servers may be forgotten already.

        Raises:
            AlertStateError: As `forget_server`.
        """

        def forget(unit: AlertUnit, _: Sequence[SampleBatch]) -> Iterator[None]:
            return unit.forget_all(self._clock.time())

        known = {*self._slots, *await self._store.units(range(SHARDS))}
        for key in sorted(key for key in known if key.company_id == company_id):
            await self._forget(key, f"company {company_id}", forget)

    async def _forget(self, key: UnitKey, what: str, forget: _Act) -> None:
        if self._rules() is None:
            raise AlertStateError(
                f"alerts of {what} cannot be ended: the rules are not known yet, the hub has not "
                "answered; try again later"
            )
        slot = self._slots.setdefault(key, Slot())
        async with slot.lock:
            await self._work(key, slot, forget)

    async def save(self) -> None:
        """Store a whole snapshot of every unit that moved since its last one."""
        for key, slot in list(self._slots.items()):
            async with slot.lock:
                if slot.unit is None or slot.is_fenced or not slot.unit.is_moved:
                    continue
                try:
                    await self._keeper.save(key, slot, slot.unit, whole=True)
                    await self._delivery.deliver(slot.unit)
                except FencedAlertStateError:
                    # The states are another process' to keep.
                    slot.is_fenced = True
                    self._keeper.count_lost(key, slot)
                except AlertStateError as error:
                    self._tell_trouble(key, error)

    async def _look_for_units(self, owned: Mapping[int, object]) -> bool:
        """Find the units of shards that have become this process' own; False: nobody can tell."""
        # Also of one that was away between two looks, in which another process may have begun some.
        self._listed = {
            shard: tenure
            for shard, tenure in self._listed.items()
            if shard in owned and owned[shard] == tenure
        }
        fresh = owned.keys() - self._listed.keys()
        if not fresh:
            return True
        try:
            for key in await self._store.units(fresh):
                self._slots.setdefault(key, Slot())
        except AlertStateError as error:
            self._metrics.inc(names.RULES_STATE_FAILURES, call="units")
            self._tell_trouble(None, error)
            return False
        self._listed = dict(owned)
        return True

    async def _tick(self, key: UnitKey, slot: Slot) -> None:
        def look(unit: AlertUnit, _: Sequence[SampleBatch]) -> Iterator[None]:
            return unit.tick(self._clock.time())

        await self._work(key, slot, look)
        unit = slot.unit
        assert unit is not None, "work leaves a unit"
        for reason, count in unit.drops().items():
            self._metrics.inc(names.RULES_POINTS_DROPPED, count, reason=reason)
        rules = self._rules()
        is_of_no_use = unit.is_empty and rules is not None and not rules.metrics(key.company_id)
        if is_of_no_use and await self._keeper.removed(key, slot, unit):
            del self._slots[key]

    # --- one step of a unit

    async def _work(
        self, key: UnitKey, slot: Slot, act: _Act, batches: Sequence[SampleBatch] = ()
    ) -> None:
        """Do something to a unit, store what it decided, and deliver what is stored."""
        tenure = self._tenures().get(key.shard)
        if tenure is not None and tenure != slot.tenure:
            # Another process may have owned it since: what is in memory may be of before.
            slot.tenure, slot.is_fenced = tenure, slot.unit is not None
        for _ in range(_CLAIMS_MAX):
            unit = await self._keeper.claimed(key, slot)
            await self._currency.refresh(slot, unit)
            # Behind the claim: whoever left noted it before another process claimed the unit to end
            # their alerts, so what is judged here is seen there, or refused here and judged anew.
            living = await self._leaving.living(unit, batches)
            for _step in act(unit, living):
                await anyio.lowlevel.checkpoint()
            due = self._clock.monotonic() - slot.saved_at >= self._state_interval_seconds
            if unit.is_dirty or (due and unit.is_moved):
                try:
                    await self._keeper.save(key, slot, unit, whole=due)
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

    def _undelivered(self) -> float:
        return float(sum(slot.undelivered for slot in self._slots.values()))

    def _series(self) -> float:
        mine = [slot.unit for slot in self._slots.values() if slot.left_at is None]
        return float(sum(unit.series_count for unit in mine if unit is not None))
