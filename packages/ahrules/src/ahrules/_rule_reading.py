"""How a notification rule is read: every fault is kept by its field.

Law: what is plainly well formed, as nearly all is, is taken by the functions at the end, which look
at it once and tell nothing. What they do not take is read by `_RuleReader`, which does.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from attrs import fields, frozen

from ahrules._limiter import RateLimit
from ahrules._limits import ID_CHARS_MAX, RATE_COUNT_MAX, RATE_SECONDS_MAX, RATE_SECONDS_MIN
from ahrules._networks import plain_network
from ahrules._patterns import PatternError, compile_glob, counted_chars, is_glob
from ahrules._predicates import Predicate, PredicateReader, read_network
from ahrules._reading import Faults, is_number, is_plain_text, join, members, shown, wrong
from ahrules._rule_parts import Filters, RuleSchedule
from ahrules._schedule import check_interval, check_unit
from ahrules._zones import check_zone
from ahrules.errors import RuleValidationError, ScheduleError, UnknownZoneError
from ahwire.notification import ChannelType, DeliveryMode, Recipient, RecipientType, Severity

T = TypeVar("T")
_Read: TypeAlias = Callable[["_RuleReader", str, object], Any]
_Plain: TypeAlias = Callable[[object], object | None]

_FILTERS: Final = tuple(each.name for each in fields(Filters))
_RECIPIENT: Final = ("recipient_type", "recipient_id")
_SCHEDULE: Final = ("mode", "interval", "unit")
_RATE_LIMIT: Final = ("count", "per_seconds")
_SEVERITIES: Final = members(Severity)
_CHANNELS: Final = members(ChannelType)
_RECIPIENT_TYPES: Final = members(RecipientType)
_MODES: Final = members(DeliveryMode)
_INSTANT: Final = RuleSchedule(mode=DeliveryMode.INSTANT)
_WRITTEN_INSTANT: Final = {"mode": "instant"}


def read_rule(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a rule is made of, by the names of its fields; absent fields are left out.

    Raises:
        RuleValidationError: With every fault, in the order of the fields.
    """
    if type(mapping) is dict:
        reader = _RuleReader(Faults())
        values = reader.read_as_it_comes(mapping)
        if values is not None:
            return values
    # Something is wrong; what was found of it so far may be in any order.
    return _RuleReader(Faults()).read(mapping)


