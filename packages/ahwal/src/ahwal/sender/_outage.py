"""What an outage writes into the log: one warning a minute at most, and one line on recovery."""

import logging

WARN_EVERY_SECONDS = 60.0


class SeldomLog:
    """About one kind of thing that may happen often: one line a minute at most, or as given.

    Args:
        logger: Where the lines go.
        every_seconds: The least time between two lines.
    """

    def __init__(
        self, *, logger: logging.Logger, every_seconds: float = WARN_EVERY_SECONDS
    ) -> None:
        self._log = logger
        self._every_seconds = every_seconds
        self._last: float | None = None

    def due(self, now: float) -> bool:
        """Whether a line may be written at monotonic `now`; if so, the next pause begins."""
        if self._last is not None and now - self._last < self._every_seconds:
            return False
        self._last = now
        return True

    def error(self, now: float, message: str, *arguments: object) -> None:
        """Write a line at level error if one may be written; at debug otherwise."""
        self._log.log(logging.ERROR if self.due(now) else logging.DEBUG, message, *arguments)


class OutageLog:
    """Remembers since when delivery fails.

    Args:
        logger: Where the lines go.
    """

    def __init__(self, *, logger: logging.Logger) -> None:
        self._log = logger
        self._since: float | None = None
        self._warned_at = 0.0
        self._failures = 0

    def failed(self, now: float, *, reason: str, request_id: str, wait_seconds: float) -> None:
        """Record a failure at monotonic `now`."""
        first = self._since is None
        if self._since is None:
            self._since = now
        self._failures += 1
        level = logging.DEBUG
        if first or now - self._warned_at >= WARN_EVERY_SECONDS:
            level = logging.WARNING
            self._warned_at = now
        self._log.log(
            level,
            "delivery failed, backing off: %s",
            reason,
            extra={
                "request_id": request_id,
                "wait_seconds": round(wait_seconds, 1),
                "failures": self._failures,
            },
        )

    def recovered(self, now: float) -> None:
        """Record a success at monotonic `now`."""
        if self._since is None:
            return
        self._log.info(
            "delivery works again after %.0f s and %d failures", now - self._since, self._failures
        )
        self._since, self._failures = None, 0
