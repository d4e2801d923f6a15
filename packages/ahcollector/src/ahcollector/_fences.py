"""Which numbers can be the fencing token of a sender's lease.

A token is max(now in ms, last + 1), so one that any lease gave is far below 2**52 (which as a time
is the year 144,683). The wire carries 0 to 2**53 - 1. Who is told that a token in the upper half of
that is the newest does not follow it: above the largest there is none, and a counter that was
raised to it would never give a token again.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from ahwire.limits import MAX_FENCE

__all__ = ["FOLLOWED_MAX", "is_fence", "may_follow"]

FOLLOWED_MAX: Final = MAX_FENCE // 2


def is_fence(value: object) -> TypeGuard[int]:
    """Return whether a lease can give this: the wire carries it, and another above it."""
    return type(value) is int and 0 <= value < MAX_FENCE


def may_follow(value: object) -> TypeGuard[int]:
    """Return whether the next token may be above this one."""
    return type(value) is int and 0 <= value <= FOLLOWED_MAX
