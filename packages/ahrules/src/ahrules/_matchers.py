"""The matchers of a silence or a threshold rule, made ready to be asked about texts.

Laws: all patterns of one silence or rule together have at most `RULE_PATTERN_STEPS_MAX` steps, and
see the first `PATTERN_TEXT_CHARS_MAX` characters of a text. So none costs more than linear time,
and a bounded one, whatever is written and whatever it is asked about.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ahrules._limits import PATTERN_TEXT_CHARS_MAX, RULE_PATTERN_STEPS_MAX
from ahrules._patterns import Pattern, PatternError, compile_pattern
from ahrules.errors import FieldError
from ahwire.hub import LabelMatcher, MatchOp

Test: TypeAlias = Callable[[str], bool]

_PATTERNS = frozenset({MatchOp.RE, MatchOp.NRE})


def compile_each(
    matchers: Sequence[LabelMatcher], faults: list[FieldError]
) -> Iterator[tuple[int, LabelMatcher, Test]]:
    """Yield each matcher with its place and what tells whether it holds for a text.

    Args:
        matchers: Those of one silence or rule.
        faults: Where it is told which cannot be used; these are left out.
    """
    steps = 0
    for index, matcher in enumerate(matchers):
        if matcher.op not in _PATTERNS:
            yield index, matcher, _comparison(matcher)
            continue
        path = f"matchers[{index}].value"
        try:
            pattern = compile_pattern(f"(?s){matcher.value}")
        except PatternError as error:
            faults.append(FieldError(path, str(error)))
            continue
        steps += pattern.steps
        if steps <= RULE_PATTERN_STEPS_MAX:
            yield index, matcher, _search(pattern, wanted=matcher.op is MatchOp.RE)
            continue
        message = (
            f"brings the patterns of all matchers to {steps} steps; {RULE_PATTERN_STEPS_MAX} are"
            " the most; write smaller repetitions and fewer classes as \\pL, or split it in two"
        )
        faults.append(FieldError(path, message))
        return


def _comparison(matcher: LabelMatcher) -> Test:
    value = matcher.value
    if matcher.op is MatchOp.EQ:
        return lambda text: text == value
    return lambda text: text != value


def _search(pattern: Pattern, *, wanted: bool) -> Test:
    return lambda text: pattern.matches_whole(text[:PATTERN_TEXT_CHARS_MAX]) is wanted
