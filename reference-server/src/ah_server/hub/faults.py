"""Failures the development hub can be told to show, so that tests meet a hub that misbehaves.

`Faults` wraps the hub's application. While a plan is in force the next `requests` requests under
its path are delayed, answered with `status`, or cut before or after the hub has done its work.
"""

from collections.abc import Mapping
from typing import Any

import anyio
import attrs
from starlette.types import ASGIApp, Receive, Scope, Send


@attrs.frozen(kw_only=True)
class FaultPlan:
    """What goes wrong with the next requests.

    Attributes:
        path: requests whose path ends with this text are meant; empty: all.
        requests: how many of them.
        latency_seconds: wait before anything else.
        status: answer with this status instead of the hub's; 0: the hub answers.
        retry_after: the Retry-After header of that answer; empty: none.
        cut: close the connection: `before` or `after` the hub did its work; empty: never.
    """

    path: str = ""
    requests: int = 1
    latency_seconds: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    status: int = attrs.field(default=0, validator=attrs.validators.in_([0, *range(400, 600)]))
    retry_after: str = ""
    cut: str = attrs.field(default="", validator=attrs.validators.in_(["", "before", "after"]))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "FaultPlan":
        """Builds a plan from JSON.

        Raises:
            ValueError: a key is unknown or a value out of its range.
        """
        unknown = set(data) - set(attrs.fields_dict(cls))
        if unknown:
            raise ValueError(f"a fault plan has no {', '.join(sorted(unknown))}")
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(str(error)) from error


class Faults:
    """An ASGI middleware that shows the failures of the plans it was given, oldest plan first."""

    plans_max = 100

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._plans: list[FaultPlan] = []

    def add(self, plan: FaultPlan) -> None:
        """Puts a plan behind those in force.

        Raises:
            ValueError: too many plans wait.
        """
        if len(self._plans) >= self.plans_max:
            raise ValueError(f"{self.plans_max} fault plans are waiting; clear them first")
        if plan.requests > 0:
            self._plans.append(plan)

    def clear(self) -> None:
        """Ends all plans."""
        self._plans.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as the plan for it says."""
        plan = self._take(scope["path"]) if scope["type"] == "http" else None
        if plan is None:
            await self._app(scope, receive, send)
            return
        await anyio.sleep(plan.latency_seconds)
        if plan.status:
            await _answer(send, plan)
        elif plan.cut == "before":
            await _cut(send)
        elif plan.cut == "after":
            await self._app(scope, receive, _swallow)
            await _cut(send)
        else:
            await self._app(scope, receive, send)

    def _take(self, path: str) -> FaultPlan | None:
        for place, plan in enumerate(self._plans):
            if path.endswith(plan.path):
                if plan.requests > 1:
                    self._plans[place] = attrs.evolve(plan, requests=plan.requests - 1)
                else:
                    del self._plans[place]
                return plan
        return None


async def _answer(send: Send, plan: FaultPlan) -> None:
    headers = [(b"content-length", b"0")]
    if plan.retry_after:
        headers.append((b"retry-after", plan.retry_after.encode("latin-1")))
    await send({"type": "http.response.start", "status": plan.status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _cut(send: Send) -> None:
    # A body shorter than it says makes the HTTP server close the connection in the middle.
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]}
    )
    await send({"type": "http.response.body", "body": b"{"})


async def _swallow(message: Any) -> None:
    """The hub's answer, which nobody will see."""