@frozen
class _RuleReader:
    """Reads one rule; every method keeps the faults of its field and returns None for it."""

    faults: Faults

    def read_as_it_comes(self, found: Mapping[str, object]) -> dict[str, Any] | None:
        """Return the values of a rule's fields, or None where anything is wrong."""
        values: dict[str, Any] = {}
        for name, item in found.items():
            readers = _READERS.get(name)
            if readers is None:
                return None
            if item is not None:
                read, plain = readers
                value = plain(item)
                values[name] = read(self, name, item) if value is None else value
        if self.faults.found or "rule_id" not in values or "tenant_id" not in values:
            return None
        values.setdefault("name", values["rule_id"])
        return values

    def read(self, value: object) -> dict[str, Any]:
        """Return the same, or raise every fault."""
        found = self.faults.mapping("", value)
        if found is None:
            raise RuleValidationError(self.faults.found)
        self.faults.unknown_fields("", found, FIELDS)
        values: dict[str, Any] = {}
        for name, (read, _) in _READERS.items():
            item = found.get(name)
            if item is not None:
                values[name] = read(self, name, item)
        for name in ("rule_id", "tenant_id"):
            if found.get(name) is None:
                self.faults.add(name, "is missing; every rule has one")
        if self.faults.found:
            raise RuleValidationError(self.faults.found)
        values.setdefault("name", values["rule_id"])
        return values

    def rule_id(self, path: str, value: object) -> str | None:
        return self.faults.text(path, value, chars_max=ID_CHARS_MAX)

    tenant_id = owner_id = template_policy = rule_id

    def name(self, path: str, value: object) -> str | None:
        return self.faults.text(path, value)

    def enabled(self, path: str, value: object) -> bool | None:
        return self.faults.flag(path, value)

    def filters(self, path: str, value: object) -> Filters | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, _FILTERS)
        values: dict[str, Any] = {}
        for name, read, plain in _FILTER_READERS:
            given = found.get(name)
            if given is not None:
                values[name] = self.faults.plain_items(given, plain) or self.faults.items(
                    f"filters.{name}", given, partial(read, self)
                )
        return Filters(**values)

    def network(self, path: str, value: object) -> str | None:
        return read_network(self.faults, path, value)

    def severity(self, path: str, value: object) -> Severity | None:
        return self.faults.choice(path, value, _SEVERITIES)

    def event_type(self, path: str, value: object) -> str | None:
        text = self.faults.text(path, value)
        if text is not None and "*" in text[:-1]:
            self.faults.add(
                path,
                f"{shown(value)} has a * before its end;"
                " only a type's beginning can be given, as login_*",
            )
            return None
        return text

    def host(self, path: str, value: object) -> str | None:
        text = self.faults.text(path, value)
        try:
            # Without brackets there is nothing in a glob that could be wrong.
            chars = counted_chars(text or "")
            if text and chars and self.faults.may_compile(path, chars) and "[" in text:
                compile_glob(text)
        except PatternError as error:
            self.faults.add(path, str(error))
            return None
        return text

    def predicates(self, path: str, value: object) -> tuple[Predicate, ...]:
        if not isinstance(value, list | tuple):
            self.faults.add(path, wrong(value, "is not a list", "write a list of predicates"))
            return ()
        return PredicateReader(self.faults).read_all(path, value)

    def recipients(self, path: str, value: object) -> tuple[Recipient, ...] | None:
        return self._maybe_empty(path, value, self._recipient, _plain_recipient)

    def _recipient(self, path: str, value: object) -> Recipient | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, _RECIPIENT)
        kind = self.faults.choice(
            join(path, "recipient_type"), found.get("recipient_type"), _RECIPIENT_TYPES
        )
        name = self.rule_id(join(path, "recipient_id"), found.get("recipient_id"))
        if kind is None or name is None:
            return None
        return Recipient(recipient_type=kind, recipient_id=name)

    def channels(self, path: str, value: object) -> tuple[ChannelType, ...] | None:
        return self._maybe_empty(path, value, self._channel, _plain_channel)

    def _channel(self, path: str, value: object) -> ChannelType | None:
        return self.faults.choice(path, value, _CHANNELS)

    def _maybe_empty(
        self,
        path: str,
        value: object,
        read: Callable[[str, object], T | None],
        plain: Callable[[object], T | None],
    ) -> tuple[T, ...] | None:
        """Read a list that may name no one yet: such a rule matches and tells nobody."""
        if value in ([], ()):
            return ()
        return self.faults.plain_items(value, plain) or self.faults.items(path, value, read)

    def schedule(self, path: str, value: object) -> RuleSchedule | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, _SCHEDULE)
        mode = self.faults.choice(join(path, "mode"), found.get("mode"), _MODES)
        if mode is None:
            return None
        if mode is DeliveryMode.INSTANT:
            for name in ("interval", "unit"):
                if found.get(name) is not None:
                    self.faults.add(
                        join(path, name), "belongs to digests; leave it out or write mode: digest"
                    )
            return _INSTANT
        interval = self._checked(join(path, "interval"), check_interval, found.get("interval"))
        unit = self._checked(join(path, "unit"), check_unit, found.get("unit"))
        return RuleSchedule(mode=mode, interval=interval, unit=unit)

    def timezone(self, path: str, value: object) -> str | None:
        return self._checked(path, check_zone, value)

    def _checked(self, path: str, check: Callable[[object], T], value: object) -> T | None:
        try:
            return check(value)
        except (ScheduleError, UnknownZoneError) as error:
            # What is missing is not shown: the way out alone says what to write.
            way_out = str(error).partition(": ")[2]
            self.faults.add(path, f"is missing; {way_out}" if value is None else str(error))
            return None

    def rate_limit(self, path: str, value: object) -> RateLimit | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, _RATE_LIMIT)
        faults_before = len(self.faults.found)
        count: Any = found.get("count")
        per_seconds: Any = found.get("per_seconds", 60)
        if type(count) is not int or not 1 <= count <= RATE_COUNT_MAX:
            self.faults.add(
                join(path, "count"),
                wrong(count, "cannot be used", f"write a whole number from 1 to {RATE_COUNT_MAX}"),
            )
        if not is_number(per_seconds) or not RATE_SECONDS_MIN <= per_seconds <= RATE_SECONDS_MAX:
            self.faults.add(
                join(path, "per_seconds"),
                wrong(
                    per_seconds,
                    "cannot be used",
                    f"write a number of seconds from {RATE_SECONDS_MIN} to {RATE_SECONDS_MAX}",
                ),
            )
        is_well = len(self.faults.found) == faults_before
        return RateLimit(count=count, per_seconds=per_seconds) if is_well else None

    def created_at(self, path: str, value: object) -> datetime | None:
        moment = value
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                moment = None
        if not isinstance(moment, datetime) or moment.utcoffset() is None:
            self.faults.add(
                path, f"{shown(value)} is no time with a zone; write it as 2026-06-15T10:00:00Z"
            )
            return None
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            self.faults.add(path, f"{shown(value)} is not within the years 1 to 9999 of UTC")
            return None

    updated_at = created_at


