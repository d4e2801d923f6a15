"""Small helpers for tests that break things and wait for the outcome."""

import time
from collections.abc import Callable

__all__ = ["wait_until"]


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    timeout_seconds: float = 10.0,
    poll_seconds: float = 0.02,
) -> None:
    """Return as soon as `condition()` is true.

    Args:
        condition: Asked again and again from this thread; what it raises passes through.
        what: What is waited for, as it should read in the error: "the queue to be empty".
        timeout_seconds: How long to wait at most.
        poll_seconds: The pause between two questions.

    Raises:
        TimeoutError: The condition did not become true in time.
    """
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s for {what} in vain")
        time.sleep(poll_seconds)
