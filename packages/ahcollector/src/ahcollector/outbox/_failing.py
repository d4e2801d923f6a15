"""The sender's failed turns: what is told of them, and how long each waits."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

from ahcollector import metrics as names
from ahcollector.metrics import Metrics
from ahwire import Backoff, Event
from ahwire.clock import Rng

__all__ = ["INCOMPLETE", "SENSELESS", "FailedTurns", "TryLater", "incomplete", "lease_lost"]

_log = logging.getLogger("ahcollector.outbox")

INCOMPLETE: Final = "incomplete"
SENSELESS: Final = "fence_senseless"
_LEASE_LOST: Final = "lease_lost"


class TryLater(Exception):  # noqa: N818 - a signal inside the sender, no fault
    """The rest of a turn must wait.

    Attributes:
        kind: Its name in the metrics.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def incomplete(events: Sequence[Event], told: Collection[str]) -> TryLater:
    """Return that an answer of the hub named some events only."""
    first = next(event.event_id for event in events if event.event_id not in told)
    return TryLater(
        INCOMPLETE,
        f"the hub's answer names {len(told)} of {len(events)} events, and not {first}: the others "
        "are sent again; see that the hub names each event of a request in accepted or rejected",
    )


def lease_lost(fence: int | None) -> TryLater:
    """Return that the lease of a turn ended before the turn did."""
    return TryLater(
        _LEASE_LOST,
        f"the lease with fence {fence} ended in the middle of a turn: the rest is sent by whoever "
        "has it now; where that comes again and again, make lease_seconds of the lease 1.5 times "
        "the hub's timeout, or more",
    )


class FailedTurns:
    """Counts failed turns, tells of them, and gives the wait after each.

    A wait is never over `backoff_max_seconds`, whatever the hub asks for: events are few and small,
    and people wait for them. One line tells of the first failure of a row, and one more of what
    needs a person, or where the hub asked for a longer wait than it gets.

    Args:
        metrics: Where to count.
        rng: Gives the jitter.
        backoff_min_seconds: First step of the backoff.
        backoff_max_seconds: Longest wait.
    """

    def __init__(
        self,
        *,
        metrics: Metrics,
        rng: Rng,
        backoff_min_seconds: float,
        backoff_max_seconds: float,
    ) -> None:
        self._metrics = metrics
        self._backoff = Backoff(backoff_min_seconds, backoff_max_seconds, rng)
        self._longest_seconds = backoff_max_seconds
        self._failing = self._senseless = self._asks_for_long = False

    def failed(self, kind: str, text: str, asked_seconds: float | None = None) -> float:
        """Note a failed turn; return how long to wait.

        Args:
            kind: What it is counted as.
            text: What happened.
            asked_seconds: What the hub asked to wait.
        """
        self._metrics.inc(names.OUTBOX_SEND_FAILURES, kind=kind)
        is_long = asked_seconds is not None and asked_seconds > self._longest_seconds
        wait = self._backoff.next(self._longest_seconds if is_long else asked_seconds)
        extra: dict[str, Any] = {"kind": kind, "error": text, "wait_seconds": round(wait, 1)}
        if asked_seconds is not None:
            extra["asked_seconds"] = asked_seconds
        if is_long:
            extra["error"] = (
                f"{text}; the hub asks for longer than backoff_max_seconds, it is asked again "
                f"in {wait:g} s"
            )
        needs_somebody = kind == SENSELESS and not self._senseless
        if not self._failing or needs_somebody or (is_long and not self._asks_for_long):
            level = logging.ERROR if kind == SENSELESS else logging.WARNING
            _log.log(level, "events wait in the outbox", extra=extra)
        self._failing, self._senseless = True, kind == SENSELESS
        self._asks_for_long = self._asks_for_long or is_long
        return wait

    def went_on(self) -> None:
        """Note that a turn moved something: the next wait is a short one."""
        self._backoff.reset()

    def nothing_waits(self) -> None:
        """Note that the outbox answers and is empty: the next failure begins a row of its own."""
        if self._failing:
            _log.info("nothing waits in the outbox")
        self.went_on()
        self._end_row()

    def are_over(self, depth: int) -> bool:
        """Note that the hub took what it was sent; return whether it had not before."""
        was_failing = self._failing
        if was_failing:
            _log.info("the hub answers again", extra={"depth": depth})
        self._end_row()
        return was_failing

    def _end_row(self) -> None:
        self._failing = self._senseless = self._asks_for_long = False