def _never_plain(value: object) -> None:  # noqa: ARG001 - a reader must look
    return None


def _plain_id(value: object) -> str | None:
    if type(value) is str and 1 <= len(value) <= ID_CHARS_MAX and value.isascii():
        return value
    return None


def _plain_text(value: object) -> str | None:
    return value if is_plain_text(value) else None


def _plain_flag(value: object) -> bool | None:
    return value if type(value) is bool else None


def _plain_schedule(value: object) -> RuleSchedule | None:
    return _INSTANT if value == _WRITTEN_INSTANT else None


def _plain_severity(value: object) -> Severity | None:
    return _SEVERITIES.get(value) if type(value) is str else None


def _plain_channel(value: object) -> ChannelType | None:
    return _CHANNELS.get(value) if type(value) is str else None


def _plain_type(value: object) -> str | None:
    if is_plain_text(value) and ("*" not in value or value.find("*") == len(value) - 1):
        return value
    return None


def _plain_host(value: object) -> str | None:
    return value if is_plain_text(value) and not is_glob(value) else None


def _plain_recipient(value: object) -> Recipient | None:
    if type(value) is not dict or len(value) != len(_RECIPIENT):
        return None
    kind, name = value.get("recipient_type"), value.get("recipient_id")
    known = _RECIPIENT_TYPES.get(kind) if type(kind) is str else None
    name = _plain_id(name)
    if known is None or name is None:
        return None
    return Recipient(recipient_type=known, recipient_id=name)


_FILTER_READERS: Final[Sequence[tuple[str, _Read, _Plain]]] = (
    ("severity", _RuleReader.severity, _plain_severity),
    ("ip_address", _RuleReader.network, plain_network),
    ("event_type", _RuleReader.event_type, _plain_type),
    ("host", _RuleReader.host, _plain_host),
)
_READERS: Final[Mapping[str, tuple[_Read, _Plain]]] = {
    "rule_id": (_RuleReader.rule_id, _plain_id),
    "tenant_id": (_RuleReader.tenant_id, _plain_id),
    "name": (_RuleReader.name, _plain_text),
    "enabled": (_RuleReader.enabled, _plain_flag),
    "owner_id": (_RuleReader.owner_id, _plain_id),
    "filters": (_RuleReader.filters, _never_plain),
    "predicates": (_RuleReader.predicates, _never_plain),
    "recipients": (_RuleReader.recipients, _never_plain),
    "channels": (_RuleReader.channels, _never_plain),
    "schedule": (_RuleReader.schedule, _plain_schedule),
    "timezone": (_RuleReader.timezone, _never_plain),
    "template_policy": (_RuleReader.template_policy, _plain_id),
    "rate_limit": (_RuleReader.rate_limit, _never_plain),
    "created_at": (_RuleReader.created_at, _never_plain),
    "updated_at": (_RuleReader.updated_at, _never_plain),
}
FIELDS: Final = tuple(_READERS)
"""The names of a rule's fields."""
