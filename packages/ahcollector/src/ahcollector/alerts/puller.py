"""Threshold rules and silences, pulled from the hub and kept."""

from __future__ import annotations

import abc
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf, nextafter
from typing import Any, Final, Generic, TypeVar

import anyio
import attrs

from ahcollector import metrics as names
from ahcollector._beside import run_beside
from ahcollector._trouble import Trouble
from ahcollector.alerts._in_force import (
    RulesInForce,
    SilencesInForce,
    rules_in_force,
    silences_in_force,
)
from ahcollector.alerts._staying import RuleName, StayingRules, name_of_fault, name_of_item
from ahcollector.alerts.kept import KeptLists
from ahcollector.clock import AsyncClock
from ahcollector.errors import AlertStateError, HubError
from ahcollector.hub.base import RulesHub, SilencesHub
from ahcollector.metrics import Metric, Metrics, NullMetrics
from ahrules import RuleError, SilenceError
from ahwire import DecodeError
from ahwire.hub import Silence, ThresholdRule

__all__ = ["RulePuller", "SilencePuller"]

_log = logging.getLogger("ahcollector.alerts")

_NAMED_MAX: Final = 20
_MANY: Final = 200
_InForce = TypeVar("_InForce", RulesInForce, SilencesInForce)
_Item = TypeVar("_Item", ThresholdRule, Silence)
_Refusal = TypeVar("_Refusal", RuleError, SilenceError)


@attrs.frozen(kw_only=True)
class _Reply(Generic[_Item, _Refusal]):
    items: tuple[_Item, ...] | None
    refused: tuple[_Refusal, ...]
    etag: str | None
    unread: tuple[RuleName, ...] = ()


@attrs.frozen(kw_only=True)
class _Told:
    """The metrics of one list."""

    in_force: Metric
    refused: Metric
    last_sync: Metric


