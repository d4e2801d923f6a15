"""What can go wrong in ahrules.

```
RulesError
├── RuleValidationError   the author's side: a rule is not well formed; holds one FieldError a fault
├── UnknownZoneError      the author's side: no such time zone; names near ones
├── ScheduleError         the author's side: a schedule's interval or unit is not allowed
├── InstantError          the caller's side: a datetime without a time zone, or outside of the
│                         calendar
├── AmbiguousRuleError    the caller's side: a bare rule id that several tenants use
└── SnapshotError         a stored state is damaged or of another version
```

No error of this package can be cured by a retry: every function here is deterministic in its
arguments.
"""

from collections.abc import Iterable

from attrs import frozen

__all__ = [
    "AmbiguousRuleError",
    "FieldError",
    "InstantError",
    "RuleValidationError",
    "RulesError",
    "ScheduleError",
    "SnapshotError",
    "UnknownZoneError",
]


class RulesError(Exception):
    """The root of everything that this package raises."""


@frozen
class FieldError:
    """One fault of a rule: where it is and what to do about it.

    Attributes:
        path: The field, written as in `filters.ip_address[2]`; the empty path is the whole rule.
        message: Cause, value and way out, in one sentence for the rule's author.
    """

    path: str
    message: str

    def __str__(self) -> str:
        """Return `path: message`."""
        return f"{self.path}: {self.message}" if self.path else self.message


class RuleValidationError(RulesError, ValueError):
    """A rule is not well formed. All its faults are collected, not only the first.

    Attributes:
        errors: The faults, in the order of the rule's fields; never empty.
    """

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(str(error) for error in self.errors))


class UnknownZoneError(RulesError, ValueError):
    """A time zone's name is not one of the IANA data base.

    Attributes:
        name: What was asked for.
        near: Names that are written nearly the same, nearest first; may be empty.
    """

    def __init__(self, name: object, near: tuple[str, ...]) -> None:
        self.name = name
        self.near = near
        hint = f"; near names: {', '.join(near)}" if near else "; write one such as Europe/Berlin"
        super().__init__(f"{name!r} is not a time zone of the IANA data base{hint}")


class ScheduleError(RulesError, ValueError):
    """A schedule's interval or unit is not allowed."""


class InstantError(RulesError, ValueError):
    """A datetime has no time zone, or its bucket leaves the years 1 to 9999."""


class AmbiguousRuleError(RulesError, LookupError):
    """A bare rule id was given for a rule that exists in several tenants; give a RuleKey."""


class SnapshotError(RulesError, ValueError):
    """A stored state cannot be read: damaged, or written by another version. Start without it."""
