"""Leads what happened to agents through silences and the group of downs, on its way to the outbox.

States of a company are kept with the events that they decide in one step of an `AlertStateStore`:
a unit for each company, in the shard behind those of the bus. The way of a transition:

1. Its company's unit is claimed, and it is judged. The seq of each agent's newest transition is
   part of the states: one that was taken already, by whichever process, moves nothing.
2. The states are committed together with the events, under the epoch of the claim. Whoever claimed
   the unit since has made this void, and is asked for the same transitions.
3. The events are appended to the outbox, then forgotten at the store.
4. The transition's intent is confirmed at presence.

After a crash between two of these the next process goes on: what was committed comes out of its
claim, and what was not confirmed is handed out again. So which process has its turn
(`DetectorTurn`) is a question of peace, and none of right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import islice
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.alerts._in_force import SilencesInForce
from ahcollector.alerts.base import AlertStateStore, UnitKey
from ahcollector.bus.base import SHARDS
from ahcollector.clock import AsyncClock
from ahcollector.detector._company import CompanyAgents
from ahcollector.detector._step import Step
from ahcollector.detector._together import together
from ahcollector.detector._told import count, tell
from ahcollector.detector.carrier import PAGE, Carried, Fetch
from ahcollector.detector.turn import DetectorTurn
from ahcollector.errors import AlertStateError, FencedAlertStateError, OutboxError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import Presence, Transition, TransitionKind
from ahrules import GROUP_DOWN_DEFAULTS
from ahwire import Event, EventType
from ahwire.hub import GroupDownSettings

__all__ = ["AGENTS_SHARD", "AgentEventStage"]

_log = logging.getLogger("ahcollector.detector")

AGENTS_SHARD: Final = SHARDS
"""What stands in the place of a shard in the `UnitKey` of a company's agents."""

_APPEND_MAX: Final = 500
_RENEW_EVERY: Final = 50
_AT_ONCE: Final = 8
_GROUP_TYPES: Final = (EventType.GROUP_DOWN, EventType.GROUP_UP)


