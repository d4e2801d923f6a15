"""The sender's own token bucket: the protocol's rate, so that draining never earns a 429."""

from ahwire import limits

_SLOWEST = 1 / 8
_RECOVERY = 1.25
# Rounding must not leave a wait that no clock can measure, after which the same is left again.
_ONE = 1.0 - 1e-6


class Pace:
    """How many requests may still be made now.

    The bucket holds `limits.METRICS_BURST` and fills at the protocol's rate for the interval in
    force. A 429 empties it and halves the filling, down to an eighth; each success brings a quarter
    back, up to the protocol's rate.

    Args:
        interval_seconds: The collection interval in force.
        now: Monotonic seconds at the start; the bucket is full then.
    """

    def __init__(self, *, interval_seconds: float, now: float) -> None:
        self._interval_seconds = interval_seconds
        self._factor = 1.0
        self._tokens = float(limits.METRICS_BURST)
        self._filled_at = now

    @property
    def per_second(self) -> float:
        """Requests a second that the bucket gains."""
        return limits.metrics_per_minute(self._interval_seconds) / 60.0 * self._factor

    def set_interval(self, interval_seconds: float, *, now: float) -> None:
        """Use the rate of another interval from now on."""
        self._fill(now)
        self._interval_seconds = interval_seconds

    def take(self, now: float) -> bool:
        """Spend one request if there is one."""
        self._fill(now)
        if self._tokens < _ONE:
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until `take` succeeds."""
        self._fill(now)
        return 0.0 if self._tokens >= _ONE else (1.0 - self._tokens) / self.per_second

    def limited(self, now: float) -> None:
        """Learn from a 429."""
        self._fill(now)
        self._tokens = 0.0
        self._factor = max(_SLOWEST, self._factor / 2)

    def accepted(self, now: float) -> None:
        """Learn from a success."""
        self._fill(now)
        self._factor = min(1.0, self._factor * _RECOVERY)

    def _fill(self, now: float) -> None:
        elapsed = max(0.0, now - self._filled_at)
        self._filled_at = max(self._filled_at, now)
        self._tokens = min(float(limits.METRICS_BURST), self._tokens + elapsed * self.per_second)