class _Puller(abc.ABC, Generic[_InForce, _Item, _Refusal]):
    """One list of the hub: asked for at once and then each interval, and kept.

    `current` is the newest answer, before the first one what was kept by an earlier process, and
    None while there is neither. An item that cannot be used is named in the log once, counted, and
    keeps no other from being used; a hub that fails changes nothing.
    """

    _name: str
    _costs: str
    _kind: type[_Item]
    _told: _Told

    def __init__(
        self,
        *,
        kept: KeptLists,
        clock: AsyncClock,
        metrics: Metrics | None = None,
        interval_seconds: float = 60.0,
    ) -> None:
        if not interval_seconds > 0:
            raise ValueError(f"interval_seconds is {interval_seconds}; it must be above 0")
        self._kept = kept
        self._clock = clock
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._interval_seconds = interval_seconds
        self._current: _InForce | None = None
        self._etag: str | None = None
        self._items: Sequence[_Item] | None = None
        self._as_of = self._listed_at = float("-inf")
        self._named: frozenset[str] = frozenset()
        self._failure = "it was not asked yet"
        self._turn = anyio.Lock()
        # Apart from the turn, which a hub that is slow holds up: nothing else may wait for that.
        self._putting = anyio.Lock()
        self._pulling = Trouble(
            _log,
            f"the hub's {self._name} could not be read, the last ones stay",
            f"the hub's {self._name} are read again",
        )
        self._keeping = Trouble(
            _log,
            f"the hub's {self._name} could not be kept: a start without the hub has older ones",
            f"the hub's {self._name} are kept again",
        )

    @property
    def current(self) -> _InForce | None:
        """What is in force; a new object each time that it changes."""
        return self._current

    async def check(self) -> None:
        """Return when something is in force, the hub's newest or what was kept.

        Raises:
            AlertStateError: Nothing is; with what the hub said last, and what that costs.
        """
        if self._current is None:
            raise AlertStateError(
                f"the hub's {self._name} were never read, and none are kept from before "
                f"({self._failure}): {self._costs} until they are read"
            )

    @property
    def as_of(self) -> float:
        """When the hub last said that the list is this one; minus infinity: never."""
        return self._as_of

    @property
    def listed_at(self) -> float:
        """When the list was first heard to be this one; minus infinity: never."""
        return self._listed_at

    async def run(self) -> None:
        """Take what was kept, then pull at once and each interval, until cancelled."""
        await self.recall()
        while True:
            try:
                await self.pull()
            except HubError as error:
                self._pulling.goes_on(self._clock.monotonic(), {"error": str(error)})
                await self.catch_up()
            else:
                self._pulling.is_over()
            await self._clock.sleep(self._interval_seconds)

    async def recall(self) -> None:
        """Put in force what an earlier process kept, unless the hub was heard already."""
        async with self._putting:
            if self._current is None:
                await self._take_kept()

    async def catch_up(self) -> None:
        """Take what another process kept, where that is newer; failures are told by the log."""
        async with self._putting:
            await self._take_kept()

    async def _take_kept(self) -> None:
        try:
            as_of = await self._kept.as_of(self._name)
            if as_of is None or as_of <= self._as_of:
                return
            documents = await self._kept.load(self._name)
        except AlertStateError as error:
            self._keeping.goes_on(self._clock.monotonic(), {"error": str(error)})
            return
        if documents is None:
            return
        read = partial(self._read_all, documents)
        found, unread = await run_beside(read, is_long=len(documents) > _MANY)
        items = self._with_unread(found, unread)
        if items != self._items:
            await self._put(items, ())
            # The hub may name more of them, which cannot be used: it is asked for all of them.
            self._items, self._etag = items, None
        self._as_of = self._listed_at = as_of

    async def pull(self) -> int:
        """Ask the hub now; return how many are in force then.

        Raises:
            HubError: It gave no list; what was in force stays.
        """
        async with self._turn:
            asked_at, before = await self._now(), self._items
            try:
                reply = await self._ask(self._etag)
            except HubError as error:
                self._failure = str(error)
                self._metrics.inc(names.HUB_PULL_FAILURES, list=self._name)
                raise
            async with self._putting:
                await self._take(reply, asked_at, before)
            self._metrics.set(self._told.last_sync, self._clock.time())
            await self._keep()
            return 0 if self._current is None else self._current.count

    async def _take(
        self, reply: _Reply[_Item, _Refusal], asked_at: float, before: Sequence[_Item] | None
    ) -> None:
        """Put an answer in force, unless something newer was taken since it was asked for."""
        if asked_at <= self._as_of or (reply.items is None and self._items is not before):
            return  # the hub is asked for all of them by the next pull
        if reply.items is not None:
            items = self._with_unread(reply.items, reply.unread)
            await self._put(items, reply.refused)
            if items != self._items:
                self._items, self._listed_at = items, asked_at
        # Only now: a list that could not be put in force is asked for again.
        self._etag = reply.etag
        self._as_of = asked_at

    async def _now(self) -> float:
        try:
            found = await self._kept.now()
        except AlertStateError:
            found = None
        # Later than before also where the clock goes back: what is asked now is newer.
        return max(self._clock.time() if found is None else found, nextafter(self._as_of, inf))

    async def _keep(self) -> None:
        """Keep the list, unless one as new is kept already."""
        if self._items is None:
            return
        try:
            kept = await self._kept.as_of(self._name)
            if kept is None or kept < self._listed_at:
                documents = partial(_documents, self._items)
                items = await run_beside(documents, is_long=len(self._items) > _MANY)
                await self._kept.save(self._name, items, as_of=self._listed_at)
        except AlertStateError as error:
            self._keeping.goes_on(self._clock.monotonic(), {"error": str(error)})
        else:
            self._keeping.is_over()

    async def _put(self, items: Sequence[_Item], refused: Sequence[_Refusal]) -> None:
        # Thousands of patterns take seconds, in which others must have their turns.
        make = partial(self._make, items, refused)
        current = await run_beside(make, is_long=len(items) > _MANY)
        self._current = current
        self._metrics.set(self._told.in_force, current.count)
        self._metrics.set(self._told.refused, len(current.refused))
        faults: Mapping[str, Mapping[str, Any]] = {
            str(error): _extra(error) for error in current.refused
        }
        fresh = [text for text in faults if text not in self._named]
        for text in fresh[:_NAMED_MAX]:
            _log.error("one of the hub's %s cannot be used", self._name, extra=faults[text])
        if len(fresh) > _NAMED_MAX:
            _log.error(
                "more of the hub's %s cannot be used",
                self._name,
                extra={"count": len(fresh) - _NAMED_MAX},
            )
        self._named = frozenset(faults)

    @abc.abstractmethod
    async def _ask(self, etag: str | None) -> _Reply[_Item, _Refusal]: ...

    @abc.abstractmethod
    def _make(self, items: Sequence[_Item], refused: Sequence[_Refusal]) -> _InForce: ...

    def _with_unread(self, items: Sequence[_Item], _unread: Sequence[RuleName]) -> list[_Item]:
        """Return the items, and what is in force of those that are there and cannot be read."""
        return list(items)

    def _read_all(self, items: Sequence[Any]) -> tuple[list[_Item], list[RuleName]]:
        found, unread = [], []
        for item in items:
            read = self._read(json.dumps(item).encode())
            if read is not None:
                found.append(read)
            else:
                unread.append(name_of_item(item))
        return found, unread

    def _read(self, data: bytes) -> _Item | None:
        try:
            return self._kind.from_json(data)
        except DecodeError as error:
            _log.error(
                "one of the %s that were kept cannot be read",
                self._name,
                extra={"error": str(error)},
            )
            return None


