"""A notification rule: whom to tell, by which channels and how often, about which events."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from attrs import field, fields, frozen

from ahrules._limiter import RateLimit
from ahrules._limits import ID_CHARS_MAX, RATE_COUNT_MAX, RATE_SECONDS_MAX, RATE_SECONDS_MIN
from ahrules._patterns import PatternError, compile_glob, counted_chars
from ahrules._predicates import Predicate, PredicateReader, read_network, write_predicate
from ahrules._reading import Faults, is_number, join, members, plain, shown
from ahrules._schedule import Schedule, Unit, check_interval, check_unit
from ahrules._zones import check_zone
from ahrules.errors import FieldError, RuleValidationError, ScheduleError, UnknownZoneError
from ahwire.notification import ChannelType, DeliveryMode, Recipient, RecipientType, Severity

T = TypeVar("T")


@frozen(kw_only=True)
class RuleSchedule:
    """At once, or in digests.

    Attributes:
        mode: `instant` or `digest`.
        interval: With `digest`: how many units a digest covers; else None.
        unit: With `digest`: the unit; else None.
    """

    mode: DeliveryMode
    interval: int | None = None
    unit: Unit | None = None


@frozen(kw_only=True)
class Filters:
    """What an event must be.

    Within a filter any value matches; all filters must match; None matches all.

    Attributes:
        severity: Severities.
        ip_address: Addresses and networks in their one spelling; an IPv4 address inside IPv6 counts
            as IPv4.
        event_type: Types as they stand, or with one `*` at the end as the beginning of a type.
        host: Hosts as they stand (upper and lower case differ), or globs with `*`, `?` and `[…]`.
    """

    severity: tuple[Severity, ...] | None = None
    ip_address: tuple[str, ...] | None = None
    event_type: tuple[str, ...] | None = None
    host: tuple[str, ...] | None = None


@frozen(kw_only=True)
class NotificationRule:
    """A rule, checked: made by `from_dict`, which reports every fault by its field.

    Attributes:
        rule_id: Its id, unique within the tenant.
        tenant_id: Whose events it sees; events of other tenants never match.
        name: For people; the id where none was given.
        enabled: A rule that is not never matches.
        owner_id: Who is told when the rule cannot work.
        filters: What an event must be.
        predicates: Further conditions on its payload; all must hold.
        recipients: Who is told.
        channels: By which channels.
        schedule: At once, or in digests.
        timezone: In which wall clock digests are counted; None leaves it to the tenant.
        template_policy: Which templates are used.
        rate_limit: The rule's own limit on instant notifications to one recipient by one channel.
        created_at: When it was made, aware, in UTC.
        updated_at: When it was last changed, aware, in UTC.
    """

    rule_id: str
    tenant_id: str
    name: str
    enabled: bool = True
    owner_id: str | None = None
    filters: Filters = field(factory=Filters)
    predicates: tuple[Predicate, ...] = ()
    recipients: tuple[Recipient, ...] = ()
    channels: tuple[ChannelType, ...] = ()
    schedule: RuleSchedule = field(default=RuleSchedule(mode=DeliveryMode.INSTANT))
    timezone: str | None = None
    template_policy: str = "default"
    rate_limit: RateLimit | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    # Set by `from_dict` alone, so that a set of rules need not read those again; a rule that was
    # put together or evolved by hand does not have it.
    _is_checked: bool = field(default=False, init=False, eq=False, repr=False)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> "NotificationRule":
        """Read a rule from JSON values.

        Only `rule_id` and `tenant_id` must be there. A field that is null counts as absent. A field
        that no one reads is a fault: a misspelt filter would match everything.

        Args:
            mapping: The rule. Times are RFC 3339 texts or aware datetimes.

        Returns:
            The rule; equal input gives equal rules.

        Raises:
            RuleValidationError: With every fault, its field's path and the way out.
        """
        rule = _RuleReader(Faults()).read(mapping)
        object.__setattr__(rule, "_is_checked", True)
        return rule

    def checked(self) -> "NotificationRule":
        """Return the rule itself where `from_dict` made it, else an equal one that it makes.

        Raises:
            RuleValidationError: The rule was put together by hand, and is not well formed.
        """
        if self._is_checked:
            return self
        try:
            written = self.to_dict()
        except (AttributeError, TypeError, ValueError, AssertionError) as error:
            message = f"a value is not of its field's type ({error}); make rules by from_dict"
            raise RuleValidationError([FieldError("", message)]) from error
        return NotificationRule.from_dict(written)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as JSON values, of which `from_dict` makes an equal rule."""
        return _write(self)

    def digest_schedule(self, tenant_timezone: str | None = None) -> Schedule:
        """Return the schedule of the rule's digests.

        Args:
            tenant_timezone: The tenant's zone; used where the rule has none. UTC where neither has
                one.

        Raises:
            ScheduleError: The rule is an instant one.
            UnknownZoneError: The tenant's zone is not one.
        """
        if self.schedule.mode is not DeliveryMode.DIGEST:
            raise ScheduleError(
                f"rule {self.rule_id!r} tells at once and has no digests; ask schedule.mode first"
            )
        zone = self.timezone or tenant_timezone or "UTC"
        return Schedule(self.schedule.interval, self.schedule.unit, zone)


