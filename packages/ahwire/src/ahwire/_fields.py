"""The kinds of field that JSON contracts are made of: attrs fields with their checks.

A check runs when a value is built, so a value that exists keeps its contract, whether it was
decoded or made by hand, and encodes to what decodes again. Checks take the exact JSON type: a bool
is no number, and a number is no string.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import attrs

from ahwire.errors import DecodeError
from ahwire.ids import is_uuid7
from ahwire.names import is_id

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | Mapping[str, JsonValue] | None"
Validator: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], None]

TEXT_CHARS_MAX = 1_024
NAME_CHARS_MAX = 256
SERIES_KEY_CHARS_MAX = 64 * 1_024
JSON_DEPTH_MAX = 32
_JSON_SCALARS = frozenset({str, int, float, bool, type(None)})
_INT64_MAX = (1 << 63) - 1
_SHOWN_CHARS = 80
_INTEGER_BITS_MAX = 12_000
_HEX64 = re.compile(r"[0-9a-f]{64}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = re.compile(r"[!-~]+")
_DURATION = re.compile(
    r"P(?=[0-9T])(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?"
)
_WALL_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_SURROGATE = re.compile("[\ud800-\udfff]")


def shown(value: object) -> str:
    """A value for an error message, cut to a line."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # Nested nearly as deep as the stack, or an integer of more digits than Python writes.
        return f"<{type_name(value)}>"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def type_name(value: object) -> str:
    """The name that JSON has for the value's type."""
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "an array",
        tuple: "an array",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def _fail(attribute: "attrs.Attribute[Any]", reason: str) -> DecodeError:
    return DecodeError(field=attribute.name, reason=reason)


def _text(attribute: "attrs.Attribute[Any]", value: object, chars_max: int) -> str:
    """The value as a string that can be sent, or DecodeError."""
    if not isinstance(value, str):
        raise _fail(attribute, f"expected a string, got {type_name(value)}")
    if len(value) > chars_max:
        raise _fail(attribute, f"has {len(value)} characters; at most {chars_max} are taken")
    if not is_utf8(value):
        raise _fail(attribute, "holds half of a surrogate pair, which UTF-8 cannot carry")
    return value


