"""One matcher of a silence or a threshold rule, made ready to be asked about texts."""

from collections.abc import Callable
from typing import TypeAlias

from ahrules._patterns import compile_pattern
from ahwire.hub import LabelMatcher, MatchOp

Test: TypeAlias = Callable[[str], bool]


def compile_matcher(matcher: LabelMatcher) -> Test:
    """Return what tells whether a text is matched.

    Raises:
        PatternError: The value is no pattern that RE2 reads.
    """
    value = matcher.value
    if matcher.op is MatchOp.EQ:
        return lambda text: text == value
    if matcher.op is MatchOp.NE:
        return lambda text: text != value
    pattern = compile_pattern(f"(?s){value}")
    if matcher.op is MatchOp.RE:
        return pattern.matches_whole
    return lambda text: not pattern.matches_whole(text)