# A dict, because it is looked into for each field of each rule.
_FIELDS: Final = dict.fromkeys(each.name for each in fields(NotificationRule) if each.init)
_FILTERS: Final = tuple(each.name for each in fields(Filters))
_SEVERITIES: Final = members(Severity)
_CHANNELS: Final = members(ChannelType)
_RECIPIENT_TYPES: Final = members(RecipientType)
_MODES: Final = members(DeliveryMode)
_INSTANT: Final = RuleSchedule(mode=DeliveryMode.INSTANT)


@frozen
class _RuleReader:
    """Reads one rule; every method keeps the faults of its field and returns None for it."""

    faults: Faults

    def read(self, value: object) -> NotificationRule:
        found = self.faults.mapping("", value)
        if found is None:
            raise RuleValidationError(self.faults.found)
        self.faults.unknown_fields("", found, _FIELDS)
        values: dict[str, Any] = {}
        for name, read in _READERS:
            item = found.get(name)
            if item is not None:
                values[name] = read(self, name, item)
        for name in ("rule_id", "tenant_id"):
            if found.get(name) is None:
                self.faults.add(name, "is missing; every rule has one")
        if self.faults.found:
            raise RuleValidationError(self.faults.found)
        values.setdefault("name", values["rule_id"])
        return NotificationRule(**values)

    def _rule_id(self, path: str, value: object) -> str | None:
        return self.faults.text(path, value, chars_max=ID_CHARS_MAX)

    _tenant_id = _owner_id = _template_policy = _rule_id

    def _name(self, path: str, value: object) -> str | None:
        return self.faults.text(path, value)

    def _enabled(self, path: str, value: object) -> bool | None:
        return self.faults.flag(path, value)

    def _filters(self, path: str, value: object) -> Filters | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, _FILTERS)
        return Filters(
            severity=self._filter(found, "severity", self._severity),
            ip_address=self._filter(found, "ip_address", self._network),
            event_type=self._filter(found, "event_type", self._event_type),
            host=self._filter(found, "host", self._host),
        )

    def _filter(
        self, found: Mapping[str, object], name: str, read: Callable[[str, object], T | None]
    ) -> tuple[T, ...] | None:
        given = found.get(name)
        return None if given is None else self.faults.items(f"filters.{name}", given, read)

    def _network(self, path: str, value: object) -> str | None:
        return read_network(self.faults, path, value)

    def _severity(self, path: str, value: object) -> Severity | None:
        return self.faults.choice(path, value, _SEVERITIES)

    def _event_type(self, path: str, value: object) -> str | None:
        text = self.faults.text(path, value)
        if text is not None and "*" in text[:-1]:
            self.faults.add(
                path,
                f"{shown(value)} has a * before its end;"
                " only a type's beginning can be given, as login_*",
            )
            return None
        return text

    def _host(self, path: str, value: object) -> str | None:
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

    def _predicates(self, path: str, value: object) -> tuple[Predicate, ...]:
        if not isinstance(value, list | tuple):
            self.faults.add(path, f"{shown(value)} is not a list of predicates")
            return ()
        return PredicateReader(self.faults).read_all(path, value)

    def _recipients(self, path: str, value: object) -> tuple[Recipient, ...] | None:
        return self._maybe_empty(path, value, self._recipient)

    def _recipient(self, path: str, value: object) -> Recipient | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, ("recipient_type", "recipient_id"))
        kind = self.faults.choice(
            join(path, "recipient_type"), found.get("recipient_type"), _RECIPIENT_TYPES
        )
        name = self._rule_id(join(path, "recipient_id"), found.get("recipient_id"))
        if kind is None or name is None:
            return None
        return Recipient(recipient_type=kind, recipient_id=name)

    def _channels(self, path: str, value: object) -> tuple[ChannelType, ...] | None:
        return self._maybe_empty(path, value, self._channel)

    def _channel(self, path: str, value: object) -> ChannelType | None:
        return self.faults.choice(path, value, _CHANNELS)

    def _maybe_empty(
        self, path: str, value: object, read: Callable[[str, object], T | None]
    ) -> tuple[T, ...] | None:
        """Read a list that may name no one yet: such a rule matches and tells nobody."""
        return () if value in ([], ()) else self.faults.items(path, value, read)

    def _schedule(self, path: str, value: object) -> RuleSchedule | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, ("mode", "interval", "unit"))
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

    def _timezone(self, path: str, value: object) -> str | None:
        return self._checked(path, check_zone, value)

    def _checked(self, path: str, check: Callable[[object], T], value: object) -> T | None:
        try:
            return check(value)
        except (ScheduleError, UnknownZoneError) as error:
            self.faults.add(path, str(error))
            return None

    def _rate_limit(self, path: str, value: object) -> RateLimit | None:
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self.faults.unknown_fields(path, found, ("count", "per_seconds"))
        faults_before = len(self.faults.found)
        count: Any = found.get("count")
        per_seconds: Any = found.get("per_seconds", 60)
        if type(count) is not int or not 1 <= count <= RATE_COUNT_MAX:
            self.faults.add(
                join(path, "count"),
                f"{shown(count)} is no whole number from 1 to {RATE_COUNT_MAX}",
            )
        if not is_number(per_seconds) or not RATE_SECONDS_MIN <= per_seconds <= RATE_SECONDS_MAX:
            self.faults.add(
                join(path, "per_seconds"),
                f"{shown(per_seconds)} is no number of seconds from {RATE_SECONDS_MIN} to"
                f" {RATE_SECONDS_MAX}",
            )
        is_well = len(self.faults.found) == faults_before
        return RateLimit(count=count, per_seconds=per_seconds) if is_well else None

    def _created_at(self, path: str, value: object) -> datetime | None:
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

    _updated_at = _created_at