def text(chars_min: int = 1, chars_max: int = NAME_CHARS_MAX) -> Validator:
    """A string of so many characters, without lone surrogates."""

    def check(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if type(value) is str and chars_min <= len(value) <= chars_max and value.isascii():
            return  # nearly all are
        if len(_text(attribute, value, chars_max)) < chars_min:
            raise _fail(attribute, "is empty; it must have a value")

    return check


def identity(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """A company, server or agent id."""
    if not is_id(_text(attribute, value, TEXT_CHARS_MAX)):
        reason = (
            f"{shown(value)} is no id; one has 1 to 128 letters, digits, '_', '.', ':' and '-', "
            "and begins with a letter or a digit"
        )
        raise _fail(attribute, reason)


def sha256_hex(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """A hash of a token. It is close to a secret, so it is not shown."""
    if not _HEX64.fullmatch(_text(attribute, value, TEXT_CHARS_MAX)):
        raise _fail(attribute, "is no SHA-256; one is 64 lower-case hex digits")


def token(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """A bearer token: visible ASCII, so that it fits in a header. Never shown."""
    if not _TOKEN.fullmatch(_text(attribute, value, TEXT_CHARS_MAX)):
        raise _fail(attribute, "is no token; one has 1 to 1,024 visible ASCII characters")


def is_ip_address(address: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address."""
    if _IPV4.fullmatch(address):
        return True
    import ipaddress  # noqa: PLC0415  # slow to import, and few users need it

    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def ip_address(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """An IPv4 or IPv6 address as text; no leading zeros, no prefix length."""
    address = _text(attribute, value, NAME_CHARS_MAX)
    if not is_ip_address(address):
        raise _fail(attribute, f"{shown(value)} is no IPv4 or IPv6 address")


def duration(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """An ISO 8601 duration of days or less, such as `PT1M`."""
    if not _DURATION.fullmatch(_text(attribute, value, NAME_CHARS_MAX)):
        raise _fail(attribute, f"{shown(value)} is no ISO 8601 duration, such as PT5M")


def wall_time(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """A time of the wall clock to the minute, such as `09:30`."""
    if not _WALL_TIME.fullmatch(_text(attribute, value, NAME_CHARS_MAX)):
        raise _fail(attribute, f"{shown(value)} is no time of the day, such as 09:30")


def uuid7(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """A UUIDv7 in canonical form."""
    if not is_uuid7(_text(attribute, value, TEXT_CHARS_MAX)):
        raise _fail(attribute, f"{shown(value)} is no UUIDv7 in lower case with hyphens")


def uuid(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """A UUID of any version in canonical form."""
    if not _UUID.fullmatch(_text(attribute, value, TEXT_CHARS_MAX)):
        raise _fail(attribute, f"{shown(value)} is no UUID in lower case with hyphens")


def integer(least: int = -_INT64_MAX - 1, most: int = _INT64_MAX) -> Validator:
    """A whole number in a range, at most that of int64."""

    def check(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if type(value) is not int:
            raise _fail(attribute, f"expected an integer, got {type_name(value)}")
        if not least <= value <= most:
            raise _fail(attribute, f"{shown(value)} is outside {least} to {most}")

    return check


def number(least: float = -math.inf, most: float = math.inf) -> Validator:
    """A finite number from `least` to `most`. Goes with the converter `as_float`."""

    def check(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if type(value) is not float:
            raise _fail(attribute, f"expected a number, got {type_name(value)}")
        if not math.isfinite(value):
            raise _fail(attribute, f"{value} is not finite")
        if not least <= value <= most:
            raise _fail(attribute, f"{value} is outside {least} to {most}")

    return check


def as_float(value: float | None) -> float | None:
    """Makes whole numbers floats and -0.0 plain zero, so that equal values encode equally."""
    found: object = value  # what the type hint promises may not hold for JSON
    if type(found) is float:
        return found + 0.0
    if type(found) is not int:
        return value
    try:
        return float(found)
    except OverflowError:
        return math.inf  # which the validator refuses by name


def as_number(value: float) -> float:
    """As `as_float`, for a field that is required."""
    converted = as_float(value)
    return value if converted is None else converted


def as_cut_text(value: str | None) -> str | None:
    """Text cut to 1,024 characters that UTF-8 can carry, for errors of other programs."""
    if not isinstance(value, str):
        return value
    return _SURROGATE.sub("\ufffd", value[:TEXT_CHARS_MAX])


def as_short_text(value: str) -> str:
    """As `as_cut_text`, for a field that is required."""
    cut = as_cut_text(value)
    return value if cut is None else cut


def boolean(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """True or false, not 0 or 1."""
    if type(value) is not bool:
        raise _fail(attribute, f"expected a boolean, got {type_name(value)}")


def moment(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """An aware time. Goes with the converter `as_utc`."""
    if not isinstance(value, datetime):
        raise _fail(attribute, f"expected a time, got {type_name(value)}")
    if value.tzinfo is None:
        raise _fail(attribute, f"{shown(value)} has no time zone; give it one, such as UTC")


def as_utc(value: datetime | None) -> datetime | None:
    """The same instant in UTC; what has no zone stays as it is, for the validator to refuse."""
    if not isinstance(value, datetime) or value.tzinfo is None or value.tzinfo is UTC:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return value.replace(tzinfo=None)


def instance(kind: type | tuple[type, ...]) -> Validator:
    """A value of our own classes or enums."""

    def check(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if not isinstance(value, kind):
            names = (
                kind.__name__
                if isinstance(kind, type)
                else " or ".join(each.__name__ for each in kind)
            )
            raise _fail(attribute, f"expected {names}, got {type_name(value)}")

    return check


def items(check_item: Validator, least: int = 0, most: int | None = None) -> Validator:
    """A tuple whose items pass a check; errors name the index."""

    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if not isinstance(value, tuple):
            raise _fail(attribute, f"expected a tuple, got {type_name(value)}")
        if len(value) < least or (most is not None and len(value) > most):
            bound = f"at least {least}" if most is None else f"{least} to {most}"
            raise _fail(attribute, f"has {len(value)} items; {bound} are taken")
        for index, item in enumerate(value):
            try:
                check_item(instance, attribute, item)
            except DecodeError as error:
                raise DecodeError(
                    field=f"{attribute.name}[{index}]", reason=error.reason
                ) from error

    return check


def as_json(value: object) -> Any:
    """A deep copy of a JSON value in plain dicts and lists, so that no later change reaches us.

    What is no JSON stays in the copy, for the validator to refuse; so does everything too deep.
    """
    return _copy(value, JSON_DEPTH_MAX)


def _copy(value: object, depth_left: int) -> Any:
    if depth_left < 0:
        return value
    if type(value) in _JSON_SCALARS:
        return value
    if isinstance(value, Mapping):
        return {key: _copy(item, depth_left - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item, depth_left - 1) for item in value]
    return value


def json_object(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """An object of any JSON values, at most 32 deep. Goes with the converter `as_json`."""
    if type(value) is not dict:
        raise _fail(attribute, f"expected an object, got {type_name(value)}")
    _check_json(attribute, value, JSON_DEPTH_MAX)


def is_name(value: object) -> bool:
    """Whether `text()` takes the value."""
    return type(value) is str and 0 < len(value) <= NAME_CHARS_MAX and is_utf8(value)


def is_utf8(value: str) -> bool:
    """Whether UTF-8 can carry the text: no half of a surrogate pair is in it."""
    return value.isascii() or not _SURROGATE.search(value)


def is_json(value: object, depth_left: int = JSON_DEPTH_MAX) -> bool:
    """Whether `json_object` takes what a JSON parser made, or what stands in it."""
    if depth_left < 0:
        return False
    kind = type(value)
    if kind is str:
        return is_utf8(value)  # type: ignore[arg-type]  # kind is str
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]  # noqa: SIM110 - kind is dict; a loop is twice as fast
            if not (is_utf8(key) and is_json(item, depth_left - 1)):
                return False
        return True
    if kind is list:
        for item in value:  # type: ignore[attr-defined]  # noqa: SIM110 - kind is list; as above
            if not is_json(item, depth_left - 1):
                return False
        return True
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]  # kind is float
    return kind is not int or is_short_integer(value)  # type: ignore[arg-type]  # kind is int


def is_short_integer(value: int) -> bool:
    """Whether every reader of JSON in Python takes the integer; it reads 4,300 digits at most."""
    return value.bit_length() <= _INTEGER_BITS_MAX


def _check_json(attribute: "attrs.Attribute[Any]", value: object, depth_left: int) -> None:
    if depth_left < 0:
        raise _fail(attribute, f"is nested deeper than {JSON_DEPTH_MAX}")
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise _fail(attribute, f"has the key {shown(key)}; keys are strings")
            _text(attribute, key, 1 << 24)
            _check_json(attribute, item, depth_left - 1)
    elif isinstance(value, list):
        for item in value:
            _check_json(attribute, item, depth_left - 1)
    else:
        _check_scalar(attribute, value)


def _check_scalar(attribute: "attrs.Attribute[Any]", value: object) -> None:
    kind = type(value)
    if kind not in _JSON_SCALARS:
        raise _fail(attribute, f"holds a value of type {kind.__name__}, which JSON cannot carry")
    if isinstance(value, str):
        _text(attribute, value, 1 << 24)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _fail(attribute, f"holds {value!r}, which JSON cannot carry")
    elif isinstance(value, int) and not is_short_integer(value):
        raise _fail(attribute, "holds an integer of thousands of digits, which few can read")


def mapping(check_key: Validator, check_value: Validator, most: int) -> Validator:
    """An object with checked keys and values; errors name the key. Goes with `as_json`."""

    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if type(value) is not dict:
            raise _fail(attribute, f"expected an object, got {type_name(value)}")
        if len(value) > most:
            raise _fail(attribute, f"has {len(value)} keys; at most {most} are taken")
        for key, item in value.items():
            check_key(instance, attribute, key)
            try:
                check_value(instance, attribute, item)
            except DecodeError as error:
                raise DecodeError(field=f"{attribute.name}.{key}", reason=error.reason) from error

    return check
