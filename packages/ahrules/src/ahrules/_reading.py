"""Reading what a person wrote: every fault is kept with its field's path, and reading goes on."""

import difflib
import math
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import TypeGuard, TypeVar

from ahrules._limits import FILTER_VALUES_MAX, TEXT_CHARS_MAX
from ahrules.errors import FieldError

T = TypeVar("T")
C = TypeVar("C", bound=StrEnum)


def shown(value: object) -> str:
    """Return a value as an error text shows it: never longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def join(path: str, name: str) -> str:
    """Return the path of a field inside another."""
    return f"{path}.{name}" if path else name


class Faults:
    """The faults found so far."""

    def __init__(self) -> None:
        self.found: list[FieldError] = []

    def add(self, path: str, message: str) -> None:
        """Keep one fault."""
        self.found.append(FieldError(path, message))

    def unknown_fields(
        self, path: str, value: Mapping[str, object], known: Collection[str]
    ) -> None:
        """Refuse fields that nobody reads: a misspelt condition must not count as none."""
        for name in value:
            if name not in known:
                near = difflib.get_close_matches(str(name)[:64], known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                self.add(join(path, str(name)[:64]), f"there is no such field; {hint}")

    def mapping(self, path: str, value: object) -> Mapping[str, object] | None:
        """Return `value` if it is an object."""
        if isinstance(value, Mapping):
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

    def choice(self, path: str, value: object, choices: type[C]) -> C | None:
        """Return the member of `choices` whose value is `value`."""
        if isinstance(value, str):
            for member in choices:
                if member == value:
                    return member
        self.add(path, f"{shown(value)} is none of {', '.join(choices)}")
        return None

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
        read_items = [read(f"{path}[{index}]", item) for index, item in enumerate(value)]
        return tuple(dict.fromkeys(item for item in read_items if item is not None))


def is_unicode(text: str) -> bool:
    """Tell whether a text can be written as UTF-8: half a surrogate pair can not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is a finite number; true and false are none."""
    return type(value) is int or (type(value) is float and math.isfinite(value))
