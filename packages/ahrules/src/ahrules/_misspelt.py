"""Which fields of what a person wrote nobody reads.

The contracts of `ahwire.hub` pass over names that they do not know, so that an older program can
read what a newer hub says. So a misspelt field counts as absent, and only where it is written can
that be told.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from attrs import field, fields, frozen

from ahrules._arguments import expect
from ahrules._limiter import RateLimit
from ahrules._predicates import CONDITION, GROUPS
from ahrules._reading import Faults, join
from ahrules._rule import NotificationRule
from ahrules._rule_parts import Filters, RuleSchedule
from ahrules.errors import FieldError
from ahwire.hub import LabelMatcher, Recurrence, Silence, ThresholdRule
from ahwire.notification import Recipient

# What is written nests no deeper; what does is told by whoever reads it.
_DEPTH_MAX: Final = 32


@frozen
class _Shape:
    """The fields of an object, and those of the objects inside it that have names of their own."""

    names: Collection[str]
    inner: Mapping[str, "_Shape"] = field(factory=dict)

    def of(self, written: Mapping[str, object]) -> "_Shape | None":  # noqa: ARG002 - always itself
        """Return the shape of this object; None: whatever is in it is read."""
        return self


class _PredicateShape(_Shape):
    """A condition, a group of predicates, or a lookup, which carries along what it likes."""

    def of(self, written: Mapping[str, object]) -> "_Shape | None":
        for kind in GROUPS:
            if kind in written:
                return _Shape((kind,), {kind: self})
        return None if "lookup" in written else _Shape(CONDITION)


def _shape(contract: Any, **inner: _Shape) -> _Shape:
    # A name that Python has taken is written without the line behind it: `from_`.
    names = (each.name.rstrip("_") for each in fields(contract) if each.init)
    return _Shape(tuple(names), inner)


_MATCHER: Final = _shape(LabelMatcher)
_SHAPES: Final[Mapping[type, _Shape]] = {
    Silence: _shape(Silence, matchers=_MATCHER, recurrence=_shape(Recurrence)),
    ThresholdRule: _shape(ThresholdRule, matchers=_MATCHER),
    NotificationRule: _shape(
        NotificationRule,
        filters=_shape(Filters),
        predicates=_PredicateShape(()),
        recipients=_shape(Recipient),
        schedule=_shape(RuleSchedule),
        rate_limit=_shape(RateLimit),
    ),
}


def unknown_fields(
    written: Mapping[str, Any], contract: type[Silence | ThresholdRule | NotificationRule]
) -> tuple[FieldError, ...]:
    """Return the fields that nobody reads, each with the nearest name that is read.

    To be asked where silences and rules are written: a misspelt `ends_at` makes a silence without
    end. Whether the fields that are known are well formed is not looked at.

    Args:
        written: The JSON object, as `json.loads` returns it.
        contract: What it is to be.

    Returns:
        At most 100, by path as in `matchers[0].vlaue`; nothing: every name is known. Names inside
        of `labels`, and of what a predicate's lookup carries along, are free.

    Raises:
        TypeError: `written` is no object, or `contract` none of the three.
    """
    expect("written", written, Mapping, "give the object that json.loads returns")
    shape = _SHAPES.get(contract)
    if shape is None:
        raise TypeError(
            f"contract is {contract!r}; give Silence, ThresholdRule or NotificationRule"
        )
    faults = Faults()
    _look(faults, "", written, shape, _DEPTH_MAX)
    return tuple(faults.found)


def _look(faults: Faults, path: str, value: object, shape: _Shape, depth_left: int) -> None:
    if depth_left == 0 or faults.are_many:
        return
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _look(faults, f"{path}[{index}]", item, shape, depth_left - 1)
    elif isinstance(value, Mapping):
        own = shape.of(value)
        if own is None:
            return
        faults.unknown_fields(path, value, own.names)
        for name, inner in own.inner.items():
            if name in value:
                _look(faults, join(path, name), value[name], inner, depth_left - 1)
