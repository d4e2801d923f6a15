"""Many globs of hosts at once: which of them match a host, without asking all.

Law: a glob is asked only about hosts that begin with its characters before the first sign; one that
begins with a sign, only about hosts that end with its characters behind the last. A glob of one `*`
needs no pattern.
"""

from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from ahrules._patterns import GLOB_SIGNS, Pattern, PatternCache
from ahrules._reading import is_unicode


@frozen
class Glob:
    """A host's glob, with what can be told about it without a pattern; that is compiled once.

    Attributes:
        text: As it was written.
        head: What every matching host begins with.
        tail: What every matching host ends with.
        is_plain: Whether `head*tail` is all there is to it.
    """

    text: str
    head: str
    tail: str
    is_plain: bool
    _pattern: Pattern | None = field(default=None, init=False, eq=False, repr=False)

    def matches(self, host: str, patterns: PatternCache) -> bool:
        """Tell whether the whole host matches."""
        if not self.is_plain:
            pattern = self._pattern
            if pattern is None:
                pattern = patterns.glob(self.text)
                # One assignment; at worst two threads compile the same.
                object.__setattr__(self, "_pattern", pattern)
            return pattern.matches_whole(host)
        return (
            len(host) >= len(self.head) + len(self.tail)
            and host.startswith(self.head)
            and host.endswith(self.tail)
            # As a pattern: what has no UTF-8 matches none.
            and is_unicode(host)
        )


def read_glob(text: str) -> Glob:
    """Return a glob that `compile_glob` takes, taken apart."""
    first = min(place for sign in GLOB_SIGNS if (place := text.find(sign)) >= 0)
    if "[" in text:
        return Glob(text, text[:first], "", is_plain=False)
    last = max(text.rfind(sign) for sign in GLOB_SIGNS)
    return Glob(text, text[:first], text[last + 1 :], first == last and text[first] == "*")


@frozen(eq=False)
class Globs:
    """A set of globs; immutable.

    Attributes:
        heads: Those with a beginning, by it.
        tails: The others, by their end, which may be empty.
        head_lengths: The lengths of the beginnings, ascending.
        tail_lengths: The lengths of the ends, ascending.
    """

    heads: Mapping[str, tuple[Glob, ...]] = field(factory=dict)
    tails: Mapping[str, tuple[Glob, ...]] = field(factory=dict)
    head_lengths: tuple[int, ...] = ()
    tail_lengths: tuple[int, ...] = ()

    def matching(self, host: str, patterns: PatternCache) -> Iterator[str]:
        """Yield each glob that matches the whole host."""
        for length in self.head_lengths:
            for glob in self.heads.get(host[:length], ()):
                if glob.matches(host, patterns):
                    yield glob.text
        for length in self.tail_lengths:
            for glob in self.tails.get(host[-length:] if length else "", ()):
                if glob.matches(host, patterns):
                    yield glob.text

    def replace(self, added: Iterable[str], removed: Iterable[str]) -> "Globs":
        """Return the set with globs put in (that are not there) or taken out."""
        new = [read_glob(text) for text in added]
        gone = [read_glob(text) for text in removed]
        heads = _regrouped(
            self.heads,
            [(glob.head, glob) for glob in new if glob.head],
            [(glob.head, glob) for glob in gone if glob.head],
        )
        tails = _regrouped(
            self.tails,
            [(glob.tail, glob) for glob in new if not glob.head],
            [(glob.tail, glob) for glob in gone if not glob.head],
        )
        return Globs(heads, tails, _lengths(heads), _lengths(tails))


def _regrouped(
    groups: Mapping[str, tuple[Glob, ...]],
    added: Iterable[tuple[str, Glob]],
    removed: Iterable[tuple[str, Glob]],
) -> dict[str, tuple[Glob, ...]]:
    # Each group once, however many of its globs change.
    touched: dict[str, dict[Glob, None]] = {}
    for key, glob in removed:
        touched.setdefault(key, dict.fromkeys(groups.get(key, ()))).pop(glob, None)
    for key, glob in added:
        touched.setdefault(key, dict.fromkeys(groups.get(key, ())))[glob] = None
    result = {**groups, **{key: tuple(group) for key, group in touched.items()}}
    return {key: group for key, group in result.items() if group}


def _lengths(groups: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({len(key) for key in groups}))
