"""The order in which people look for names: by the numbers in them, not by their digits."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf", re.IGNORECASE)
_DIGITS_MAX = 300

NaturalKey = tuple[int, float, tuple[tuple[int, int, str], ...]]


def natural(text: str) -> NaturalKey:
    """A key to sort by: 2 before 10 before +Inf before words, and `disk2` before `disk10`."""
    if len(text) <= _DIGITS_MAX and _NUMBER.fullmatch(text):
        return (0, float(text), ())
    return (1, 0.0, tuple(_piece(one) for one in re.split(r"([0-9]+)", text)))


def by_labels(labels: Sequence[tuple[str, str]]) -> tuple[tuple[str, NaturalKey], ...]:
    """A key to sort series by, of their labels in order."""
    return tuple((name, natural(value)) for name, value in labels)


def _piece(text: str) -> tuple[int, int, str]:
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return (0, int(text), "")
    return (1, 0, text)
