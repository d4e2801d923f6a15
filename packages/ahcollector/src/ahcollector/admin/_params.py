"""What the path and the query of an admin request say."""

from __future__ import annotations

import attrs
from starlette.requests import Request

from ahcollector.errors import RequestRefusedError
from ahcollector.store.base import Aggregate
from ahwire.names import is_id
from ahwire.status import Code

__all__ = ["RangeQuery", "path_id", "range_query", "server_id", "since_ms"]

_INT64_MAX = (1 << 63) - 1
_STEP_MS = 30_000


@attrs.frozen(kw_only=True)
class RangeQuery:
    """A range query: times in Unix milliseconds."""

    server_id: str
    metric: str
    start_ms: int
    end_ms: int
    step_ms: int
    aggregate: Aggregate


def path_id(request: Request, name: str) -> str:
    """Return an id from the path."""
    return _identity(name, str(request.path_params[name]))


def server_id(request: Request) -> str:
    """Return the server that a query is about."""
    return _identity("server_id", _required(request, "server_id"))


def range_query(request: Request) -> RangeQuery:
    """Return the range that a query asks for."""
    word = request.query_params.get("aggregate", Aggregate.AVG.value)
    try:
        aggregate = Aggregate(word)
    except ValueError:
        allowed = ", ".join(Aggregate)
        raise _bad(f"aggregate is {word[:40]!r}, not one of: {allowed}") from None
    return RangeQuery(
        server_id=server_id(request),
        metric=_required(request, "metric"),
        start_ms=_integer("start_ms", _required(request, "start_ms")),
        end_ms=_integer("end_ms", _required(request, "end_ms")),
        step_ms=_integer("step_ms", request.query_params.get("step_ms", str(_STEP_MS))),
        aggregate=aggregate,
    )


def since_ms(request: Request) -> int | None:
    """Return from when on a series counts as alive, or None for the store's default."""
    given = request.query_params.get("since_ms")
    return None if given is None else _integer("since_ms", given)


def _required(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise _bad(f"the query names no {name}")
    return value


def _identity(name: str, value: str) -> str:
    if not is_id(value):
        raise _bad(f"{name} {value[:40]!r} is no id")
    return value


def _integer(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > len(str(_INT64_MAX)):
        raise _bad(f"{name} is {value[:40]!r}, not a whole number")
    return min(int(value), _INT64_MAX)


def _bad(message: str) -> RequestRefusedError:
    return RequestRefusedError(Code.BAD_REQUEST, message)