_READERS: Final[Sequence[tuple[str, Callable[[_RuleReader, str, object], Any]]]] = tuple(
    (name, getattr(_RuleReader, f"_{name}")) for name in _FIELDS
)


def _write(rule: NotificationRule) -> dict[str, Any]:
    written: dict[str, Any] = {
        "rule_id": rule.rule_id,
        "tenant_id": rule.tenant_id,
        "name": rule.name,
        "enabled": rule.enabled,
        "owner_id": rule.owner_id,
        "filters": {
            name: [str(value) for value in values]
            for name in _FILTERS
            if (values := getattr(rule.filters, name)) is not None
        },
        "predicates": [write_predicate(predicate) for predicate in rule.predicates],
        "recipients": [
            {"recipient_type": plain(each.recipient_type), "recipient_id": each.recipient_id}
            for each in rule.recipients
        ],
        "channels": [plain(channel) for channel in rule.channels],
        "schedule": _write_schedule(rule.schedule),
        "timezone": rule.timezone,
        "template_policy": rule.template_policy,
        "rate_limit": None
        if rule.rate_limit is None
        else {"count": rule.rate_limit.count, "per_seconds": rule.rate_limit.per_seconds},
        "created_at": _write_time(rule.created_at),
        "updated_at": _write_time(rule.updated_at),
    }
    return {name: value for name, value in written.items() if value is not None}


def _write_schedule(schedule: RuleSchedule) -> dict[str, Any]:
    if schedule.mode is DeliveryMode.INSTANT or schedule.unit is None:
        return {"mode": DeliveryMode.INSTANT.value}
    return {
        "mode": schedule.mode.value,
        "interval": schedule.interval,
        "unit": schedule.unit.value,
    }


def _write_time(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.replace(tzinfo=None).isoformat()}Z"
