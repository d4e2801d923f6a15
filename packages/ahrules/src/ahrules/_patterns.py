"""Patterns that people write, matched in time linear in the text.

Laws: a pattern is refused when its program would be larger than `PATTERN_BYTES_MAX`; when it is
asked, RE2 keeps at most that many bytes of states and falls back to a slower, still linear way; and
a `PatternCache` holds as many of them as may use a bounded number of bytes. So neither a pattern
nor many can exhaust memory. A glob is one of Python's patterns, which keeps no states: it takes
memory in proportion to its text, and is compiled once.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import re2

from ahrules._limits import (
    GLOB_CHARS_COUNTED_MIN,
    PATTERN_BYTES_MAX,
    PATTERN_BYTES_USUAL,
    PATTERN_TEXT_CHARS_MAX,
    PATTERNS_BYTES_MAX,
)
from ahrules._reading import is_unicode

GLOB_SIGNS: Final = frozenset("*?[")
"""What makes a host a glob."""

Together: TypeAlias = Callable[[bytes], Collection[int]]
"""Gives the places of the patterns that match a whole text."""


class PatternError(ValueError):
    """A pattern cannot be compiled; the message says why and what to do."""


class Pattern:
    """A compiled pattern.

    Attributes:
        steps: How many RE2's program has: what a character costs at most; 0 for a glob.
        bytes_max: What RE2 may use for it; 0 for a glob.
    """

    def __init__(self, compiled: Any, steps: int = 0, bytes_max: int = 0) -> None:
        self._compiled = compiled
        self.steps = steps
        self.bytes_max = bytes_max

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
    try:
        return _compiled(text, PATTERN_BYTES_USUAL)
    except re2.error:
        pass  # It may need more; what else is wrong is found again.
    try:
        return _compiled(text, PATTERN_BYTES_MAX)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise PatternError(
            f"is no pattern that RE2 reads ({reason}); it has no look-around and no"
            f" back-references, and needs at most {PATTERN_BYTES_MAX} bytes"
        ) from error


def _compiled(text: str, bytes_max: int) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = bytes_max
    compiled = re2.compile(text, options)
    return Pattern(compiled, compiled.programsize, bytes_max)


def compile_together(texts: Sequence[str], bytes_max: int) -> Together | None:
    """Return what gives the places of the patterns that match a whole text; None: too much memory.

    What it gives is empty, too, where the memory does not do for the walk.

    Args:
        texts: Patterns that RE2 reads.
        bytes_max: How much memory all of them may use.
    """
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = bytes_max
    found = re2.Set.FullMatchSet(options)
    try:
        for text in texts:
            found.Add(text)
        found.Compile()
    except re2.error:
        return None
    return lambda seen: found.Match(seen) or ()


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

    What it holds changes no answer. A pattern is compiled when it is first asked, is shared by all
    who wrote it, and is kept until the last of them is gone. Several threads may use it: at worst
    one compiles what another has just compiled.

    Attributes:
        compiled_total: How often a pattern or a glob was compiled.
    """

    def __init__(self, bytes_max: int = PATTERNS_BYTES_MAX) -> None:
        """Begin with none, and keep no more than may use so many bytes."""
        self.compiled_total = 0
        self._bytes_max = bytes_max
        self._usual: WeakValueDictionary[str, Pattern] = WeakValueDictionary()
        self._large: WeakValueDictionary[str, Pattern] = WeakValueDictionary()

    def __len__(self) -> int:
        """Return how many patterns are kept."""
        return len(self._usual) + len(self._large)

    def take(self, text: str) -> tuple[Pattern, bool]:
        """Return a pattern that `compile_pattern` takes, and whether it may be kept."""
        found = self._usual.get(text) or self._large.get(text)
        if found is not None:
            return found, True
        found = compile_pattern(text)
        self.compiled_total += 1
        used = len(self._usual) * PATTERN_BYTES_USUAL + len(self._large) * PATTERN_BYTES_MAX
        if used + found.bytes_max > self._bytes_max:
            return found, False
        kept = self._usual if found.bytes_max == PATTERN_BYTES_USUAL else self._large
        kept[text] = found
        return found, True

    def glob(self, text: str) -> Pattern:
        """Return a glob that `compile_glob` takes, for its one owner, who is to keep it."""
        self.compiled_total += 1
        return compile_glob(text)


class AskedPattern:
    """A pattern of a rule: taken from the rule set's when it is first asked, then kept."""

    __slots__ = ("_kept", "_patterns", "_text")

    def __init__(self, text: str, patterns: PatternCache) -> None:
        self._text = text
        self._patterns = patterns
        self._kept: Pattern | None = None

    def search(self, text: str) -> bool:
        """Tell whether the pattern is found in the first `PATTERN_TEXT_CHARS_MAX` characters."""
        pattern = self._kept
        if pattern is None:
            pattern, is_kept = self._patterns.take(self._text)
            if is_kept:
                self._kept = pattern
        return pattern.search(text[:PATTERN_TEXT_CHARS_MAX])
