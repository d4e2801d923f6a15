"""A notification rule: whom to tell, by which channels and how often, about which events."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import field, fields, frozen

from ahrules._limiter import RateLimit
from ahrules._predicates import Predicate, write_predicate
from ahrules._reading import plain
from ahrules._rule_parts import Filters, RuleSchedule
from ahrules._rule_reading import read_rule
from ahrules._schedule import Schedule
from ahrules.errors import FieldError, RuleValidationError, ScheduleError
from ahwire.notification import ChannelType, DeliveryMode, Recipient


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
    # The schedule of digests made last, by the zone it was asked for: each match asks for it.
    _digest: tuple[str, Schedule] | None = field(default=None, init=False, eq=False, repr=False)

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
        rule = cls(**read_rule(mapping))
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
        made = self._digest
        if made is None or made[0] != zone:
            made = zone, Schedule(self.schedule.interval, self.schedule.unit, zone)
            # One assignment, so that another thread sees this schedule or the one before, whole.
            object.__setattr__(self, "_digest", made)
        return made[1]


def _write(rule: NotificationRule) -> dict[str, Any]:
    written: dict[str, Any] = {
        "rule_id": rule.rule_id,
        "tenant_id": rule.tenant_id,
        "name": rule.name,
        "enabled": rule.enabled,
        "owner_id": rule.owner_id,
        "filters": {
            name: [str(value) for value in values]
            for name in (each.name for each in fields(Filters))
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
