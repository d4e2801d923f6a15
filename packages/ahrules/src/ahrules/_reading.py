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


def wrong(value: object, what: str, way_out: str) -> str:
    """Return the message of a value that is not what it must be; null counts as absent."""
    return f"is missing; {way_out}" if value is None else f"{shown(value)} {what}; {way_out}"


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
            # A name without its unit, as `for`, is no close match of the whole.
            near = [each for each in known if len(text) > 1 and each.startswith(text)]
            near = near or difflib.get_close_matches(text, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            self.add(join(path, text), f"there is no such field; {hint}")

    def mapping(self, path: str, value: object) -> Mapping[str, object] | None:
        """Return `value` if it is an object."""
        # To ask whether it is a Mapping takes far longer, and decoded JSON has dicts.
        if type(value) is dict or isinstance(value, Mapping):
            return value
        self.add(path, wrong(value, "is not an object", "write an object, {…}"))
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
        if type(value) is str and chars_min <= len(value) <= chars_max and value.isascii():
            return value  # nearly all are
        if not isinstance(value, str):
            self.add(path, wrong(value, "is not a text", "write a text in quotes"))
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
        self.add(path, wrong(value, "is neither true nor false", "write one of the two"))
        return None

    def choice(self, path: str, value: object, choices: Mapping[str, C]) -> C | None:
        """Return the member of an enumeration, given as `members`, whose value is `value`."""
        found = choices.get(value) if isinstance(value, str) else None
        if found is None:
            known = ", ".join(choices)
            text = f"is missing; write one of {known}"
            self.add(path, text if value is None else f"{shown(value)} is none of {known}")
        return found

    def plain_items(
        self, value: object, plain: Callable[[object], T | None]
    ) -> tuple[T, ...] | None:
        """Return what `items` does where all is plainly well formed; None: ask `items`.

        Args:
            value: The list.
            plain: Makes the item of what is plainly well formed, and None of anything else.
        """
        if type(value) is not list:
            return None
        total = self._values_count + len(value)
        if not 0 < len(value) <= FILTER_VALUES_MAX or total > RULE_VALUES_MAX:
            return None
        found = [*map(plain, value)]
        if None in found:
            return None
        self._values_count = total
        return tuple(found if len(found) == 1 else dict.fromkeys(found))  # type: ignore[arg-type]  # none is None

    def items(
        self, path: str, value: object, read: Callable[[str, object], T | None]
    ) -> tuple[T, ...] | None:
        """Return what `read` makes of each item of a non-empty list, without repetitions."""
        if not isinstance(value, list | tuple):
            inner = "…" if value is None else shown(value)
            self.add(path, wrong(value, "is not a list", f"write [{inner}]"))
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
        for index, item in enumerate(value):
            found = read(f"{path}[{index}]", item)
            if found is not None:
                kept[found] = None
            elif self.are_many:
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


def is_plain_text(value: object) -> TypeGuard[str]:
    """Tell whether `Faults.text` plainly takes a value."""
    return type(value) is str and 1 <= len(value) <= TEXT_CHARS_MAX and value.isascii()


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is a finite number; true and false are none."""
    return type(value) is int or (type(value) is float and math.isfinite(value))
