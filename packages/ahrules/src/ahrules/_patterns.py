"""Patterns that people write, matched in time linear in the text (google-re2)."""

from functools import lru_cache
from typing import Any, Final

import re2

_MEMORY_BYTES_MAX: Final = 1 << 20
_GLOB_SIGNS: Final = frozenset("*?[")


class PatternError(ValueError):
    """A pattern cannot be compiled; the message says why and what to do."""


class Pattern:
    """A compiled pattern."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def search(self, text: str) -> bool:
        """Tell whether the pattern is found anywhere in the text."""
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:
            # Half a surrogate pair is in the text: there is no UTF-8 for it and so nothing to
            # match.
            return False

    def matches_whole(self, text: str) -> bool:
        """Tell whether the pattern matches the text from its first character to its last."""
        try:
            return self._compiled.fullmatch(text) is not None
        except UnicodeEncodeError:
            return False


def compile_pattern(text: str) -> Pattern:
    """Return the pattern in RE2's syntax.

    Raises:
        PatternError: RE2 does not read it (as look-around and back-references).
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    try:
        return Pattern(re2.compile(text, options))
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise PatternError(
            f"is no pattern that RE2 reads ({reason}); it has no look-around and no back-references"
        ) from error


def is_glob(text: str) -> bool:
    """Tell whether a host is a glob; else it is compared as it stands."""
    return not _GLOB_SIGNS.isdisjoint(text)


@lru_cache(maxsize=4096)
def compile_glob(text: str) -> Pattern:
    """Return a glob as a pattern.

    `*` is any characters, `?` one, `[a-z]` one of these, `[!a-z]` one other.

    Raises:
        PatternError: A `[` is not closed, or what is in it is no set of characters.
    """
    parts = ["(?s)"]
    place = 0
    while place < len(text):
        sign = text[place]
        place += 1
        if sign == "*":
            parts.append(".*")
        elif sign == "?":
            parts.append(".")
        elif sign == "[":
            # A closing bracket in the first place stands for itself.
            negated = text.startswith("!", place)
            end = text.find("]", place + negated + 1)
            if end < 0:
                raise PatternError(
                    f"{text[:64]!r} opens a [ that it does not close; write [[] for the character"
                )
            inner = text[place + negated : end]
            escaped = "".join(c if c == "-" else re2.escape(c) for c in inner)
            parts.append(f"[{'^' if negated else ''}{escaped}]")
            place = end + 1
        else:
            parts.append(re2.escape(sign))
    return compile_pattern("".join(parts))
