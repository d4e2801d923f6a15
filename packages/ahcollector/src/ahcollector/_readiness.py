"""Whether what a process needs can be used: asked of everything at once, in bounded time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from ahcollector.errors import CollectorError

__all__ = ["Check", "dependencies", "readiness"]

Check = Callable[[], Awaitable[None]]
"""Returns when a dependency can be used, else raises CollectorError, OSError or TimeoutError."""

_CHECK_SECONDS = 2.0
_READY = 200
_NOT_READY = 503


async def readiness(checks: Mapping[str, Check]) -> tuple[dict[str, Any], int]:
    """Return what ``/readyz`` of a door answers: a body for JSON, and the status."""
    found = await dependencies(checks)
    if all(state == "ok" for state in found.values()):
        return {"status": "ready", "checks": found}, _READY
    return {"status": "not ready", "checks": found}, _NOT_READY


async def dependencies(
    checks: Mapping[str, Check], *, timeout_seconds: float = _CHECK_SECONDS
) -> dict[str, str]:
    """Return by dependency ``ok``, or what is wrong with it.

    Args:
        checks: Dependencies by name.
        timeout_seconds: How long each may take; all are asked at once.
    """
    found: dict[str, str] = {}

    async def ask(name: str, check: Check) -> None:
        try:
            with anyio.fail_after(timeout_seconds):
                await check()
        except TimeoutError:
            found[name] = f"no answer within {timeout_seconds:g} s"
        except (CollectorError, OSError) as error:
            found[name] = str(error) or type(error).__name__
        else:
            found[name] = "ok"

    async with anyio.create_task_group() as group:
        for name, check in checks.items():
            group.start_soon(ask, name, check)
    return dict(sorted(found.items()))
