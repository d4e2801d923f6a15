"""Writes the OpenAPI 3.1 document of a door from its routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ahcollector._openapi import JSON, Answer, Parameter, Route, Schema, header

__all__ = ["document"]

_SECURITY: Final = "bearer"

#: The headers that every answer has.
_EVERY_ANSWER: Final[Mapping[str, Schema]] = {
    "X-Request-Id": header(
        "The id of the request: the caller's own when it is fit for a log line, else a fresh one.",
        {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,64}$"},
    )
}


def document(
    *,
    title: str,
    version: str,
    doc: str,
    bearer_doc: str,
    tags: Mapping[str, str],
    routes: Sequence[Route],
    schemas: Mapping[str, Schema],
    root_path: str = "",
) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a door.

    Args:
        title: Its name.
        version: The version of what it is a part of.
        doc: What the door is, in Markdown.
        bearer_doc: Whose token it wants.
        tags: The groups of routes, with what each is.
        routes: The door's routes, in the order in which they are shown.
        schemas: What the routes refer to by name.
        root_path: Where the application is mounted.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version,
            "description": doc,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
        "servers": [{"url": root_path or "/"}],
        "tags": [{"name": name, "description": text} for name, text in tags.items()],
        "paths": paths,
        "components": {
            "schemas": {name: dict(schema) for name, schema in schemas.items()},
            "securitySchemes": {
                _SECURITY: {"type": "http", "scheme": "bearer", "description": bearer_doc}
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
    }
    if route.doc:
        found["description"] = route.doc
    if route.parameters:
        found["parameters"] = [_parameter(one) for one in route.parameters]
    if route.body is not None:
        found["requestBody"] = {
            "description": route.body.doc,
            "required": route.body.required,
            "content": _content(route.body.media, route.body.example),
        }
    found["responses"] = {str(answer.status): _response(answer) for answer in route.answers}
    found["security"] = [{_SECURITY: []}] if route.bearer else []
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place.value,
        "description": parameter.doc,
        "required": parameter.required,
        "schema": dict(parameter.schema),
    }
    if parameter.example is not None:
        whole = parameter.schema.get("type") == "integer"
        found["example"] = int(parameter.example) if whole else parameter.example
    return found


def _response(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": answer.doc,
        "headers": {name: dict(one) for name, one in {**_EVERY_ANSWER, **answer.headers}.items()},
    }
    if answer.media:
        found["content"] = _content(answer.media, answer.example)
    return found


def _content(media: Mapping[str, Schema], example: Any) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, schema in media.items():
        content[name] = {"schema": dict(schema)}
        if example is not None and name == JSON:
            content[name]["example"] = example
    return content
