"""The bounds of what a rule may contain."""

from typing import Final

PREDICATE_DEPTH_MAX: Final = 8
"""How deep `not`, `all` and `any` may nest."""

PREDICATES_MAX: Final = 1_000
"""Conditions in one rule, all levels together."""

FILTER_VALUES_MAX: Final = 10_000
"""Values in one filter, or in one `in` list."""

ID_CHARS_MAX: Final = 256
"""Characters of an id; a message of `ahwire.notification` carries no longer ones."""

TEXT_CHARS_MAX: Final = 1_000
"""Characters of a name, pattern or value that a rule's author writes."""

INTERVAL_MAX: Final = 10_000
"""A schedule's interval, in its unit."""
