"""From events that are stored to the outbox."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import islice
from typing import Final

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.alerts._unit import AlertUnit
from ahcollector.alerts.base import AlertStateStore
from ahcollector.clock import AsyncClock
from ahcollector.errors import AlertStateError, OutboxError
from ahcollector.metrics import Metrics
from ahcollector.outbox.base import Outbox
from ahwire import Event

__all__ = ["Delivery"]

_log = logging.getLogger("ahcollector.alerts")

_PAGE: Final = 200
_KEY_CHARS_TOLD: Final = 200


class Delivery:
    """Appends a unit's stored events to the outbox, in order, then has its store forget them."""

    def __init__(
        self, *, store: AlertStateStore, outbox: Outbox, clock: AsyncClock, metrics: Metrics
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._clock = clock
        self._metrics = metrics
        self._waiting = Trouble(
            _log,
            "events of rules wait for the outbox",
            "the outbox takes events of rules again",
        )
        self._forgetting = Trouble(
            _log,
            "events of rules that the outbox has cannot be forgotten at their store",
            "events of rules that the outbox has are forgotten at their store again",
        )

    async def deliver(self, unit: AlertUnit) -> None:
        """Deliver what is stored; what fails is told by log and metrics, and tried again."""
        while unit.waiting:
            page = list(islice(unit.waiting.values(), _PAGE))
            fresh = [event for event in page if event.event_id not in unit.appended]
            if fresh and not await self._append(unit, fresh):
                return
            ids = [event.event_id for event in page]
            try:
                await self._store.told(unit.key, ids)
            except AlertStateError as error:
                self._metrics.inc(names.RULES_STATE_FAILURES, call="told")
                self._forgetting.goes_on(self._clock.monotonic(), {"error": str(error)})
                return
            self._forgetting.is_over()
            unit.told(ids)

    async def _append(self, unit: AlertUnit, events: list[Event]) -> bool:
        try:
            await self._outbox.append(events, self._clock.time())
        except OutboxError as error:
            self._waiting.goes_on(
                self._clock.monotonic(), {"events": len(unit.waiting), "error": str(error)}
            )
            return False
        self._waiting.is_over()
        unit.appended.update(dict.fromkeys(event.event_id for event in events))
        for kind, count in Counter(event.type for event in events).items():
            self._metrics.inc(names.EVENTS_EMITTED, count, type=kind.value)
        for event in events:
            _log.info(
                "%s",
                event.type.value,
                extra={
                    "company_id": event.company_id,
                    "server_id": event.server_id,
                    "rule_id": event.rule_id,
                    "series_key": (event.series_key or "")[:_KEY_CHARS_TOLD],
                    "suppressed": event.suppressed,
                    "event_id": event.event_id,
                },
            )
        return True
