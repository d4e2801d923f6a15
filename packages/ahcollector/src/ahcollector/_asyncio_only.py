"""What is built on a library that runs on asyncio says so elsewhere."""

from __future__ import annotations

import asyncio

__all__ = ["check_asyncio"]


def check_asyncio(what: str) -> None:
    """Return where asyncio runs.

    Raises:
        RuntimeError: It does not; the text names `what` needs it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise RuntimeError(
            f"{what} needs asyncio, and this runs on another event loop (trio, or none): begin the "
            "program with anyio.run(main), or asyncio.run(main())"
        ) from error
