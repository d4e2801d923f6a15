"""Writes the reference of an HTTP door in Markdown from its OpenAPI document."""

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

JSON = "application/json"
WIDTH = 100


def rows(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; empty cells stay empty, bars are escaped."""
    every = [heads, ["---"] * len(heads), *lines]
    escaped = ([str(cell).replace("|", "\\|") for cell in line] for line in every)
    return "".join("| " + " | ".join(line) + " |\n" for line in escaped)


def http_page(module: str) -> str:
    """All routes of a door by their groups, then what their bodies hold."""
    document = importlib.import_module(module).openapi_document()
    pieces = [document["info"]["description"] + "\n"]
    for tag in document["tags"]:
        pieces.append(f"## {tag['name'].capitalize()}\n\n{tag['description']}\n")
        pieces += [
            _operation(method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if operation["tags"] == [tag["name"]]
        ]
    pieces.append("## What bodies hold\n")
    schemas = document["components"]["schemas"]
    pieces += [
        f"### {name} {{ #{_anchor(name)} }}\n\n{_object(schema)}"
        for name, schema in sorted(schemas.items())
    ]
    return "\n" + "\n".join(pieces) + "\n"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    pieces = [f"### {operation['summary']}\n", f"`{method.upper()} {path}`\n"]
    if "description" in operation:
        pieces.append(operation["description"] + "\n")
    if "parameters" in operation:
        pieces.append(
            rows(
                ("parameter", "in", "values", "what it is"),
                (
                    (
                        f"`{one['name']}`" + (" (required)" if one["required"] else ""),
                        one["in"],
                        _values(one["schema"]),
                        one["description"],
                    )
                    for one in operation["parameters"]
                ),
            )
        )
    if "requestBody" in operation:
        body = operation["requestBody"]
        optional = "" if body["required"] else " May be absent."
        pieces.append(f"Body: {_media(body['content'])}. {body['description']}{optional}\n")
    pieces += _example(method, path, operation)
    answers = (
        (status, _media(one.get("content", {})), one["description"])
        for status, one in operation["responses"].items()
    )
    pieces.append(rows(("status", "body", "when"), answers))
    return "\n".join(pieces)


def _media(content: Mapping[str, Any]) -> str:
    """Media types, and the schema that their JSON is of."""
    named = [_name(one["schema"]) for one in content.values() if "$ref" in one["schema"]]
    types = ", ".join(f"`{media}`" for media in content)
    return f"{_link(named[0])}: {types}" if named else types


def _anchor(name: str) -> str:
    # A group of routes can have the same name.
    return f"body-{name.lower()}"


def _link(name: str) -> str:
    return f"[{name}](#{_anchor(name)})"


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1]


def _example(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    places: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
    for one in operation.get("parameters", []):
        if "example" in one:
            places[one["in"]][one["name"]] = str(one["example"])
    query = f"?{urlencode(places['query'])}" if places["query"] else ""
    lines = [f"{method.upper()} {path.format(**places['path'])}{query} HTTP/1.1"]
    if operation["security"]:
        lines.append("Authorization: Bearer …")
    lines += [f"{name}: {value}" for name, value in places["header"].items()]
    content = operation.get("requestBody", {}).get("content", {})
    shown = content.get(JSON, {})
    if content:
        lines.append(f"Content-Type: {JSON if 'example' in shown else next(iter(content))}")
    if "example" in shown:
        lines += ["", _json(shown["example"])]
    status, answer = next(iter(operation["responses"].items()))
    lines += ["", f"HTTP/1.1 {status}"]
    good = answer.get("content", {}).get(JSON, {})
    if "example" in good:
        lines += [f"Content-Type: {JSON}", "", _json(good["example"])]
    yield "```http\n" + "\n".join(lines) + "\n```\n"


def _json(value: Any, room: int = WIDTH, indent: str = "") -> str:
    """JSON as a person writes it: on one line where it has room."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) <= room or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        lines = [
            f"{json.dumps(key)}: {_json(one, room - len(inner) - len(key) - 4, inner)}"
            for key, one in value.items()
        ]
        opened, closed = "{}"
    else:
        lines = [_json(one, room - len(inner), inner) for one in value]
        opened, closed = "[]"
    return f"{opened}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{closed}"


def _object(schema: Mapping[str, Any]) -> str:
    said = schema.get("description", "")
    if "properties" not in schema:
        kinds = "; ".join(_values(one) for one in schema.get("oneOf", [schema]))
        return f"{said} {kinds}.\n"
    required = set(schema.get("required", ()))
    strict = schema.get("additionalProperties") is False
    fields = (
        (
            f"`{name}`" + ("" if strict or not required or name not in required else " (required)"),
            _values(one),
            one.get("description", ""),
        )
        for name, one in schema["properties"].items()
    )
    return f"{said}\n\n" + rows(("field", "values", "what it is"), fields)


def _values(schema: Mapping[str, Any]) -> str:
    """What a schema takes, in a few words."""
    if "$ref" in schema:
        return _link(_name(schema))
    if "anyOf" in schema:
        return " or ".join(_values(one) for one in schema["anyOf"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`".replace('"', "")
    if "enum" in schema:
        said = ", ".join(f"`{one}`" for one in schema["enum"])
        return said + _default(schema)
    kind = schema.get("type", "anything")
    if kind == "array":
        pair = [_values(one) for one in schema.get("prefixItems", ())]
        return f"[{', '.join(pair)}]" if pair else f"list of {_values(schema['items'])}"
    if kind == "object":
        return _object_values(schema)
    if kind in ("integer", "number"):
        return _number(schema) + _default(schema)
    if kind == "string":
        return _text(schema)
    return {"null": "null", "boolean": "true or false"}.get(kind, str(kind))


def _object_values(schema: Mapping[str, Any]) -> str:
    if "properties" in schema:
        inner = ", ".join(f"`{name}`: {_values(one)}" for name, one in schema["properties"].items())
        return "{" + inner + "}"
    more = schema.get("additionalProperties")
    return f"map of {_values(more)}" if more else "object"


def _number(schema: Mapping[str, Any]) -> str:
    word = "whole number" if schema["type"] == "integer" else "number"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f"{word} from {least} to {most}"
    return f"{word} from {least}" if least is not None else word


def _default(schema: Mapping[str, Any]) -> str:
    return f", default `{schema['default']}`" if "default" in schema else ""


def _text(schema: Mapping[str, Any]) -> str:
    known = {"date-time": "RFC 3339 time", "int64": "int64 as text", "uint64": "uint64 as text"}
    if schema.get("format") in known:
        return known[schema["format"]]
    if "pattern" in schema:
        return f"text like `{schema['pattern']}`"
    if "maxLength" in schema:
        return f"text of {schema.get('minLength', 0)} to {schema['maxLength']} characters"
    return "text"
