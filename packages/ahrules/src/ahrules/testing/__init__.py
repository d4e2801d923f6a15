"""What implementations of this package's protocols must show.

Needs pytest's way of collecting classes, and nothing else.
"""

from ahrules.testing._limiter_contract import LimiterContract

__all__ = ["LimiterContract"]
