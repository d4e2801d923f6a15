"""Runs what may take long beside the loop, so that others have their turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

__all__ = ["run_beside"]

T = TypeVar("T")


async def run_beside(function: Callable[[], T], *, is_long: bool) -> T:
    """Return what a pure function returns: from a thread if it is long, else at once.

    Cancelled, it is gone on with to its end.
    """
    return await anyio.to_thread.run_sync(function) if is_long else function()