class AgentEventStage:
    """An `IntentCarrier`: silences, then groups; see the module's text.

    Individual downs go out at once; a group is told when it forms, and its further members under
    it. When a silence ends, or a group, an agent that is still down is told once more, with a
    reason and an event id of its own.

    While its store or the outbox gives no answer, transitions stay with presence and come later; at
    most a page of them is judged and waits here for each company.

    Args:
        presence: Whose intents they are; also how many agents a company has.
        store: Where states are kept. It may be the one of an `AlertEngine`.
        outbox: Where events go.
        clock: Wall and steady time.
        event_ids: Makes event ids, each above the last (`UUID7Generator.next`).
        silences: Returns the silences in force (`SilencePuller.current`); None: not known yet, and
            none holds.
        settings: Returns when a company's agents are a group; None: not known, and what was last
            known is good, over restarts too. Asked at each step, so it may change at any time.
        defaults: Returns what is good for a company of which nothing was ever known.
        turn: Chooses one of several processes; None: this one is alone.
        metrics: Where to count.
        held_max: Agents of one company that silences may hold back.
    """

    def __init__(
        self,
        *,
        presence: Presence,
        store: AlertStateStore,
        outbox: Outbox,
        clock: AsyncClock,
        event_ids: Callable[[], str],
        silences: Callable[[], SilencesInForce | None] = lambda: None,
        settings: Callable[[str], GroupDownSettings | None] = lambda _: None,
        defaults: Callable[[str], GroupDownSettings] = lambda _: GROUP_DOWN_DEFAULTS,
        turn: DetectorTurn | None = None,
        metrics: Metrics | None = None,
        held_max: int = 100_000,
    ) -> None:
        self._presence = presence
        self._store = store
        self._outbox = outbox
        self._clock = clock
        self._event_ids = event_ids
        self._silences = silences
        self._settings = settings
        self._defaults = defaults
        self._turn = turn
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._held_max = held_max
        self._companies: dict[str, CompanyAgents] = {}
        self._tenure: int | None = None
        self._is_listed = False
        self._waiting = Trouble(_log, "events wait for the outbox", "the outbox takes events again")
        self._keeping = Trouble(
            _log,
            "events of agents wait: what silences and groups are cannot be kept",
            "what silences and groups of agents are is kept again",
        )
        for kind in _GROUP_TYPES:
            self._metrics.inc(names.EVENTS_LOST, 0, type=kind.value)

    # --- whose turn it is

    @property
    def takes_turns(self) -> bool:
        """Whether other processes may have the turn."""
        return self._turn is not None

    async def is_mine(self) -> bool:
        """Whether this process works the events of agents now."""
        try:
            tenure = 0 if self._turn is None else await self._turn.hold()
        except AlertStateError as error:
            self._fail("turn", error)
            tenure = None
        if tenure != self._tenure:
            # What was not stored is no loss: it is asked of presence and decided again.
            self._companies.clear()
            self._tenure, self._is_listed = tenure, False
        self._metrics.set(names.DETECTOR_TURN, float(tenure is not None))
        return tenure is not None

    async def drop(self) -> None:
        """Let another have the turn."""
        if self._turn is not None:
            self._tenure = None
            try:
                await self._turn.drop()
            except AlertStateError as error:
                _log.warning("the detector's turn ends by itself", extra={"error": str(error)})

    # --- the way of a transition

    async def carry(self, fetch: Fetch, now: float) -> Carried:
        """Finish what was begun, carry intents, and tell what silences and groups owe.

        Raises:
            PresenceError: Presence gives no answer.
        """
        step = Step(now=now, presence=self._presence)
        is_well = await self._take_over(step)
        emitted, is_empty = await self._carry_all(fetch, step)
        await self._settle(step)
        if is_well and is_empty:
            await self._tick(step)
        if is_well and is_empty and not step.failed:
            self._keeping.is_over()
        waiting = sum(company.owed for company in self._companies.values())
        return Carried(
            emitted=emitted,
            complete=is_well and is_empty and not step.failed,
            waiting=waiting,
        )

    async def _take_over(self, step: Step) -> bool:
        """Claim what is kept, and finish what others began; False: not all of it could be."""
        if self._is_listed:
            await self._finish(self._companies.values(), step)
            return not step.failed
        try:
            keys = await self._store.units([AGENTS_SHARD])
        except AlertStateError as error:
            self._fail("units", error)
            return False
        for number, key in enumerate(keys):
            if number % _RENEW_EVERY == 0 and not await self.is_mine():
                return False
            if key.company_id not in self._companies:
                await self._claim(step, key.company_id)
        self._is_listed = not step.failed
        await self._finish(self._companies.values(), step)
        return not step.failed

    async def _carry_all(self, fetch: Fetch, step: Step) -> tuple[int, bool]:
        emitted = behind = 0
        while await self.is_mine():
            limit = PAGE + behind
            page = await fetch(limit)
            todo = [each for each in page if each.agent.company_id not in step.failed]
            done = await self._work(todo, step, more_follow=len(page) == limit)
            await self._presence.confirm_all(done)
            for transition in done:
                tell(transition)
            emitted += len(done)
            behind = len(page) - len(done)
            if not done or len(page) < limit:
                return emitted, behind == 0 and len(page) < limit
        return emitted, False

    async def _work(
        self, page: Collection[Transition], step: Step, *, more_follow: bool
    ) -> list[Transition]:
        """Judge a page, which may not be the last one; return those whose events the outbox has."""
        groups: dict[str, list[Transition]] = {}
        for transition in page:
            groups.setdefault(transition.agent.company_id, []).append(transition)
        new = sorted(groups.keys() - self._companies.keys())
        await together(partial(self._claim, step), new, at_once=_AT_ONCE)
        found = {name: company for name, company in self._companies.items() if name in groups}
        for company_id, company in found.items():
            # What was decided before must be out, or more and more would wait here.
            if company.is_told:
                # Only a down can make a group of agents, and only then their number matters.
                is_down = any(each.kind is TransitionKind.DOWN for each in groups[company_id])
                agents = await step.agents(company_id) if is_down else 0
                self._refresh(company)
                company.take(groups[company_id], step.now, agents=agents, more_follow=more_follow)
                await anyio.lowlevel.checkpoint()
        await self._finish(found.values(), step)
        return [
            transition
            for company_id, company in found.items()
            if company_id not in step.failed
            for transition in groups[company_id]
            if not company.is_fresh(transition)
        ]

    async def _settle(self, step: Step) -> None:
        """Tell which groups grew over several pages: once for all of these."""
        growing = [
            company
            for company in self._companies.values()
            if company.is_growing and company.is_told and company.company_id not in step.failed
        ]
        if not growing or not await self.is_mine():
            return
        for company in growing:
            self._refresh(company)
            company.settle(step.now, agents=0)
            await anyio.lowlevel.checkpoint()
        await self._finish(growing, step)

    async def _tick(self, step: Step) -> None:
        for company_id, company in list(self._companies.items()):
            if not company.is_idle and company.is_told:
                agents = await step.agents(company_id) if company.held else 0
                self._refresh(company)
                company.tick(step.now, agents=agents)
                await anyio.lowlevel.checkpoint()
            elif company.is_forgettable(step.now):
                await self._forget(company, step)
        await self._finish(self._companies.values(), step)

    def _refresh(self, company: CompanyAgents) -> None:
        silences = self._silences()
        company.refresh(
            None if silences is None else silences.silences, self._settings(company.company_id)
        )

    # --- stored, told, forgotten

    async def _finish(self, companies: Iterable[CompanyAgents], step: Step) -> None:
        """Store what was decided, and put in the outbox what is stored."""
        dirty = [
            company
            for company in companies
            if company.is_dirty and company.company_id not in step.failed
        ]
        # Each is a write of its own, which waits for the disk or for Redis.
        await together(partial(self._commit, step), dirty, at_once=_AT_ONCE)
        told = [company for company in companies if company.waiting]
        events = [
            event
            for company in told
            for event in company.waiting.values()
            if event.event_id not in company.appended
        ]
        if not await self._append(events, told):
            step.failed.update(company.company_id for company in told if not company.is_told)
        appended = [company for company in told if company.appended]
        await together(self._forget_told, appended, at_once=_AT_ONCE)

    async def _commit(self, step: Step, company: CompanyAgents) -> None:
        for change in company.changes(step.now):
            # Between pieces of the change, and between companies where the store waits for nothing.
            await anyio.lowlevel.checkpoint()
            if change is None:
                continue
            try:
                await self._store.commit(_key(company.company_id), company.epoch, change)
            except FencedAlertStateError:
                self._let_go(company, step)
            except AlertStateError as error:
                self._fail("commit", error)
                step.failed.add(company.company_id)
            else:
                company.stored(change)

    async def _append(self, events: list[Event], companies: list[CompanyAgents]) -> bool:
        owners = {event_id: company for company in companies for event_id in company.waiting}
        rest = iter(events)
        while page := list(islice(rest, _APPEND_MAX)):
            try:
                await self._outbox.append(page, self._clock.time())
            except OutboxError as error:
                self._waiting.goes_on(
                    self._clock.monotonic(), {"events": len(events), "error": str(error)}
                )
                return False
            for event in page:
                owners[event.event_id].appended[event.event_id] = None
            count(self._metrics, page)
        self._waiting.is_over()
        return True

    async def _forget_told(self, company: CompanyAgents) -> None:
        """Have the store forget what the outbox has; a failure is made good at the next step."""
        ids = list(company.appended)
        try:
            await self._store.told(_key(company.company_id), ids)
        except AlertStateError as error:
            self._fail("told", error)
        else:
            company.told(ids)

    async def _claim(self, step: Step, company_id: str) -> None:
        company = CompanyAgents(
            company_id,
            defaults=self._defaults(company_id),
            event_ids=self._event_ids,
            lost=self._lose,
            held_max=self._held_max,
        )
        key = _key(company_id)
        try:
            image = await self._store.claim(key)
            # A large one takes a second, in which others must have their turns.
            faults = (
                [] if image.is_empty else await anyio.to_thread.run_sync(company.restore, image)
            )
            company.epoch = image.epoch
            if faults:
                self._metrics.inc(names.RULES_STATE_FAILURES, len(faults), call="damaged")
                _log.error(
                    "states of a company's agents cannot be used and are kept aside: what silences "
                    "and groups owe may be told again, or not",
                    extra={"company_id": company_id, "faults": len(faults), "error": faults[0]},
                )
                await self._store.set_aside(key, image.epoch)
        except AlertStateError as error:
            self._fail("claim", error)
            step.failed.add(company_id)
        else:
            self._companies[company_id] = company

    async def _forget(self, company: CompanyAgents, step: Step) -> None:
        try:
            await self._store.remove(_key(company.company_id), company.epoch)
        except FencedAlertStateError:
            self._let_go(company, step)
        except AlertStateError as error:
            self._fail("remove", error)
            step.failed.add(company.company_id)
        else:
            del self._companies[company.company_id]

    def _let_go(self, company: CompanyAgents, step: Step) -> None:
        """Another process works the company: what that one decides counts, and not ours."""
        del self._companies[company.company_id]
        self._is_listed = False
        step.failed.add(company.company_id)

    # --- what is told of it

    def _fail(self, call: str, error: AlertStateError) -> None:
        self._metrics.inc(names.RULES_STATE_FAILURES, call=call)
        self._keeping.goes_on(self._clock.monotonic(), {"call": call, "error": str(error)})

    def _lose(self, kind: EventType, error: Exception) -> None:
        _log.error("an event cannot be told", extra={"type": kind.value, "error": str(error)})
        self._metrics.inc(names.EVENTS_LOST, type=kind.value)


def _key(company_id: str) -> UnitKey:
    return UnitKey(shard=AGENTS_SHARD, company_id=company_id)
