"""Writes what the messages between collector and hub hold, from the docstrings of `ahwire.hub`."""

import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import datetime

import attrs
from http_reference import rows

_ATTRIBUTES = "\nAttributes:\n"
_NAMES: Mapping[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true, false",
    datetime: "instant (RFC 3339)",
}


def hub_messages() -> str:
    """Each message: what it is, and a table of its fields."""
    hub = importlib.import_module("ahwire.hub")
    found = [getattr(hub, name) for name in hub.__all__]
    kinds = [one for one in found if inspect.isclass(one) and attrs.has(one)]
    return "\n" + "\n".join(_message(kind) for kind in kinds) + "\n"


def _message(kind: type) -> str:
    name, json_name = kind.__name__, importlib.import_module("ahwire._json").JSON_NAME
    text, _, section = (inspect.getdoc(kind) or "").partition(_ATTRIBUTES)
    meanings = dict(_meanings(section))
    hints = typing.get_type_hints(kind)
    lines = (
        (
            f"`{field.metadata.get(json_name, field.name)}`",
            _shown(hints[field.name]),
            "required" if field.default is attrs.NOTHING else "",
            meanings[field.name],
        )
        for field in attrs.fields(kind)
    )
    table = rows(("field", "values", "", "what it is"), lines)
    return f"### {name} {{ #body-{name.lower()} }}\n\n{text.strip()}\n\n{table}"


def _meanings(section: str) -> Iterator[tuple[str, str]]:
    """Name and text of each entry of a section `Attributes`."""
    for name, text in re.findall(r"^    (\w+): ((?:.|\n {8})+)", section, re.MULTILINE):
        # What a program does with the value is for the page of the package.
        yield name, " ".join(text.split()).replace(" Copied; treat as read-only.", "")


def _shown(hint: object) -> str:
    """A field's type as a reader of JSON sees it."""
    inner = [one for one in typing.get_args(hint) if one not in (type(None), ...)]
    origin = typing.get_origin(hint)
    if origin is types.UnionType or origin is typing.Union:
        return _shown(inner[0]) if len(inner) == 1 else "any JSON"
    if origin is tuple:
        return f"list of {_shown(inner[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"object of {_shown(inner[1])}"
    if attrs.has(typing.cast("type", hint)):
        name = typing.cast("type", hint).__name__
        return f"[{name}](#body-{name.lower()})"
    if isinstance(hint, type) and hasattr(hint, "__members__"):
        return ", ".join(f"`{one}`" for one in typing.cast("typing.Any", hint))
    return _NAMES.get(hint, "any JSON")
