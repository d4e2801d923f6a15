"""What the path and the query of an admin request say.

A refusal names the parameter, its value, and what it may be.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

import attrs
from starlette.requests import Request

from ahcollector.errors import RequestRefusedError
from ahcollector.store.base import Aggregate
from ahwire.names import is_id
from ahwire.status import Code

__all__ = [
    "AFTER_CHARS_MAX",
    "INT64_MAX",
    "LETTER_ID_CHARS_MAX",
    "LETTER_PAGE",
    "METRIC_CHARS_MAX",
    "PAGE_MAX",
    "STEP_MS",
    "STEP_MS_MIN",
    "Page",
    "RangeQuery",
    "check_names",
    "company_asked",
    "page_asked",
    "path_id",
    "range_query",
    "server_id",
    "since_ms",
]

INT64_MAX: Final = (1 << 63) - 1
PAGE_MAX: Final = 500
AFTER_CHARS_MAX: Final = 512
LETTER_ID_CHARS_MAX: Final = 200
LETTER_PAGE: Final = 100
METRIC_CHARS_MAX: Final = 1024
STEP_MS: Final = 30_000
STEP_MS_MIN: Final = 1_000
_VALUE_CHARS_SHOWN: Final = 40


@attrs.frozen(kw_only=True)
class RangeQuery:
    """A range query: times in Unix milliseconds."""

    server_id: str
    metric: str
    start_ms: int
    end_ms: int
    step_ms: int
    aggregate: Aggregate


@attrs.frozen(kw_only=True)
class Page:
    """Which part of a list is wanted.

    Attributes:
        after: It begins behind this entry; empty: at the first.
        limit: How long it is at most.
    """

    after: str
    limit: int


def check_names(request: Request, known: Collection[str], repeatable: Collection[str]) -> None:
    """Refuse a parameter that the route does not have, or that is there twice.

    A misspelt filter would else be no filter, and its caller would act on the whole.
    """
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            near = difflib.get_close_matches(name[:_VALUE_CHARS_SHOWN], known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {_named(known)}"
            raise _bad(f"there is no parameter {name[:_VALUE_CHARS_SHOWN]!r}; {hint}")
        if name in seen and name not in repeatable:
            raise _bad(f"{name} is there twice: say it once")
        seen.add(name)


def _named(known: Collection[str]) -> str:
    return ", ".join(sorted(known)) or "none here"


def path_id(request: Request, name: str) -> str:
    """Return an id from the path."""
    return _identity(name, str(request.path_params[name]))


def server_id(request: Request) -> str:
    """Return the server that a query is about."""
    return _identity("server_id", _required(request, "server_id"))


def company_asked(request: Request) -> str | None:
    """Return the company that a list is limited to; None: to none."""
    given = request.query_params.get("company_id")
    return None if given is None else _identity("company_id", given)


def page_asked(request: Request, *, default: int) -> Page:
    """Return which page is wanted; `default` is its length where none is said."""
    after = request.query_params.get("after", "")
    if len(after) > AFTER_CHARS_MAX:
        raise _bad(
            f"after has {len(after)} characters, over {AFTER_CHARS_MAX}: it is the next_after of"
            " the page before"
        )
    limit = _integer("limit", request.query_params.get("limit", str(default)), 1, PAGE_MAX)
    return Page(after=after, limit=limit)


def range_query(request: Request) -> RangeQuery:
    """Return the range that a query asks for."""
    word = request.query_params.get("aggregate", Aggregate.AVG.value)
    try:
        aggregate = Aggregate(word)
    except ValueError:
        allowed = ", ".join(Aggregate)
        raise _bad(f"aggregate is {word[:_VALUE_CHARS_SHOWN]!r}, not one of: {allowed}") from None
    metric = _required(request, "metric")
    if len(metric) > METRIC_CHARS_MAX:
        raise _bad(f"metric has {len(metric)} characters, over {METRIC_CHARS_MAX}")
    step = request.query_params.get("step_ms", str(STEP_MS))
    return RangeQuery(
        server_id=server_id(request),
        metric=metric,
        start_ms=_integer("start_ms", _required(request, "start_ms")),
        end_ms=_integer("end_ms", _required(request, "end_ms")),
        step_ms=_integer("step_ms", step, STEP_MS_MIN),
        aggregate=aggregate,
    )


def since_ms(request: Request) -> int | None:
    """Return from when on a series counts as alive, or None for the store's default."""
    given = request.query_params.get("since_ms")
    return None if given is None else _integer("since_ms", given)


def _required(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise _bad(f"the query names no {name}: add {name}=…")
    return value


def _identity(name: str, value: str) -> str:
    if not is_id(value):
        raise _bad(
            f"{name} {value[:_VALUE_CHARS_SHOWN]!r} is no id: one has letters, digits and _ . : -"
            " only, 128 at most, the first a letter or a digit"
        )
    return value


def _integer(name: str, value: str, least: int = 0, most: int = INT64_MAX) -> int:
    plain = value.isascii() and value.isdigit() and len(value) <= len(str(INT64_MAX))
    if not plain or not least <= int(value) <= most:
        raise _bad(
            f"{name} is {value[:_VALUE_CHARS_SHOWN]!r}, not a whole number from {least} to {most}"
        )
    return int(value)


def _bad(message: str) -> RequestRefusedError:
    return RequestRefusedError(Code.BAD_REQUEST, message)
