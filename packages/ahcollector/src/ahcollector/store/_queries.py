"""Parts of queries to VictoriaMetrics: instants, ends of ranges, several questions in one."""

from __future__ import annotations

from typing import Final

__all__ = ["EARLIEST_MS", "MARK", "asked_start_ms", "between", "seconds", "seen_end_ms", "union"]

MARK: Final = "__ah"
"""The label that tells the parts of a union apart; no label of an agent begins with ``__``."""

EARLIEST_MS: Final = 5 * 365 * 86_400_000
"""No question begins before: VictoriaMetrics answers nothing to one from 1970 to a day to come."""

# It hides the newest half minute of a range whose step is under a minute.
_HIDING_STEP_MS: Final = 60_000
_HIDDEN_MS: Final = 60_000


def seconds(ms: int) -> str:
    """Return an instant or a step as VictoriaMetrics reads it without losing a millisecond.

    It reads any form of them into a floating number of seconds, which it cuts off to milliseconds
    (newer versions round): every eighth would become a millisecond less. A quarter of a millisecond
    more is cut off, or rounded, to the right one.
    """
    hundredths = ms * 100 + 25
    return f"{hundredths // 100_000}.{hundredths % 100_000:05d}"


def between(start_ms: int, end_ms: int) -> dict[str, str]:
    """Return the times of a question about all that is between two instants."""
    return {"start": seconds(start_ms), "end": seconds(end_ms)}


def asked_start_ms(start_ms: int, step_ms: int) -> int:
    """Return the first instant of a range that can be asked for: one of its own."""
    return start_ms + max(0, -(-(EARLIEST_MS - start_ms) // step_ms)) * step_ms


def seen_end_ms(last_ms: int, step_ms: int, now_ms: int) -> int:
    """Return where a range must end for its last point to be true.

    In a range with a short step that ends now, the newest points are copies of an earlier one; in
    one that ends later they are as they are.
    """
    if step_ms >= _HIDING_STEP_MS or last_ms < now_ms - _HIDDEN_MS:
        return last_ms
    missing_ms = max(0, now_ms + step_ms + _HIDDEN_MS - last_ms)
    return last_ms + -(-missing_ms // step_ms) * step_ms


def union(**parts: str) -> str:
    """Return one query of several; each series carries the name of its part."""
    marked = [
        f'label_set({part} keep_metric_names, "{MARK}", "{name}")' for name, part in parts.items()
    ]
    return f"union({', '.join(marked)})"
