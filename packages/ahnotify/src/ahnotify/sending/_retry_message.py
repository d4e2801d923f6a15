"""The message of the next attempt."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ahnotify.sending._retry import RetrySchedule
from ahnotify.sending._targets import Target
from ahwire import NotificationMessage
from ahwire.notification import Retry


def retry_message(
    message: NotificationMessage, targets: Sequence[Target], schedule: RetrySchedule
) -> NotificationMessage:
    """`message` with the next epoch, due when the first waiting target is."""
    waiting = [each for each in targets if each.next_attempt_at is not None]
    first = min(waiting, key=lambda each: (each.next_attempt_at, each.target_id))
    epoch = message.retry.epoch if message.retry else 0
    return attrs.evolve(
        message,
        retry=Retry(
            attempt=max(each.attempt for each in waiting),
            max_attempts=schedule.attempts_max,
            epoch=epoch + 1,
            not_before=first.next_attempt_at,
            last_error=first.error_code,
        ),
    )
