"""The contracts of the core and the notification center: what happened, and who is to be told.

Every class has `from_json` and `to_json` (see `ahwire.errors.DecodeError` for what they refuse).
Times are aware datetimes in UTC. Event types are open: one that is not known here is still valid.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum, unique
from typing import Any, ClassVar

import attrs
from attrs import field
from attrs.validators import optional

from ahwire import _fields as check
from ahwire import limits
from ahwire._fields import JsonValue
from ahwire._json import ALWAYS_SENT, JsonContract, accept_time, build_accepted
from ahwire.errors import DecodeError

__all__ = [
    "Channel",
    "ChannelType",
    "DeliveryMode",
    "Digest",
    "EventRef",
    "IncidentEvent",
    "JsonValue",
    "NotificationMessage",
    "Recipient",
    "RecipientType",
    "Retry",
    "RuleChange",
    "RuleChangedEvent",
    "ScheduleMode",
    "Severity",
]

_ALWAYS = {ALWAYS_SENT: True}


@unique
class Severity(StrEnum):
    """How bad an incident is."""

    LOW = "low"
    MIDDLE = "middle"
    HIGH = "high"


_SEVERITIES = {each.value: each for each in Severity}


@unique
class RecipientType(StrEnum):
    """Who is told."""

    USER = "user"
    TEAM = "team"
    GROUP = "group"


@unique
class ChannelType(StrEnum):
    """How somebody is told."""

    EMAIL = "email"
    TELEGRAM = "telegram"
    SMS = "sms"
    VOICE = "voice"
    WEBHOOK = "webhook"
    APPRISE = "apprise"


@unique
class DeliveryMode(StrEnum):
    """At once, or gathered over a period."""

    INSTANT = "instant"
    DIGEST = "digest"


@unique
class ScheduleMode(StrEnum):
    """Why an event went into a digest: its rule says so, or too many instant ones came."""

    DIGEST = "digest"
    INSTANT_OVERFLOW = "instant_overflow"


@unique
class RuleChange(StrEnum):
    """What became of a notification rule."""

    CREATED = "notification_rule.created"
    UPDATED = "notification_rule.updated"
    DISABLED = "notification_rule.disabled"
    DELETED = "notification_rule.deleted"


@attrs.frozen(kw_only=True)
class IncidentEvent(JsonContract):
    """Something that happened in a tenant.

    Attributes:
        event_type: `suspicious_login`, `agent_down`, …; any string.
        ip_address: IPv4 or IPv6, as text.
        payload: any JSON object, at most 32 deep. A deep copy in plain dicts and lists is kept, so
            that it can be pickled and templated; treat it as read-only. Not part of the hash.
    """

    _json_bytes_max: ClassVar[int] = limits.MAX_MESSAGE_BYTES

    event_id: str = field(validator=check.text())
    tenant_id: str = field(validator=check.text())
    occurred_at: datetime = field(converter=check.as_utc, validator=check.moment)
    severity: Severity = field(validator=check.instance(Severity))
    event_type: str = field(validator=check.text())
    ip_address: str | None = field(default=None, validator=optional(check.ip_address))
    host: str | None = field(default=None, validator=optional(check.text()))
    payload: Mapping[str, JsonValue] = field(
        factory=dict, converter=check.as_json, validator=check.json_object, hash=False
    )

    @staticmethod
    def _json_accept(document: Mapping[str, Any]) -> "IncidentEvent | None":
        get = document.get
        event_id, tenant_id, event_type = get("event_id"), get("tenant_id"), get("event_type")
        occurred_at = accept_time(get("occurred_at"))
        severity = get("severity")
        address, host, payload = get("ip_address"), get("host"), document.get("payload", {})
        if (
            occurred_at is not None
            and type(severity) is str
            and severity in _SEVERITIES
            and check.is_name(event_id)
            and check.is_name(tenant_id)
            and check.is_name(event_type)
            and (address is None or (check.is_name(address) and check.is_ip_address(address)))
            and (host is None or check.is_name(host))
            and type(payload) is dict
            and check.is_json(payload)
        ):
            return build_accepted(
                IncidentEvent,
                {
                    "event_id": event_id,
                    "tenant_id": tenant_id,
                    "occurred_at": occurred_at,
                    "severity": _SEVERITIES[severity],
                    "event_type": event_type,
                    "ip_address": address,
                    "host": host,
                    "payload": payload,
                },
            )
        return None


@attrs.frozen(kw_only=True)
class EventRef(JsonContract):
    """An incident named by its id: how a digest carries its events."""

    event_id: str = field(validator=check.text())


@attrs.frozen(kw_only=True)
class Recipient(JsonContract):
    """Who is told."""

    recipient_type: RecipientType = field(validator=check.instance(RecipientType))
    recipient_id: str = field(validator=check.text())


@attrs.frozen(kw_only=True)
class Channel(JsonContract):
    """How somebody is told."""

    channel: ChannelType = field(validator=check.instance(ChannelType))


@attrs.frozen(kw_only=True)
class Digest(JsonContract):
    """The bucket that a digest message stands for.

    Attributes:
        period_start: first instant of the bucket.
        period_end: first instant after it.
        generation: 0 for the first message of a bucket, rising with each supplement.
        events_count: how many events the batch has, also when the message names none of them.
    """

    period_start: datetime = field(converter=check.as_utc, validator=check.moment)
    period_end: datetime = field(converter=check.as_utc, validator=check.moment)
    batch_key: str = field(validator=check.text(chars_max=check.TEXT_CHARS_MAX))
    batch_uuid: str = field(validator=check.uuid)
    generation: int = field(validator=check.integer(least=0))
    schedule_mode: ScheduleMode = field(validator=check.instance(ScheduleMode))
    events_count: int = field(validator=check.integer(least=0))

    def __attrs_post_init__(self) -> None:
        if self.period_end <= self.period_start:
            reason = "is not after period_start; a bucket has a length"
            raise DecodeError(field="period_end", reason=reason)


@attrs.frozen(kw_only=True)
class Retry(JsonContract):
    """How often a message was tried, and when it may be tried again.

    Attributes:
        attempt: tries made, from 0.
        epoch: rises with each retry; a message with a lower one than the record is an old copy.
        next_delay: ISO 8601 duration such as `PT1M`.
        last_error: cut at 1,024 characters.
    """

    attempt: int = field(validator=check.integer(least=0))
    max_attempts: int = field(validator=check.integer(least=1))
    epoch: int = field(validator=check.integer(least=0))
    next_delay: str | None = field(
        default=None, validator=optional(check.duration), metadata=_ALWAYS
    )
    not_before: datetime | None = field(
        default=None,
        converter=check.as_utc,
        validator=optional(check.moment),
        metadata=_ALWAYS,
    )
    last_error: str | None = field(
        default=None,
        converter=check.as_cut_text,
        validator=optional(check.text(chars_min=0, chars_max=check.TEXT_CHARS_MAX)),
        metadata=_ALWAYS,
    )


@attrs.frozen(kw_only=True)
class NotificationMessage(JsonContract):
    """One delivery to one recipient over one channel.

    Attributes:
        incident: instant: one whole event, of the same tenant. Digest: references to the batch's
            events, or nothing when there are more than 1,000; then `digest.events_count` tells how
            many, and they are read by `digest.batch_uuid`.
    """

    _json_bytes_max: ClassVar[int] = limits.MAX_MESSAGE_BYTES

    notification_uuid: str = field(validator=check.uuid)
    tenant_id: str = field(validator=check.text())
    incident: tuple[IncidentEvent | EventRef, ...] = field(
        validator=check.items(
            check.instance((IncidentEvent, EventRef)), 0, limits.MAX_INCIDENT_REFS
        )
    )
    rule_id: str = field(validator=check.text())
    recipient: Recipient = field(validator=check.instance(Recipient))
    channel: Channel = field(validator=check.instance(Channel))
    delivery_mode: DeliveryMode = field(validator=check.instance(DeliveryMode))
    digest: Digest | None = field(default=None, validator=optional(check.instance(Digest)))
    retry: Retry | None = field(default=None, validator=optional(check.instance(Retry)))

    def __attrs_post_init__(self) -> None:
        if self.delivery_mode is DeliveryMode.INSTANT:
            self._check_instant()
        else:
            self._check_digest()

    def _check_instant(self) -> None:
        if len(self.incident) != 1:
            reason = f"has {len(self.incident)} events; an instant message carries exactly one"
            raise DecodeError(field="incident", reason=reason)
        event = self.incident[0]
        if not isinstance(event, IncidentEvent):
            reason = "is no whole event; an instant message carries every required field of it"
            raise DecodeError(field="incident[0]", reason=reason)
        if event.tenant_id != self.tenant_id:
            reason = "is not the message's tenant; a message carries nothing of another tenant"
            raise DecodeError(field="incident[0].tenant_id", reason=reason)

    def _check_digest(self) -> None:
        if self.digest is None:
            raise DecodeError(field="digest", reason="is missing; a digest message has one")
        if len(self.incident) > self.digest.events_count:
            reason = f"is {self.digest.events_count}, but {len(self.incident)} events are named"
            raise DecodeError(field="digest.events_count", reason=reason)
        for index, event in enumerate(self.incident):
            if not isinstance(event, EventRef):
                reason = "is a whole event; a digest message names its events by event_id"
                raise DecodeError(field=f"incident[{index}]", reason=reason)


@attrs.frozen(kw_only=True)
class RuleChangedEvent(JsonContract):
    """A notification rule was made, changed, disabled or deleted: caches drop it."""

    _json_bytes_max: ClassVar[int] = limits.MAX_MESSAGE_BYTES

    event_type: RuleChange = field(validator=check.instance(RuleChange))
    tenant_id: str = field(validator=check.text())
    rule_id: str = field(validator=check.text())
    occurred_at: datetime = field(converter=check.as_utc, validator=check.moment)
