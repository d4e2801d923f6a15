"""JSON in and out of the contract values.

**Decoding** takes UTF-8 JSON text (no byte order mark, no NaN, no Infinity; of a repeated key the
last counts), refuses what is over the contract's size before it is parsed, ignores unknown fields,
takes `null` for an absent optional one, and answers everything else with a DecodeError that names
the field. **Encoding** is canonical: keys sorted, no spaces, UTF-8 (nothing escaped that need not
be), optional fields that have their default left out, times in UTC as
`YYYY-MM-DDTHH:MM:SS[.ffffff]Z`. Equal values give equal bytes; only what is free JSON (a payload,
an event's labels, an inventory) keeps its kinds of number, which Python holds for equal.

cattrs does the walking; it is imported and set up when the first value is decoded or encoded, so
that `import ahwire` stays quick.
"""

import functools
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NoReturn,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import attrs

from ahwire._fields import shown, type_name
from ahwire.errors import DecodeError
from ahwire.limits import MAX_HUB_BYTES

if TYPE_CHECKING:
    from cattrs import Converter

Hook = Callable[[Any, Any], Any]
Contract = TypeVar("Contract", bound="JsonContract")

_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,18})?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_SCALARS = (str, int, float, bool)
ALWAYS_SENT = "ahwire.always_sent"
"""Metadata of a field that is encoded even when it has its default."""
JSON_NAME = "ahwire.json_name"
"""Metadata of a field whose name in JSON cannot be that of an attribute: the name in JSON."""


