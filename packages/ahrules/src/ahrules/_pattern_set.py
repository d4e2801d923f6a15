"""Many patterns asked at once: which of them may match a whole text.

Laws: no pattern that matches is left out, and nearly none that does not is in the answer; whoever
needs to be sure asks the pattern. RE2 walks a text once for up to `_TOGETHER` patterns. Where it
has not the memory for that it would answer with nothing: so a pattern that matches everything
stands among them, and where that is missing, or they cannot be put together, all are given.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ahrules._limits import PATTERN_TEXT_CHARS_MAX
from ahrules._patterns import Together, compile_together

_TOGETHER: Final = 1_000
_EACH_BYTES: Final = 8 << 10
_BYTES_MIN: Final = 1 << 20
_EVERYTHING: Final = "(?s).*"


class PatternSet:
    """Patterns in RE2's syntax, each of which can be compiled alone.

    Args:
        patterns: Known by their places from then on.
        each_bytes: How much memory RE2 may use for one of them, of many.
        bytes_min: How much it may use for few.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        each_bytes: int = _EACH_BYTES,
        bytes_min: int = _BYTES_MIN,
    ) -> None:
        self._each_bytes = each_bytes
        self._bytes_min = bytes_min
        self._parts: list[tuple[Together, range]] = []
        self._alone: list[int] = []
        for first in range(0, len(patterns), _TOGETHER):
            self._add(patterns, range(first, min(first + _TOGETHER, len(patterns))))

    def may_match(self, text: str) -> Iterator[int]:
        """Yield the places of the patterns that may match the text, as far as patterns see it."""
        try:
            seen = text[:PATTERN_TEXT_CHARS_MAX].encode()
        except UnicodeEncodeError:
            return  # half a surrogate pair: no pattern matches it
        yield from self._alone
        for part, places in self._parts:
            found = part(seen)
            if len(places) not in found:
                yield from places
                continue
            yield from (places[place] for place in found if place < len(places))

    def _add(self, patterns: Sequence[str], places: range) -> None:
        """Put these together; in halves where that takes too much memory."""
        if len(places) < 2:
            self._alone += places
            return
        together = [f"(?s){patterns[place]}" for place in places]
        bytes_max = max(self._bytes_min, self._each_bytes * len(places))
        part = compile_together([*together, _EVERYTHING], bytes_max)
        if part is not None:
            self._parts.append((part, places))
            return
        half = len(places) // 2
        self._add(patterns, places[:half])
        self._add(patterns, places[half:])
