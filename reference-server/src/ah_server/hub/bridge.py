"""Turns what the hub was told about servers into incidents for the notification center.

The bridge reads the event log from a cursor of its own and moves the cursor only after the publish
was confirmed. A crash in between publishes the same incident again, under the same event_id, which
the notification center takes once.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ah_server.hub.event_log import EventLog, LoggedEvent
from ahwire import Backoff, Event, IncidentEvent, Rng
from ahwire.notification import Severity

CURSOR = "bridge"
PAGE = 100

Publish = Callable[[IncidentEvent], Awaitable[None]]

_SEVERITY: Mapping[str, Severity] = {
    "critical": Severity.HIGH,
    "warning": Severity.MIDDLE,
    "info": Severity.LOW,
}

_log = logging.getLogger("ah_server.bridge")


class Sleeper(Protocol):
    """Waits; a fake clock in tests, anyio otherwise."""

    async def sleep(self, seconds: float) -> None:
        """Waits this long."""
        ...


def to_incident(event: Event, *, superseded_by: str | None = None) -> IncidentEvent | None:
    """The incident an event stands for; None when the event is suppressed.

    The event_id is kept, the company becomes the tenant, the server the host; what else the event
    holds is in the payload under its own names, and so is the severity in the word of the rule,
    which a person who wrote that rule looks for.

    An event that came late is told too: nobody was told of it yet, and a dead letter is replayed
    just for that. But what it tells is over, so `superseded_by` is in the payload, where the
    message shows it and templates can ask for it: the type of the newest event of its state.
    """
    if event.suppressed:
        return None
    body = json.loads(event.to_json())
    moved = {"event_id", "type", "occurred_at", "company_id"}
    payload: dict[str, Any] = {name: value for name, value in body.items() if name not in moved}
    if superseded_by is not None:
        payload["superseded_by"] = superseded_by
    return IncidentEvent(
        event_id=event.event_id,
        tenant_id=event.company_id,
        occurred_at=event.occurred_at,
        severity=_SEVERITY.get(str(event.severity or "info"), Severity.LOW),
        event_type=event.type.value.replace(".", "_"),
        host=event.server_id,
        payload=payload,
    )


class Bridge:
    """Publishes incidents in the order of the log.

    Args:
        event_log: where events and the cursor are kept.
        publish: returns when the notification center has the incident durably; what it raises
            of `failures` means "try again later".
        failures: the errors of `publish` that mean its end is away for a while.
        clock: waits between two looks.
        rng: spreads the waits after a failure.
        poll_seconds: time between two looks at the log.
    """

    def __init__(
        self,
        *,
        event_log: EventLog,
        publish: Publish,
        failures: type[Exception] | tuple[type[Exception], ...],
        clock: Sleeper,
        rng: Rng,
        poll_seconds: float = 0.5,
    ) -> None:
        self._event_log = event_log
        self._publish = publish
        self._failures = failures
        self._clock = clock
        self._backoff = Backoff(1.0, 60.0, rng)
        self._poll_seconds = poll_seconds
        self.published = 0
        self.suppressed = 0

    async def run(self) -> None:
        """Publishes until cancelled; a failed publish is tried again with growing waits."""
        while True:
            try:
                moved = await self.step()
            except self._failures as error:
                wait = self._backoff.next()
                _log.warning("incident not published, next try in %.0f s: %s", wait, error)
                await self._clock.sleep(wait)
                continue
            self._backoff.reset()
            if not moved:
                await self._clock.sleep(self._poll_seconds)

    async def step(self) -> bool:
        """Publishes one page; true when there was something to do."""
        page = await self._event_log.after(await self._event_log.cursor(CURSOR), PAGE)
        for logged in page:
            await self._carry(logged)
        return bool(page)

    async def _carry(self, logged: LoggedEvent) -> None:
        incident = to_incident(logged.event, superseded_by=logged.superseded_by)
        if incident is None:
            self.suppressed += 1
        else:
            await self._publish(incident)
            self.published += 1
        await self._event_log.move_cursor(CURSOR, logged.position)