class JsonContract:
    """A value with a JSON form. Subclasses are attrs classes.

    One that is decoded very often may have a static method `_json_accept(document)`: it gives the
    value of an object that plainly keeps the contract, and None for any other, which then goes the
    long way that finds the field at fault.
    """

    __slots__ = ()

    _json_bytes_max: ClassVar[int] = MAX_HUB_BYTES
    _json_may_be_wrapped: ClassVar[bool] = False
    _json_aliases: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The value that the JSON text stands for; unknown fields are ignored.

        Args:
            data: UTF-8 JSON text.

        Raises:
            DecodeError: it is no JSON, too large, or not of this contract; `field` says where.
        """
        document = _parse(data, cls._json_bytes_max)
        if cls._json_may_be_wrapped:
            document = _unwrap(document, cls)
        kind: Any = cls
        value: Self = _hook(kind)(document, kind)
        return value

    def to_json(self) -> bytes:
        """The canonical JSON text, UTF-8; equal values give equal bytes."""
        document = _converter().unstructure(self)
        return json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()


def _parse(data: bytes, bytes_max: int) -> object:
    if len(data) > bytes_max:
        reason = f"the document has {len(data)} bytes; at most {bytes_max} are taken"
        raise DecodeError(field="", reason=reason)
    try:
        return _DECODER.decode(data.decode())
    except RecursionError as error:
        raise DecodeError(field="", reason="the document is nested too deeply") from error
    except DecodeError:
        raise
    except ValueError as error:
        # UnicodeDecodeError holds the whole document, so its text is made here.
        what = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error)
        reason = f"the document is no JSON in UTF-8 ({what})"
        raise DecodeError(field="", reason=reason) from None


def _refuse_constant(name: str) -> NoReturn:
    raise DecodeError(field="", reason=f"the document holds {name}, which is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _unwrap(document: object, cls: type[Any]) -> object:
    """What stands in `{"data": …}`, unless the document has fields of the contract itself."""
    if isinstance(document, dict) and isinstance(document.get("data"), dict):
        names = {attribute.name for attribute in attrs.fields(cls)}
        if names.isdisjoint(document):
            return document["data"]
    return document


def join_path(name: str, rest: str) -> str:
    """`a` and `b` make `a.b`; `a` and `[3].b` make `a[3].b`."""
    if not rest:
        return name
    return name + rest if rest.startswith("[") else f"{name}.{rest}"


@functools.cache
def _hook(cls: type) -> Hook:
    """What structures a class; found once, since the converter looks for it anew each time."""
    return _converter().get_structure_hook(cls)


@functools.cache
def _converter() -> "Converter":
    from cattrs import Converter  # noqa: PLC0415  # slow to import

    converter = Converter(detailed_validation=False, omit_if_default=True)
    # Scalars pass as they are: cattrs would turn 1 into "1", our validators refuse it.
    for scalar in _SCALARS:
        converter.register_structure_hook(scalar, _as_is)
    converter.register_structure_hook(datetime, _structure_time)
    converter.register_unstructure_hook(datetime, _unstructure_time)
    converter.register_structure_hook_func(_is_mapping, _as_is)
    converter.register_unstructure_hook_func(_is_mapping, lambda value: value)
    converter.register_structure_hook(StrEnum, _structure_enum)
    converter.register_structure_hook_factory(
        _is_tuple, lambda kind: _tuple_hook(converter, get_args(kind)[0])
    )
    converter.register_structure_hook_factory(attrs.has, lambda cls: _class_hook(converter, cls))
    converter.register_unstructure_hook_factory(
        attrs.has, lambda cls: _class_unstructure_hook(converter, cls)
    )
    converter.register_structure_hook_factory(
        _is_union_of_contracts, lambda kind: _union_hook(converter, get_args(kind))
    )
    return converter


def _as_is(value: Any, _kind: Any) -> Any:
    return value


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) is Mapping


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _is_union_of_contracts(kind: Any) -> bool:
    return get_origin(kind) in {Union, UnionType} and all(attrs.has(arg) for arg in get_args(kind))


def accept_time(value: object) -> datetime | None:
    """The time in UTC when the value is a plain one; None leaves it to `_structure_time`."""
    if type(value) is not str or not _TIME.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def build_accepted(cls: type[Contract], values: Mapping[str, object]) -> Contract:
    """A value of an attrs class from values that its converters and checks would pass as they are.

    Building one in the usual way takes longer than to parse its JSON, most of it for those checks.
    """
    value = object.__new__(cls)
    put = object.__setattr__.__get__(value)
    for name, item in values.items():
        put(name, item)
    return value


def _structure_time(value: Any, _kind: Any) -> datetime:
    """RFC 3339 to a datetime; digits beyond microseconds are cut off."""
    if type(value) is not str:
        raise DecodeError(field="", reason=f"expected a time as a string, got {type_name(value)}")
    if not _TIME.fullmatch(value):
        raise DecodeError(
            field="", reason=f"{shown(value)} is no RFC 3339 time, such as 2026-06-15T10:20:30Z"
        )
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise DecodeError(field="", reason=f"{shown(value)} is no time: {error}") from error


def _unstructure_time(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat() + "Z"


def _structure_enum(value: Any, kind: Any) -> Any:
    # Only text is looked up: an enum shows in its error what it was asked for, however deep it is.
    if type(value) is str:
        try:
            return kind(value)
        except ValueError:
            pass
    allowed = ", ".join(kind)
    what = shown(value) if type(value) is str else type_name(value)
    raise DecodeError(field="", reason=f"{what} is not one of: {allowed}")


def _tuple_hook(converter: "Converter", item_kind: Any) -> Hook:
    item_hook = converter.get_structure_hook(item_kind)

    def structure(value: Any, _kind: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise DecodeError(field="", reason=f"expected an array, got {type_name(value)}")
        result = []
        for index, item in enumerate(value):
            try:
                result.append(item_hook(item, item_kind))
            except DecodeError as error:
                path = join_path(f"[{index}]", error.field)
                raise DecodeError(field=path, reason=error.reason) from None
        return tuple(result)

    return structure


def _class_hook(converter: "Converter", cls: Any) -> Hook:
    from cattrs.gen import make_dict_structure_fn, override  # noqa: PLC0415  # slow to import

    named: dict[str, Any] = {
        attribute.name: override(struct_hook=_named_hook(converter, attribute))
        for attribute in attrs.fields(cls)
        if _may_fail(attribute.type)
    }
    build = make_dict_structure_fn(cls, converter, **named)
    renamed = _renamed(cls)
    # Swapped, so that the attribute's name is as unknown to JSON as any other.
    swapped = {**renamed, **{name: attribute for attribute, name in renamed.items()}}
    aliases: Mapping[str, str] = {**cls._json_aliases, **swapped}  # the class is a JsonContract
    optional = {each.name for each in attrs.fields(cls) if each.default is not attrs.NOTHING}
    # Its own, not one that it inherits: that makes values of its base.
    accept = cls.__dict__.get("_json_accept")
    at_once: Callable[[Any], Any] | None = accept.__func__ if accept is not None else None

    def structure(value: Any, kind: Any) -> Any:
        if type(value) is not dict:
            raise DecodeError(field="", reason=f"expected an object, got {type_name(value)}")
        if at_once is not None and (accepted := at_once(value)) is not None:
            return accepted
        document = (
            {aliases.get(key, key): item for key, item in value.items()} if aliases else value
        )
        if None in document.values():
            document = {
                key: item
                for key, item in document.items()
                if item is not None or key not in optional
            }
        try:
            return build(document, kind)
        except KeyError as error:
            name = str(error.args[0])
            raise DecodeError(field=renamed.get(name, name), reason="is missing") from None
        except DecodeError as error:
            if error.field not in renamed:
                raise
            raise DecodeError(field=renamed[error.field], reason=error.reason) from None

    return structure


def _renamed(cls: Any) -> dict[str, str]:
    """Attributes whose name in JSON is another, and that name; all of them are scalars."""
    return {
        attribute.name: attribute.metadata[JSON_NAME]
        for attribute in attrs.fields(cls)
        if JSON_NAME in attribute.metadata
    }


def _may_fail(kind: Any) -> bool:
    """Whether structuring it can fail: scalars and mappings pass, and are judged when built."""
    kinds = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    return not all(each in _SCALARS or each is type(None) or _is_mapping(each) for each in kinds)


def _named_hook(converter: "Converter", attribute: "attrs.Attribute[Any]") -> Hook:
    """The hook of an attribute's type, with the attribute's name put before the errors' paths."""
    hook = converter.get_structure_hook(attribute.type)

    def structure(value: Any, kind: Any) -> Any:
        try:
            return hook(value, kind)
        except DecodeError as error:
            path = join_path(attribute.name, error.field)
            raise DecodeError(field=path, reason=error.reason) from None

    return structure


def _union_hook(converter: "Converter", kinds: tuple[Any, ...]) -> Hook:
    """The first class whose required fields are all there, else the last."""
    required = [
        (kind, {each.name for each in attrs.fields(kind) if each.default is attrs.NOTHING})
        for kind in kinds
    ]

    def structure(value: Any, _kind: Any) -> Any:
        chosen = kinds[-1]
        if type(value) is dict:
            chosen = next((kind for kind, names in required if names <= value.keys()), chosen)
        return converter.structure(value, chosen)

    return structure


def _class_unstructure_hook(converter: "Converter", cls: Any) -> Callable[[Any], Any]:
    from cattrs.gen import make_dict_unstructure_fn, override  # noqa: PLC0415  # slow to import

    special: dict[str, Any] = {
        **{name: override(rename=json_name) for name, json_name in _renamed(cls).items()},
        **{
            attribute.name: override(omit_if_default=False)
            for attribute in attrs.fields(cls)
            if ALWAYS_SENT in attribute.metadata
        },
    }
    return make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, **special)
