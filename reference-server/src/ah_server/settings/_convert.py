"""Turns what a settings file or a variable holds into the type that a setting has."""

import ipaddress
import json
import os
import re
import types
import typing
from pathlib import Path
from typing import Any

from ah_server.settings._checks import shown
from ah_server.settings._fields import Address, Network, Shards

_NETWORKS_MAX = 256
_BETWEEN_NETWORKS = re.compile(r"[,\s]+")
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def converted(kind: Any, value: Any) -> Any:
    """The value as the type of its setting says.

    Raises:
        ValueError: It is not of that type; the text says what was expected.
    """
    if typing.get_origin(kind) is tuple:
        return _networks(value)
    example = "127.0.0.1:8420"
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        # Where no address need be set, it is the one of a Redis.
        example = "127.0.0.1:6379"
        kind = next(member for member in typing.get_args(kind) if member is not type(None))
        if kind is Address and value == "":
            return None
    if kind is bool:
        return _truth(value)
    if kind is Path:
        return _path(value)
    if kind is Shards:
        return _shards(value)
    if kind in (Address, str):
        if not isinstance(value, str):
            raise ValueError(
                "expected text; put it in quotes"
                if kind is str
                else f"expected host:port, as in {example}"
            )
        if not value.isprintable():
            raise ValueError("expected text in one line without control characters")
        return value if kind is str else Address.parse(value, example=example)
    return _number(kind, value)


def json_mapping(text: str) -> dict[str, Any]:
    """The JSON object that a variable holds; an empty text is an empty one.

    Raises:
        ValueError: It is none, or has a key twice. What stands there is not quoted.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected a JSON object; {error.msg} in column {error.colno}") from None
    except RecursionError:
        raise ValueError("expected a JSON object that is not nested so deeply") from None
    except ValueError as error:
        raise ValueError(f"expected a JSON object; {error}") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one of its objects")
    return found


def _shards(value: Any) -> Shards:
    """Shards, as one text, one number, or a list of both."""
    pieces = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in pieces):
        raise ValueError("expected all, or numbers and ranges, as in 0-31,40")
    # A number nobody can use may be one that Python itself refuses to write out.
    return Shards.parse(",".join(one if isinstance(one, str) else shown(one) for one in pieces))


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a path")
    try:
        # Bytes that are no UTF-8 come from the environment as surrogates, and are a path too.
        controls = any(byte < ord(" ") for byte in os.fsencode(value))
    except UnicodeEncodeError:
        controls = True
    if controls:
        raise ValueError("expected a path without control characters")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("the user after ~ does not exist; write the path out") from None


def _number(kind: type, value: Any) -> Any:
    expected = "expected a number" if kind is float else "expected a whole number"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(expected)
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        raise ValueError(expected)
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        raise ValueError(expected) from None
    if kind is int and isinstance(value, float) and number != value:
        raise ValueError(expected)
    return number


def _truth(value: Any) -> bool:
    """True and false as YAML has them; as words, because the environment has no others."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in _TRUE + _FALSE:
        raise ValueError("expected true or false")
    return value.lower() in _TRUE


def _networks(value: Any) -> tuple[Network, ...]:
    """Networks, as a list or as one text with commas or spaces in between."""
    expected = "expected addresses or networks, as in 10.0.0.0/8, 192.0.2.7"
    if isinstance(value, str):
        if not value.isprintable():
            raise ValueError(f"{expected}, in one line without control characters")
        value = [text for text in _BETWEEN_NETWORKS.split(value) if text]
    if not isinstance(value, list):
        raise ValueError(expected)
    if len(value) > _NETWORKS_MAX:
        raise ValueError(f"{expected}, and {_NETWORKS_MAX} of them at most")
    return tuple(_network(one, expected) for one in value)


def _network(value: Any, expected: str) -> Network:
    if not isinstance(value, str):
        raise ValueError(f"an entry is {shown(value)}; {expected}")
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise ValueError(f"an entry is {shown(value)}; {expected}") from None
    if "/" in value and ipaddress.ip_address(value.split("/")[0]) != network.network_address:
        # One digit too few in the mask would trust a whole company instead of one machine.
        raise ValueError(
            f"an entry is {shown(value)}, an address within a network; write {network}, or the"
            " address alone"
        )
    return network
