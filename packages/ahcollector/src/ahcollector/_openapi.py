"""Routes as values: what a door's OpenAPI document is made of.

A door's table of `Route` says all that a caller must know: parameters with their ranges, bodies,
answers, headers, error codes, and an example of each. The document, the reference page and, at the
admin door, the routing itself are made from the table, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from ahwire.limits import MAX_ERROR_MESSAGE_CHARS, MAX_RETRY_AFTER_SENT_SECONDS

__all__ = [
    "ERROR_SCHEMA",
    "HEALTH_SCHEMA",
    "JSON",
    "PROCESS",
    "READINESS_SCHEMA",
    "Answer",
    "Body",
    "Parameter",
    "Place",
    "Route",
    "Schema",
    "error_answers",
    "header",
    "process_routes",
    "reference",
]

JSON: Final = "application/json"
PROCESS: Final = "process"
"""The group of the routes that tell of the process."""

Schema = Mapping[str, Any]
"""A JSON Schema (2020-12), as OpenAPI 3.1 has it."""


class Place(StrEnum):
    """Where a parameter stands."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"


@attrs.frozen(kw_only=True)
class Parameter:
    """One parameter.

    Attributes:
        doc: What it means, in one line.
        schema: What values it takes; a query parameter whose schema is an array is repeatable.
        example: A value for the example of the route; None: it is left out there.
    """

    name: str
    place: Place
    doc: str
    schema: Schema
    required: bool = False
    example: str | None = None


@attrs.frozen(kw_only=True)
class Body:
    """What is sent.

    Attributes:
        doc: What it is, in one line.
        media: Schemas by media type; the first is the one that is shown.
        example: A body in JSON; None: none can be shown.
    """

    doc: str
    media: Mapping[str, Schema]
    required: bool = True
    example: Any = None


@attrs.frozen(kw_only=True)
class Answer:
    """One kind of answer.

    Attributes:
        doc: When it comes, in one line.
        media: Schemas by media type; empty: without a body.
        headers: Schemas with descriptions by name, as `header` makes them.
        codes: What ``X-AH-Code`` may say; empty: no error.
        example: A body in JSON.
    """

    status: int
    doc: str
    media: Mapping[str, Schema] = attrs.field(factory=dict)
    headers: Mapping[str, Schema] = attrs.field(factory=dict)
    codes: tuple[str, ...] = ()
    example: Any = None


def _by_status(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    return tuple(sorted(answers, key=lambda answer: answer.status))


@attrs.frozen(kw_only=True)
class Route:
    """One method of one path.

    Attributes:
        name: Its ``operationId``.
        summary: What it does, in a few words.
        doc: What else a caller must know; may be empty.
        tag: The group it is shown in.
        bearer: Whether it needs the door's token.
    """

    method: str
    path: str
    name: str
    summary: str
    doc: str = ""
    tag: str
    bearer: bool = True
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    answers: tuple[Answer, ...] = attrs.field(converter=_by_status)

    @answers.validator
    def _each_once(self, _attribute: object, answers: tuple[Answer, ...]) -> None:
        statuses = [answer.status for answer in answers]
        if len(set(statuses)) != len(statuses):
            raise ValueError(f"answers of {self.name} have the statuses {statuses}: each once")

    def query_names(self) -> frozenset[str]:
        """Return what parameters the query may name."""
        return frozenset(one.name for one in self.parameters if one.place is Place.QUERY)

    def repeatable_names(self) -> frozenset[str]:
        """Return those of them that it may name more than once."""
        lists = (one for one in self.parameters if one.schema.get("type") == "array")
        return frozenset(one.name for one in lists if one.place is Place.QUERY)


def reference(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def header(doc: str, schema: Schema) -> Schema:
    """Return a header of an answer."""
    return {"description": doc, "schema": dict(schema)}


def error_answers(
    codes: Iterable[tuple[int, str, str]],
    *,
    media: Mapping[str, Schema],
    examples: bool = False,
) -> tuple[Answer, ...]:
    """Return the answers of errors, those of one status as one.

    Args:
        codes: Status, code, and when it comes.
        media: What their bodies are.
        examples: Whether each has an example in JSON.
    """
    by_status: dict[int, list[tuple[str, str]]] = {}
    for status, code, when in codes:
        by_status.setdefault(status, []).append((code, when))
    return tuple(
        Answer(
            status=status,
            doc="; ".join(f"`{code}`: {when}" for code, when in kinds),
            media=media,
            headers=_error_headers(status, [code for code, _ in kinds]),
            codes=tuple(code for code, _ in kinds),
            example={"code": kinds[0][0], "message": kinds[0][1]} if examples else None,
        )
        for status, kinds in sorted(by_status.items())
    )


_UNAUTHORIZED: Final = 401
_RETRIED: Final = frozenset({429, 503})


def _error_headers(status: int, codes: Sequence[str]) -> dict[str, Schema]:
    headers = {
        "X-AH-Code": header("The code of the error.", {"type": "string", "enum": list(codes)})
    }
    if status == _UNAUTHORIZED:
        headers["WWW-Authenticate"] = header("The scheme.", {"const": "Bearer"})
    if status in _RETRIED:
        headers["Retry-After"] = header(
            "Seconds to wait before the next try.",
            {"type": "integer", "minimum": 1, "maximum": MAX_RETRY_AFTER_SENT_SECONDS},
        )
    return headers


ERROR_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "Why a request was refused.",
    "properties": {
        "code": {"type": "string", "description": "A word of few, also in `X-AH-Code`."},
        "message": {
            "type": "string",
            "maxLength": MAX_ERROR_MESSAGE_CHARS,
            "description": "A sentence: the cause, the value, and the way out.",
        },
    },
    "required": ["code", "message"],
}


def process_routes(document_path: str) -> Iterable[Route]:
    """Return the routes by which every door tells of its process; they need no token."""
    yield Route(
        method="GET",
        path=document_path,
        name="getOpenapi",
        summary="This document",
        tag=PROCESS,
        bearer=False,
        answers=(Answer(status=200, doc="The document.", media={JSON: {"type": "object"}}),),
    )
    yield Route(
        method="GET",
        path="/healthz",
        name="getHealth",
        summary="Ask whether the process answers",
        tag=PROCESS,
        bearer=False,
        answers=(
            Answer(
                status=200,
                doc="It does.",
                media={JSON: reference("Health")},
                example={"status": "ok"},
            ),
        ),
    )
    yield Route(
        method="GET",
        path="/readyz",
        name="getReadiness",
        summary="Ask whether what the process needs can be used",
        doc="Each dependency is asked for at most 2 s, all at once.",
        tag=PROCESS,
        bearer=False,
        answers=tuple(
            Answer(
                status=status,
                doc=doc,
                media={JSON: reference("Readiness")},
                example={"status": said, "checks": {"presence": "ok", "store": told}},
            )
            for status, doc, said, told in (
                (200, "All of it.", "ready", "ok"),
                (503, "Not all of it.", "not ready", "no answer within 2 s"),
            )
        ),
    )


HEALTH_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "The process answers.",
    "properties": {"status": {"const": "ok"}},
    "required": ["status"],
    "additionalProperties": False,
}

READINESS_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "Whether what the process needs can be used.",
    "properties": {
        "status": {"enum": ["ready", "not ready"]},
        "checks": {
            "type": "object",
            "description": "By dependency: `ok`, or what is wrong with it.",
            "additionalProperties": {"type": "string"},
        },
    },
    "required": ["status", "checks"],
    "additionalProperties": False,
}
