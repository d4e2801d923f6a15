"""What follows from the end of a call: pure, a table.

outcome                         then
accepted                        sent, final
refused for good                failed, final
refused for now, attempts left  retry after 1, 5, 30 minutes, not before what the provider asked for
told to wait (retry_after)      retry after that time; no attempt is spent
end not known, policy resend    unknown, again like a retry, under the same reference
end not known, policy stop      unknown, final
no attempt left                 failed or unknown, final
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import attrs

from ahnotify.errors import (
    PermanentProviderError,
    ProviderError,
    TemporaryProviderError,
    UnknownOutcomeError,
)
from ahnotify.providers.base import ProviderResult, UnknownPolicy

SENT: Final = "sent"
RETRY: Final = "retry"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
PENDING: Final = "pending"


@attrs.frozen(kw_only=True)
class RetrySchedule:
    """How long after which attempt the next one follows.

    Attributes:
        delays_seconds: After the first, second, … attempt; one more attempt than delays is made.
        tries_max: Calls at most, also when the provider only ever tells to wait.
        wait_seconds_max: The longest wait that a provider is obeyed in.
    """

    delays_seconds: tuple[float, ...] = (60, 300, 1_800)
    tries_max: int = 100
    wait_seconds_max: float = 86_400

    @property
    def attempts_max(self) -> int:
        """How many attempts are made."""
        return len(self.delays_seconds) + 1


@attrs.frozen(kw_only=True)
class Step:
    """Where a target goes after a call.

    Attributes:
        status: Its new status.
        spent: Whether the call counts as an attempt.
        next_attempt_at: When to try again; None when the status is final.
        error_code: Why, else None.
        error_message: In words, else None.
        provider_message_id: From the provider, else None.
    """

    status: str
    spent: bool = True
    next_attempt_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    provider_message_id: str | None = None


def after_call(
    outcome: ProviderResult | ProviderError,
    *,
    attempt: int,
    tries: int,
    now: datetime,
    schedule: RetrySchedule,
    unknown_policy: str,
) -> Step:
    """The step after attempt number `attempt` (from 1), which was call number `tries`."""
    if isinstance(outcome, ProviderResult):
        return Step(status=SENT, provider_message_id=outcome.provider_message_id)
    step = Step(status=FAILED, error_code=outcome.code, error_message=outcome.detail or None)
    if isinstance(outcome, PermanentProviderError):
        return step
    if isinstance(outcome, UnknownOutcomeError):
        step = attrs.evolve(step, status=UNKNOWN, provider_message_id=outcome.reference)
        if unknown_policy == UnknownPolicy.STOP:
            return step
    asked = outcome.retry_after_seconds if isinstance(outcome, TemporaryProviderError) else None
    if tries >= schedule.tries_max:
        return step
    if asked is not None:
        wait = min(max(asked, 0), schedule.wait_seconds_max)
        return attrs.evolve(
            step, status=RETRY, spent=False, next_attempt_at=now + timedelta(seconds=wait)
        )
    if attempt >= schedule.attempts_max:
        return step
    delay = timedelta(seconds=schedule.delays_seconds[attempt - 1])
    waiting = UNKNOWN if step.status == UNKNOWN else RETRY
    return attrs.evolve(step, status=waiting, next_attempt_at=now + delay)


def overall(statuses: list[tuple[str, bool]]) -> tuple[str, bool]:
    """The status of a notification from `(status, final)` of its targets, and whether it is final.

    While a target waits, the whole is `retry` (or `pending` before the first attempt ended); in the
    end one failure makes it `failed`, else one unknown end makes it `unknown`.
    """
    if any(not final for _, final in statuses):
        waiting = any(status in (RETRY, UNKNOWN) for status, final in statuses if not final)
        return (RETRY if waiting else PENDING), False
    names = {status for status, _ in statuses}
    for status in (FAILED, UNKNOWN):
        if status in names:
            return status, True
    return SENT, True
