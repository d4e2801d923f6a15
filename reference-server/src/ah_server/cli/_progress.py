"""What a command says while it waits for long work."""

import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from ah_server.cli._printing import shown
from ah_server.errors import ServerError

T = TypeVar("T")

SECONDS = 2.0
"""Between two lines; what is done by then says nothing."""


async def with_progress(work: Callable[[], Awaitable[T]], look: Callable[[], Awaitable[str]]) -> T:
    """The result of some work; while it lasts, what `look` finds goes to standard error.

    A look that fails is left out: how the work ends is told by the work.
    """
    result: list[T] = []
    failures: list[ServerError] = []

    async def tell() -> None:
        while True:
            await anyio.sleep(SECONDS)
            try:
                print(shown(await look()), file=sys.stderr, flush=True)
            except ServerError:
                continue

    async with anyio.create_task_group() as group:
        group.start_soon(tell)
        try:
            result.append(await work())
        except ServerError as error:
            # Out of the group as itself, and not as one of a group.
            failures.append(error)
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return result[0]
