"""Threshold rules and silences, pulled from the hub and kept."""

from __future__ import annotations

import abc
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
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
from ahcollector.alerts.kept import KeptLists
from ahcollector.clock import AsyncClock
from ahcollector.errors import AlertStateError, HubError
from ahcollector.hub.base import Hub
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
        hub: Hub,
        kept: KeptLists,
        clock: AsyncClock,
        metrics: Metrics | None = None,
        interval_seconds: float = 60.0,
    ) -> None:
        if not interval_seconds > 0:
            raise ValueError(f"interval_seconds is {interval_seconds}; it must be above 0")
        self._hub = hub
        self._kept = kept
        self._clock = clock
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._interval_seconds = interval_seconds
        self._current: _InForce | None = None
        self._etag: str | None = None
        self._unkept: tuple[_Item, ...] | None = None
        self._named: frozenset[str] = frozenset()
        self._failure = "it was not asked yet"
        self._turn = anyio.Lock()
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

    async def run(self) -> None:
        """Take what was kept, then pull at once and each interval, until cancelled."""
        await self.recall()
        while True:
            try:
                await self.pull()
            except HubError as error:
                self._pulling.goes_on(self._clock.monotonic(), {"error": str(error)})
            else:
                self._pulling.is_over()
            await self._clock.sleep(self._interval_seconds)

    async def recall(self) -> None:
        """Put in force what an earlier process kept, unless the hub was heard already."""
        async with self._turn:
            if self._current is not None:
                return
            try:
                items = await self._kept.load(self._name)
            except AlertStateError as error:
                self._keeping.goes_on(self._clock.monotonic(), {"error": str(error)})
                return
            if items is not None:
                read = partial(self._read_all, items)
                await self._put(await run_beside(read, is_long=len(items) > _MANY), ())

    async def pull(self) -> int:
        """Ask the hub now; return how many are in force then.

        Raises:
            HubError: It gave no list; what was in force stays.
        """
        async with self._turn:
            try:
                reply = await self._ask(self._etag)
            except HubError as error:
                self._failure = str(error)
                self._metrics.inc(names.HUB_PULL_FAILURES, list=self._name)
                raise
            if reply.items is not None:
                await self._put(reply.items, reply.refused)
                self._unkept = reply.items
            # Only now: a list that could not be put in force is asked for again.
            self._etag = reply.etag
            self._metrics.set(self._told.last_sync, self._clock.time())
            await self._keep()
            return 0 if self._current is None else self._current.count

    async def _keep(self) -> None:
        """Keep the newest list, unless it is kept already."""
        if self._unkept is None:
            return
        documents = partial(_documents, self._unkept)
        items = await run_beside(documents, is_long=len(self._unkept) > _MANY)
        try:
            await self._kept.save(self._name, items)
        except AlertStateError as error:
            self._keeping.goes_on(self._clock.monotonic(), {"error": str(error)})
        else:
            self._keeping.is_over()
            self._unkept = None

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

    def _read_all(self, items: Sequence[Any]) -> list[_Item]:
        found = [self._read(json.dumps(item).encode()) for item in items]
        return [item for item in found if item is not None]

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

    async def _ask(self, etag: str | None) -> _Reply[ThresholdRule, RuleError]:
        reply = await self._hub.rules(etag)
        return _Reply(items=reply.rules, refused=reply.refused, etag=reply.etag)

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

    async def _ask(self, etag: str | None) -> _Reply[Silence, SilenceError]:
        reply = await self._hub.silences(etag)
        return _Reply(items=reply.silences, refused=reply.refused, etag=reply.etag)

    def _make(self, items: Sequence[Silence], refused: Sequence[SilenceError]) -> SilencesInForce:
        return silences_in_force(items, refused)
