"""Patterns that people write, matched in time linear in the text.

Laws: a pattern is refused when its program would be larger than `PATTERN_BYTES_MAX`; when it is
asked, RE2 keeps at most that many bytes of states and falls back to a slower, still linear way; and
a `PatternCache` holds a bounded number of them. So neither a pattern nor many can exhaust memory.
"""

import re
from typing import Any, Final

import re2

from ahrules._limits import (
    GLOB_CHARS_COUNTED_MIN,
    PATTERN_BYTES_MAX,
    PATTERN_TEXT_CHARS_MAX,
    PATTERNS_KEPT_MAX,
)
from ahrules._reading import is_unicode

GLOB_SIGNS: Final = frozenset("*?[")
"""What makes a host a glob."""


class PatternError(ValueError):
    """A pattern cannot be compiled; the message says why and what to do."""


class Pattern:
    """A compiled pattern.

    Attributes:
        steps: How many RE2's program has: what a character costs at most; 0 for a glob.
    """

    def __init__(self, compiled: Any, steps: int = 0) -> None:
        self._compiled = compiled
        self.steps = steps

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
    options.max_mem = PATTERN_BYTES_MAX
    try:
        compiled = re2.compile(text, options)
        return Pattern(compiled, steps=compiled.programsize)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise PatternError(
            f"is no pattern that RE2 reads ({reason}); it has no look-around and no"
            f" back-references, and needs at most {PATTERN_BYTES_MAX} bytes"
        ) from error


def is_glob(text: str) -> bool:
    """Tell whether a host is a glob; else it is compared as it stands."""
    return not GLOB_SIGNS.isdisjoint(text)


def counted_chars(host: str) -> int:
    """Return as how many characters of patterns a filter's host counts.

    None for a host as it stands, and for a glob that is one `*`: these are asked without a pattern.
    """
    if not is_glob(host):
        return 0
    signs = sum(host.count(sign) for sign in GLOB_SIGNS)
    if signs == 1 and "*" in host:
        return 0
    return max(len(host), GLOB_CHARS_COUNTED_MIN)


class _GlobPattern(Pattern):
    """A glob as a pattern of Python's: such patterns take what has no UTF-8, and RE2's do not."""

    def matches_whole(self, text: str) -> bool:
        return super().matches_whole(text) and is_unicode(text)


def compile_glob(text: str) -> Pattern:
    """Return a glob as a pattern.

    `*` is any characters, `?` one, `[a-z]` one of these, `[!a-z]` one other.

    Raises:
        PatternError: A `[` is not closed, or what is in it is no set of characters.
    """
    first, *others = _pieces(text)
    if not others:
        return _GlobPattern(re.compile(first, re.DOTALL))
    *middle, last = others
    # What stands between two stars is taken where it is first found, and never looked for again:
    # so the time is linear in the text, and Python's own patterns serve, which are quicker to ask.
    found = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return _GlobPattern(re.compile(f"{first}{found}.*{last}", re.DOTALL))


def _pieces(glob: str) -> list[str]:
    """Return what stands between the stars; each character as a pattern of one character."""
    pieces = [""]
    place = 0
    while place < len(glob):
        sign = glob[place]
        place += 1
        if sign == "*":
            pieces.append("")
        elif sign == "?":
            pieces[-1] += "."
        elif sign == "[":
            # A closing bracket in the first place stands for itself.
            negated = glob.startswith("!", place)
            end = glob.find("]", place + negated + 1)
            if end < 0:
                raise PatternError(
                    f"{glob[:64]!r} opens a [ that it does not close; write [[] for the character"
                )
            pieces[-1] += f"[{'^' if negated else ''}{_set(glob[place + negated : end])}]"
            place = end + 1
        else:
            pieces[-1] += re.escape(sign)
    return pieces


def _set(inner: str) -> str:
    """Return what is between brackets as a set of characters and ranges, each end escaped."""
    parts = []
    place = 0
    while place < len(inner):
        low = inner[place]
        if inner.startswith("-", place + 1) and place + 2 < len(inner):
            high = inner[place + 2]
            if high < low:
                raise PatternError(
                    f"{inner[place : place + 3]!r} is no range of characters; write the lower first"
                )
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
            place += 3
        else:
            parts.append(re.escape(low))
            place += 1
    return "".join(parts)


class PatternCache:
    """The compiled patterns of one rule set and of those made from it by `replace`.

    What it holds changes no answer. Several threads may use it: at worst one compiles what another
    has just compiled.
    """

    def __init__(self, kept_max: int = PATTERNS_KEPT_MAX) -> None:
        """Begin with none, and never keep more than `kept_max` of each kind."""
        self._kept_max = kept_max
        self._patterns: dict[str, Pattern] = {}
        self._globs: dict[str, Pattern] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._patterns) + len(self._globs)

    def search(self, pattern: str, text: str) -> bool:
        """Tell whether a pattern that `compile_pattern` takes is found in the text's beginning.

        That is its first `PATTERN_TEXT_CHARS_MAX` characters; most texts are shorter.
        """
        found = self._patterns.get(pattern)
        if found is None:
            # To begin anew needs no order of use, which threads would have to agree on.
            if len(self._patterns) >= self._kept_max:
                self._patterns = {}
            found = self._patterns[pattern] = compile_pattern(pattern)
        return found.search(text[:PATTERN_TEXT_CHARS_MAX])

    def matches_glob(self, glob: str, text: str) -> bool:
        """Tell whether a glob that `compile_glob` takes matches the whole text."""
        found = self._globs.get(glob)
        if found is None:
            if len(self._globs) >= self._kept_max:
                self._globs = {}
            found = self._globs[glob] = compile_glob(glob)
        return found.matches_whole(text)
