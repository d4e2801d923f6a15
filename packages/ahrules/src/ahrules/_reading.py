"""Reading what a person wrote: every fault is kept with its field's path, and reading goes on.

Laws: what is well formed costs no more than looking at it once; what is not costs a bounded time,
because at most `FAULTS_MAX` faults are told; and nothing that JSON can hold makes reading raise.
"""

import difflib
import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from enum import Enum, StrEnum
from typing import TypeGuard, TypeVar

from ahrules._limits import (
    FAULTS_MAX,
    FILTER_VALUES_MAX,
    RULE_PATTERN_CHARS_MAX,
    RULE_VALUES_MAX,
    TEXT_CHARS_MAX,
)
from ahrules.errors import FieldError

T = TypeVar("T")
C = TypeVar("C", bound=StrEnum)

_SHOWN_CHARS = 80
_NAME_CHARS = 64
# Python refuses to write longer numbers.
_SHOWN_BITS = 1_024


class _Shown(reprlib.Repr):
    """Shows the beginning of a value: never all of what is large or deep."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 40
        # One more than is shown, so that the cut below shows that there was more.
        self.maxstring = self.maxother = 2 * _SHOWN_CHARS

    def repr_int(self, value: int, level: int) -> str:  # noqa: ARG002 - the base class calls it so
        bits = value.bit_length()
        return repr(value) if bits <= _SHOWN_BITS else f"<a number of {bits} bits>"


def shown(value: object) -> str:
    """Return a value as an error text shows it: never longer than a line."""
    text = _Shown().repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


def join(path: str, name: str) -> str:
    """Return the path of a field inside another."""
    return f"{path}.{name}" if path else name


class Faults:
    """The faults found so far in one rule, and what has been counted in it."""

    __slots__ = ("_pattern_chars", "_values_count", "found")

    def __init__(self) -> None:
        self.found: list[FieldError] = []
        self._values_count = 0
        self._pattern_chars = 0

    @property
    def are_many(self) -> bool:
        """Whether no more are told."""
        return len(self.found) >= FAULTS_MAX

    def add(self, path: str, message: str) -> None:
        """Keep one fault, if it is not one too many."""
        if not self.are_many:
            self.found.append(FieldError(path, message))

    def unknown_fields(
        self, path: str, value: Mapping[str, object], known: Collection[str]
    ) -> None:
        """Refuse fields that nobody reads: a misspelt condition must not count as none."""
        for name in value:
            if name in known:
                continue
            if self.are_many:
                return
            text = name[:_NAME_CHARS] if type(name) is str else shown(name)
            near = difflib.get_close_matches(text, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            self.add(join(path, text), f"there is no such field; {hint}")

    def mapping(self, path: str, value: object) -> Mapping[str, object] | None:
        """Return `value` if it is an object."""
        # To ask whether it is a Mapping takes far longer, and decoded JSON has dicts.
        if type(value) is dict or isinstance(value, Mapping):
            return value
        self.add(path, f"{shown(value)} is not an object; write {{…}}")
        return None

    def text(
        self,
        path: str,
        value: object,
        *,
        chars_min: int = 1,
        chars_max: int = TEXT_CHARS_MAX,
    ) -> str | None:
        """Return `value` if it is a text of allowed length that can be written as UTF-8."""
        if not isinstance(value, str):
            self.add(path, f"{shown(value)} is not a text; write it in quotes")
        elif len(value) < chars_min:
            self.add(path, "is empty; write at least one character")
        elif len(value) > chars_max:
            self.add(path, f"has {len(value)} characters; {chars_max} are the most")
        elif not is_unicode(value):
            self.add(path, f"{shown(value)} holds half a surrogate pair; write the whole character")
        else:
            return value
        return None

    def flag(self, path: str, value: object) -> bool | None:
        """Return `value` if it is true or false."""
        if isinstance(value, bool):
            return value
        self.add(path, f"{shown(value)} is neither true nor false")
        return None

    def choice(self, path: str, value: object, choices: Mapping[str, C]) -> C | None:
        """Return the member of an enumeration, given as `members`, whose value is `value`."""
        found = choices.get(value) if isinstance(value, str) else None
        if found is None:
            self.add(path, f"{shown(value)} is none of {', '.join(choices)}")
        return found

    def items(
        self, path: str, value: object, read: Callable[[str, object], T | None]
    ) -> tuple[T, ...] | None:
        """Return what `read` makes of each item of a non-empty list, without repetitions."""
        if not isinstance(value, list | tuple):
            self.add(path, f"{shown(value)} is not a list; write [{shown(value)}]")
            return None
        if not value:
            self.add(
                path,
                "is an empty list, which nothing could match; leave the field out or name a value",
            )
            return None
        if len(value) > FILTER_VALUES_MAX:
            self.add(path, f"has {len(value)} values; {FILTER_VALUES_MAX} are the most")
            return None
        self._values_count += len(value)
        if self._values_count > RULE_VALUES_MAX:
            self.add(
                path,
                f"brings the values of the rule to {self._values_count};"
                f" {RULE_VALUES_MAX} are the most in all its lists; split the rule in two",
            )
            return None
        if len(value) == 1:
            only = read(f"{path}[0]", value[0])
            return None if only is None else (only,)
        kept: dict[T, None] = {}
        faults = self.found
        for index, item in enumerate(value):
            found = read(f"{path}[{index}]", item)
            if found is not None:
                kept[found] = None
            elif len(faults) >= FAULTS_MAX:
                break
        return tuple(kept)

    def may_compile(self, path: str, chars: int) -> bool:
        """Tell whether the rule may have one more pattern: compiling and asking take time."""
        self._pattern_chars += chars
        if self._pattern_chars <= RULE_PATTERN_CHARS_MAX:
            return True
        self.add(
            path,
            f"brings the patterns of the rule to {self._pattern_chars} characters;"
            f" {RULE_PATTERN_CHARS_MAX} are the most; split the rule in two",
        )
        return False


def members(choices: type[C]) -> dict[str, C]:
    """Return the members of an enumeration by their values."""
    return {member.value: member for member in choices}


def plain(value: object) -> object:
    """Return an enumeration's value; what stands there instead of one stays, to be told."""
    return value.value if isinstance(value, Enum) else value


def is_unicode(text: str) -> bool:
    """Tell whether a text can be written as UTF-8: half a surrogate pair can not."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is a finite number; true and false are none."""
    return type(value) is int or (type(value) is float and math.isfinite(value))
