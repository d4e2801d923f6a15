"""Blocking calls in threads: those that end, and those that may hang for ever.

Those that end (`in_thread`) use threads of a number of their own. The host program may have filled
the usual ones, as a web framework does with its blocking handlers, and the queue must not wait for
them.

Those that may hang get threads that nobody has to wait for.

`anyio.to_thread` uses threads that the interpreter joins at its end. A name look-up behind a dead
resolver, or a `statvfs` on a dead network mount, would then hold the whole program long after it
was told to stop. Here every call gets a daemon thread of its own; a caller that is cancelled leaves
the thread behind, and the number of threads left behind is bounded.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import TypeAlias, TypeGuard, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from ahwal.errors import BusyError

T = TypeVar("T")
CallSoon: TypeAlias = Callable[[Callable[[], None]], None]

# For all agents of one event loop; each has at most a few calls under way.
THREADS_MAX = 16
_limiter: RunVar[CapacityLimiter] = RunVar("ahwal threads")


async def in_thread(func: Callable[..., T], *arguments: object) -> T:
    """Return `func(*arguments)`, computed in a worker thread; a cancellation waits for its end."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(THREADS_MAX)
        _limiter.set(limiter)
    return await to_thread.run_sync(func, *arguments, limiter=limiter)


def call_soon_of_this_loop() -> CallSoon:
    """Return the running loop's way to be told something by another thread, which never waits.

    What is returned does nothing when the loop has ended. A portal's calls wait until the loop has
    taken them: a host's loop may be busy for seconds, and one that has just ended never takes them.
    """
    soon = _soon_of_this_loop()

    def call_soon(call: Callable[[], None]) -> None:
        # When the loop has ended, nobody in it waits any more.
        with contextlib.suppress(RuntimeError):
            soon(call)

    return call_soon


def _soon_of_this_loop() -> Callable[[Callable[[], None]], object]:
    trio = sys.modules.get("trio")
    if trio is not None:
        # Asked first, because trio may be a guest in a loop of asyncio.
        with contextlib.suppress(RuntimeError):
            soon: Callable[[Callable[[], None]], object]
            soon = trio.lowlevel.current_trio_token().run_sync_soon
            return soon
    return asyncio.get_running_loop().call_soon_threadsafe


class EndedError(Exception):
    """A call raised what ends programs, tasks or coroutines, and must not end its caller's.

    Attributes:
        error: What it raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"it raised {type(error).__name__}")
        self.error = error


def _is_tame(error: BaseException) -> TypeGuard[Exception]:
    # A coroutine cannot raise StopIteration.
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


class DaemonCalls:
    """Runs blocking functions in daemon threads.

    Args:
        name: What the calls are for; part of the threads' names and of the error text.
        calls_max: How many calls may be under way, the abandoned ones included.
    """

    def __init__(self, *, name: str, calls_max: int) -> None:
        self._name = name
        self._free = threading.Semaphore(calls_max)
        self._calls_max = calls_max

    async def run(self, func: Callable[[], T]) -> T:
        """Return `func()`, computed in a thread of its own.

        Cancellation abandons the thread: `func` goes on, and its result is thrown away.

        Raises:
            BusyError: `calls_max` earlier calls have not come back.
            Exception: Whatever `func` raises.
            EndedError: It raised what is no ordinary Exception, such as SystemExit.
        """
        if not self._free.acquire(blocking=False):
            raise BusyError(
                f"{self._name}: {self._calls_max} earlier calls have not come back; "
                "they may hang on a dead resolver or mount"
            )
        done = anyio.Event()
        outcome: list[T] = []
        failure: list[Exception] = []
        call_soon = call_soon_of_this_loop()

        def call() -> None:
            try:
                outcome.append(func())
            except BaseException as error:  # noqa: BLE001 - handed to the waiting caller
                failure.append(error if _is_tame(error) else EndedError(error))
            finally:
                self._free.release()
            call_soon(done.set)

        threading.Thread(target=call, name=f"ahwal {self._name}", daemon=True).start()
        await done.wait()
        if failure:
            raise failure[0]
        return outcome[0]
