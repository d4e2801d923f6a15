"""Failures the development hub can be told to show, so that tests meet a hub that misbehaves.

`Faults` wraps the hub's application. While a plan is in force the next `requests` requests under
its path are delayed, answered with `status`, or cut before or after the hub has done its work. The
call that sets and clears the plans is never subject to one.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import attrs
from starlette.types import ASGIApp, Receive, Scope, Send

FAULTS_PATH = "/admin/api/faults"
REQUESTS_MAX = 1_000_000
LATENCY_SECONDS_MAX = 60.0
_TEXT_CHARS_MAX = 256
_ERROR_STATUS = range(400, 600)

Check = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _is(expected: str, holds: Callable[[Any], bool]) -> Check:
    def check(_plan: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if not holds(value):
            raise ValueError(f"{attribute.name}: expected {expected}")

    return check


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _TEXT_CHARS_MAX and _is_plain(value)


def _is_plain(value: str) -> bool:
    return value.isascii() and (not value or value.isprintable())


def _is_latency(value: Any) -> bool:
    # The bound is compared with the value as it came: a huge whole number is no float.
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= LATENCY_SECONDS_MAX and math.isfinite(value)


@attrs.frozen(kw_only=True)
class FaultPlan:
    """What goes wrong with the next requests.

    Attributes:
        path: requests whose path ends with this text are meant; empty: all.
        requests: how many of them, 1 to 1,000,000.
        latency_seconds: wait before anything else, 0 to 60.
        status: answer with this status instead of the hub's, 400 to 599; 0: the hub answers.
        retry_after: the Retry-After header of that answer; empty: none.
        cut: close the connection: `before` or `after` the hub did its work; empty: never.

    Raises:
        ValueError: a value is not of its type or out of its range.
    """

    path: str = attrs.field(
        default="", validator=_is(f"ASCII text of at most {_TEXT_CHARS_MAX} characters", _is_text)
    )
    requests: int = attrs.field(
        default=1,
        validator=_is(
            f"a whole number from 1 to {REQUESTS_MAX}",
            lambda value: type(value) is int and 1 <= value <= REQUESTS_MAX,
        ),
    )
    latency_seconds: float = attrs.field(
        default=0.0, validator=_is(f"a number from 0 to {LATENCY_SECONDS_MAX:g}", _is_latency)
    )
    status: int = attrs.field(
        default=0,
        validator=_is(
            "0, or a whole number from 400 to 599",
            lambda value: type(value) is int and (value == 0 or value in _ERROR_STATUS),
        ),
    )
    retry_after: str = attrs.field(
        default="", validator=_is(f"ASCII text of at most {_TEXT_CHARS_MAX} characters", _is_text)
    )
    cut: str = attrs.field(
        default="",
        validator=_is(
            "before, after, or nothing",
            lambda value: isinstance(value, str) and value in ("", "before", "after"),
        ),
    )

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "FaultPlan":
        """Builds a plan from JSON.

        Raises:
            ValueError: a key is unknown or a value out of its range.
        """
        names = attrs.fields_dict(cls)
        unknown = sorted(ascii(name[:40]) for name in data if name not in names)
        if unknown:
            raise ValueError(
                f"a fault plan has no {', '.join(unknown[:5])}; it has {', '.join(names)}"
            )
        return cls(**data)


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
        self._plans.append(plan)

    def clear(self) -> None:
        """Ends all plans."""
        self._plans.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as the plan for it says."""
        meant = scope["type"] == "http" and scope["path"] != FAULTS_PATH
        plan = self._take(scope["path"]) if meant else None
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
