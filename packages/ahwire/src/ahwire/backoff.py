"""When to try again: full jitter, the phase of a cycle, and what a Retry-After says.

The step starts at `base_seconds` and doubles to `max_seconds`; the wait is uniform in [0, step].
The jitter is not clipped at the cap, so that a crowd whose steps have all reached it stays spread
over the whole of [0, cap] and does not come back in one second.
"""

import hashlib
import math
import re
from datetime import UTC
from typing import overload

from ahwire.clock import Rng
from ahwire.limits import MAX_RETRY_AFTER_SECONDS

__all__ = [
    "Backoff",
    "parse_retry_after",
    "phase_offset",
]

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")
_VALUE_CHARS_MAX = 128


class Backoff:
    """The retry schedule of one sender. Not for use from several threads at once."""

    @overload
    def __init__(self, base_seconds: float, max_seconds: float, rng: Rng) -> None: ...
    @overload
    def __init__(
        self, base_seconds: float = ..., max_seconds: float = ..., *, rng: Rng
    ) -> None: ...
    def __init__(
        self,
        base_seconds: float = 5.0,
        max_seconds: float = 300.0,
        rng: Rng | None = None,
    ) -> None:
        """Begin at the first step.

        Args:
            base_seconds: the first step, above 0.
            max_seconds: the largest step, not under the first.
            rng: gives the jitter; always to be given, such as `random.Random()`.

        Raises:
            TypeError: no `rng`.
            ValueError: the steps are not finite, not positive, or not in order.
        """
        if rng is None:
            # Only keyword use can leave it out; what is pure must not fetch chance itself.
            msg = "Backoff needs rng=, the source of its jitter, such as random.Random()"
            raise TypeError(msg)
        if not (0 < base_seconds <= max_seconds < math.inf):
            msg = (
                f"base_seconds={base_seconds!r}, max_seconds={max_seconds!r}: "
                "they must be finite and 0 < base_seconds <= max_seconds"
            )
            raise ValueError(msg)
        self._base_seconds = base_seconds
        self._max_seconds = max_seconds
        self._step_seconds = base_seconds
        self._rng = rng

    def next(self, retry_after_seconds: float | None = None) -> float:
        """Seconds to wait before the next try; each call makes the following step larger.

        Args:
            retry_after_seconds: what the other side asked for, if it did; at most 1 h of it counts,
                and what is not above 0 counts as nothing.

        Returns:
            At least min(retry_after_seconds, 1 h), else uniform in [0, step].
        """
        wait = self._rng.uniform(0.0, self._step_seconds)
        self._step_seconds = min(self._step_seconds * 2, self._max_seconds)
        if retry_after_seconds is None or not retry_after_seconds > 0:
            return wait
        return max(wait, min(retry_after_seconds, float(MAX_RETRY_AFTER_SECONDS)))

    def reset(self) -> None:
        """Begin again at the first step: something succeeded."""
        self._step_seconds = self._base_seconds


def phase_offset(agent_id: str, interval_seconds: float) -> float:
    """Seconds by which an agent delays its first cycle, in [0, interval_seconds).

    The first 8 bytes of sha256(agent_id), big-endian, modulo the interval, both in nanoseconds: a
    fleet that is started together is spread evenly, and each agent always gets the same place.

    Raises:
        ValueError: the interval is under a nanosecond.
    """
    interval_ns = round(interval_seconds * 1e9)
    if interval_ns <= 0:
        msg = f"interval_seconds is {interval_seconds!r}; it must be above 0"
        raise ValueError(msg)
    digest = hashlib.sha256(agent_id.encode()).digest()
    return (int.from_bytes(digest[:8], "big") % interval_ns) / 1e9


def parse_retry_after(value: str | None, *, now: float) -> float | None:
    """Seconds that a Retry-After header asks for; never raises.

    Both forms are read: a number of seconds (a fraction is taken too), and a date in each of the
    three notations of RFC 9110. Of several headers joined with commas the longest wait counts.

    Args:
        value: the header's value, or None when there was none.
        now: the wall clock in Unix seconds, to which a date is compared.

    Returns:
        A number in [0, 3600]; None when there is no value, or none that can be read.
    """
    if value is None or len(value) > _VALUE_CHARS_MAX:
        return None
    text = value.strip()
    parts = [part.strip() for part in text.split(",")]
    if all(_NUMBER.fullmatch(part) for part in parts):
        return _clamp(max(float(part) for part in parts))
    moment = _parse_date(text)
    return None if moment is None else _clamp(moment - now)


def _clamp(seconds: float) -> float:
    return min(max(seconds, 0.0), float(MAX_RETRY_AFTER_SECONDS))


def _parse_date(text: str) -> float | None:
    """Unix seconds of an HTTP date, or None."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # slow, seldom needed

    try:
        moment = parsedate_to_datetime(text)
        # The asctime form names no zone; HTTP says that it is UTC.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        # The standard library's parser answers garbage with any of these.
        return None
