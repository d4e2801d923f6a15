"""The bounds of what a rule may contain.

A rule is written by a tenant's user, and all rules share one process: none of them may cost more
than these bounds say, however it is written.
"""

from typing import Final

PREDICATE_DEPTH_MAX: Final = 8
"""How deep `not`, `all` and `any` may nest."""

PREDICATES_MAX: Final = 1_000
"""Conditions in one rule, all levels together."""

FILTER_VALUES_MAX: Final = 10_000
"""Values in one filter, or in one `in` list."""

RULE_VALUES_MAX: Final = 50_000
"""Values in all lists of one rule together."""

PATTERN_BYTES_MAX: Final = 1 << 18
"""What RE2 may use for one pattern: its program and its states."""

PATTERN_TEXT_CHARS_MAX: Final = 4_096
"""Characters of a text that a pattern is asked about: the rest is as if it were not there.

The time is linear in the text, but there are patterns of a thousand characters that take tens of
microseconds a character: up to some sixteen nanoseconds for each step of RE2's program.
"""

RULE_PATTERN_STEPS_MAX: Final = 25_000
"""Steps of RE2's programs of all patterns of `matches` of one rule together.

With `PATTERN_TEXT_CHARS_MAX` this bounds what a rule's patterns cost an event: steps times
characters, a second or two for the worst that can be written.
"""

CONTAINS_ITEMS_MAX: Final = 4_096
"""Items of a list that `contains` looks at: the rest is as if it were not there."""

RULE_PATTERN_CHARS_MAX: Final = 20_000
"""Characters in all patterns, and in all globs of more than one `*`, of one rule together."""

GLOB_CHARS_COUNTED_MIN: Final = 20
"""As so many characters counts a shorter glob: a rule has at most a thousand such globs."""

PATTERN_CHARS_COUNTED_MIN: Final = 200
"""As so many characters counts a shorter pattern of `matches`: a rule has at most a hundred."""

PATTERN_BYTES_USUAL: Final = 1 << 14
"""What RE2 may use for a pattern that needs no more, as nearly all; its answers are the same."""

PATTERNS_BYTES_MAX: Final = 1 << 28
"""What RE2 may use for the patterns that a rule set keeps compiled: some 16,000 usual ones.

A pattern beyond that is compiled each time it is asked, which takes some ten times as long; those
that are kept stay.
"""

NUMBER_BITS_MAX: Final = 256
"""Bits of a whole number that is compared with."""

LOOKUP_BYTES_MAX: Final = 16_384
"""What a lookup carries along, as JSON."""

LOOKUP_DEPTH_MAX: Final = 32
"""How deep that nests; as deep as an event's payload."""

RATE_COUNT_MAX: Final = 1_000_000
"""Notifications that a rule's own limit may allow at once."""

RATE_SECONDS_MIN: Final = 0.001
RATE_SECONDS_MAX: Final = 31 * 86_400
"""The time that a rule's own limit may count over."""

FAULTS_MAX: Final = 100
"""Faults that are told of one rule; whoever wrote more has written something else than a rule."""

ID_CHARS_MAX: Final = 256
"""Characters of an id; a message of `ahwire.notification` carries no longer ones."""

TEXT_CHARS_MAX: Final = 1_000
"""Characters of a name, pattern or value that a rule's author writes."""

INTERVAL_MAX: Final = 10_000
"""A schedule's interval, in its unit."""
