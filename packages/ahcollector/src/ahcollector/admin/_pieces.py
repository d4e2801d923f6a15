"""What the routes of the admin door are put together from: parameters, pages, answers, errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ahcollector._openapi import JSON, Answer, Parameter, Place, Schema, error_answers, reference
from ahcollector.admin._answers import CONFLICT, CONFLICT_STATUS
from ahcollector.admin._params import AFTER_CHARS_MAX, INT64_MAX, PAGE_MAX
from ahcollector.admin._schemas import IDENTITY
from ahwire.status import HTTP_STATUS, Code

__all__ = [
    "ERROR_MEDIA",
    "PREFIX",
    "answers",
    "milliseconds",
    "paging",
    "path_parameter",
    "query_parameter",
]

PREFIX: Final = "/admin/v1"

ERROR_MEDIA: Final[Mapping[str, Schema]] = {JSON: reference("Error")}
_ALWAYS: Final = (
    (Code.BAD_REQUEST, "a parameter or the body is not what it must be"),
    (Code.UNAUTHORIZED, "the admin token is missing or wrong"),
    (Code.SERVER_ERROR, "a defect of ours; the log has its trace under the request's id"),
    (Code.UNAVAILABLE, "what keeps the data cannot be asked now"),
)


def _errors(more: Iterable[tuple[Code | str, str]]) -> tuple[Answer, ...]:
    codes = (
        (CONFLICT_STATUS if code == CONFLICT else HTTP_STATUS[Code(code)], str(code), when)
        for code, when in (*_ALWAYS, *more)
    )
    return error_answers(codes, media=ERROR_MEDIA, examples=True)


def answers(
    schema: str, doc: str, example: Any, *refusals: tuple[Code | str, str]
) -> tuple[Answer, ...]:
    """Return the good answer, and those that refuse: `refusals` beside what every route has."""
    good = Answer(status=200, doc=doc, media={JSON: reference(schema)}, example=example)
    return (good, *_errors(refusals))


def path_parameter(name: str, example: str) -> Parameter:
    """Return an id in a path."""
    return Parameter(
        name=name,
        place=Place.PATH,
        doc=f"The id of the {name.removesuffix('_id')}.",
        schema=IDENTITY,
        required=True,
        example=example,
    )


def query_parameter(
    name: str,
    doc: str,
    schema: Schema,
    *,
    example: str | None = None,
    required: bool = False,
) -> Parameter:
    """Return a parameter of a query."""
    return Parameter(
        name=name,
        place=Place.QUERY,
        doc=doc,
        schema=schema,
        required=required,
        example=example,
    )


def milliseconds(doc: str, least: int = 0, **more: Any) -> dict[str, Any]:
    """Return the schema of a time, or of a length of it."""
    return {"type": "integer", "minimum": least, "maximum": INT64_MAX, "description": doc, **more}


def paging(page_default: int, what: str) -> tuple[Parameter, Parameter]:
    """Return the two parameters of a list that comes in pages."""
    return (
        query_parameter(
            "after",
            f"The `next_after` of the page before; absent or empty: from the first {what}.",
            {"type": "string", "maxLength": AFTER_CHARS_MAX},
        ),
        query_parameter(
            "limit",
            f"How long a page is at most, 1 to {PAGE_MAX}.",
            {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": page_default},
            example="2",
        ),
    )
