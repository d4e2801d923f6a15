"""What a notification rule consists of, as values."""

from attrs import frozen

from ahrules._schedule import Unit
from ahwire.notification import DeliveryMode, Severity


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