def _documents(items: Iterable[ThresholdRule | Silence]) -> list[Any]:
    return [json.loads(item.to_json()) for item in items]


def _extra(error: RuleError | SilenceError) -> dict[str, Any]:
    faults = "; ".join(str(one) for one in error.errors)
    if isinstance(error, RuleError):
        return {"company_id": error.tenant_id, "rule_id": error.rule_id, "error": faults}
    return {"company_id": error.company_id, "silence_id": error.silence_id, "error": faults}


class RulePuller(_Puller[RulesInForce, ThresholdRule, RuleError]):
    """The threshold rules of all companies, as the hub has them.

    Args:
        hub: Asked.
        kept: Where the newest answer outlives this process.
        clock: Paces it.
        metrics: Where to count.
        interval_seconds: Pause between two pulls.
    """

    _name = "rules"
    _costs = "nothing is judged"
    _kind = ThresholdRule
    _told = _Told(
        in_force=names.RULES_IN_FORCE,
        refused=names.RULES_REFUSED,
        last_sync=names.LAST_RULES_SYNC,
    )

    def __init__(
        self,
        *,
        hub: RulesHub,
        kept: KeptLists,
        clock: AsyncClock,
        metrics: Metrics | None = None,
        interval_seconds: float = 60.0,
    ) -> None:
        super().__init__(kept=kept, clock=clock, metrics=metrics, interval_seconds=interval_seconds)
        self._hub = hub
        self._staying = StayingRules()

    async def _ask(self, etag: str | None) -> _Reply[ThresholdRule, RuleError]:
        reply = await self._hub.rules(etag)
        unread = tuple(map(name_of_fault, reply.refused))
        return _Reply(items=reply.rules, refused=reply.refused, etag=reply.etag, unread=unread)

    def _with_unread(
        self, items: Sequence[ThresholdRule], _unread: Sequence[RuleName]
    ) -> list[ThresholdRule]:
        return self._staying.among(items, _unread, self._items or ())

    def _make(self, items: Sequence[ThresholdRule], refused: Sequence[RuleError]) -> RulesInForce:
        return rules_in_force(items, refused)


class SilencePuller(_Puller[SilencesInForce, Silence, SilenceError]):
    """The silences of all companies, as the hub has them.

    Args:
        hub: Asked.
        kept: Where the newest answer outlives this process.
        clock: Paces it.
        metrics: Where to count.
        interval_seconds: Pause between two pulls.
    """

    _name = "silences"
    _costs = "nothing is silenced"
    _kind = Silence
    _told = _Told(
        in_force=names.SILENCES_IN_FORCE,
        refused=names.SILENCES_REFUSED,
        last_sync=names.LAST_SILENCES_SYNC,
    )

    def __init__(
        self,
        *,
        hub: SilencesHub,
        kept: KeptLists,
        clock: AsyncClock,
        metrics: Metrics | None = None,
        interval_seconds: float = 60.0,
    ) -> None:
        super().__init__(kept=kept, clock=clock, metrics=metrics, interval_seconds=interval_seconds)
        self._hub = hub

    async def _ask(self, etag: str | None) -> _Reply[Silence, SilenceError]:
        reply = await self._hub.silences(etag)
        return _Reply(items=reply.silences, refused=reply.refused, etag=reply.etag)

    def _make(self, items: Sequence[Silence], refused: Sequence[SilenceError]) -> SilencesInForce:
        return silences_in_force(items, refused)
