"""What the admin door tells of the process itself, without a token."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from ahcollector._readiness import Check, readiness
from ahcollector._trouble import Trouble
from ahcollector.admin._answers import JsonLine
from ahcollector.admin._document import openapi_document
from ahcollector.clock import AsyncClock
from ahcollector.errors import RegistryError, RequestRefusedError
from ahcollector.metrics import REGISTRY_AGENTS, PrometheusMetrics
from ahcollector.registry.base import Registry
from ahwire.status import Code

__all__ = ["ProcessDoors"]

_log = logging.getLogger("ahcollector.admin")


class ProcessDoors:
    """Probes, metrics, and the document.

    Args:
        registry: Counted at each scrape.
        checks: Dependencies by name.
        metrics: None: there are none to show.
        clock: That agents cannot be counted is told once a minute.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        checks: Mapping[str, Check],
        metrics: PrometheusMetrics | None,
        clock: AsyncClock,
    ) -> None:
        self._clock = clock
        self._trouble = Trouble(_log, "agents could not be counted", "agents are counted again")
        self._registry = registry
        self._checks = checks
        self._metrics = metrics

    async def health(self, _request: Request) -> Response:
        """Answer."""
        return JsonLine({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """Ask all dependencies."""
        body, status = await readiness(self._checks)
        return JsonLine(body, status_code=status)

    async def exposition(self, _request: Request) -> Response:
        """Show the metrics; the agents are counted now, since they change at several places."""
        if self._metrics is None:
            raise RequestRefusedError(Code.NOT_FOUND, "metrics are switched off in this process")
        try:
            self._metrics.set(REGISTRY_AGENTS, (await self._registry.count()).active)
            self._trouble.is_over()
        except RegistryError as error:
            # A scrape shows all the rest, above all while something is down.
            self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
        return Response(
            self._metrics.exposition(), headers={"Content-Type": self._metrics.content_type}
        )

    async def openapi(self, request: Request) -> Response:
        """Show what this door is."""
        return JsonLine(openapi_document(str(request.scope.get("root_path", ""))))
