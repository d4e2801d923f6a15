"""Waiting for an event, but not longer than the given clock says."""

import anyio

from ahwal.clock import AsyncClock


async def wait_for(clock: AsyncClock, event: anyio.Event, timeout_seconds: float | None) -> bool:
    """Wait until the event is set or the time is over.

    Args:
        clock: Measures the time, so that a test's clock can.
        event: What is waited for.
        timeout_seconds: None waits for the event alone.

    Returns:
        Whether the event is set.
    """
    if timeout_seconds is None:
        await event.wait()
        return True
    async with anyio.create_task_group() as group:

        async def timer() -> None:
            await clock.sleep(timeout_seconds)
            group.cancel_scope.cancel()

        group.start_soon(timer)
        await event.wait()
        group.cancel_scope.cancel()
    return event.is_set()
