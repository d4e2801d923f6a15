"""Runs the parts of the server together: started in order, stopped in reverse, all or none.

A part is a name and an `async run` that serves until it is cancelled. Each has a deadline for its
stop: a part that is not done by then is left behind with a log line, so that one hanging connection
cannot hold the others. When a part fails, or ends though nobody asked it to, the rest is stopped in
the same order and the error surfaces as `ServiceFailedError`: the server is never half alive.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import anyio
import attrs
from anyio.abc import TaskGroup, TaskStatus

from ah_server.errors import ServerError, ServiceFailedError

_log = logging.getLogger("ah_server.parts")


@contextmanager
def one_error() -> Iterator[None]:
    """Turns the group that a task group raises into the one error that tells what happened."""
    try:
        yield
    except BaseExceptionGroup as group:
        leaves = _leaves(group)
        known = [leaf for leaf in leaves if isinstance(leaf, ServerError)]
        raise (known or leaves)[0] from group


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


class Part(Protocol):
    """Something the server runs."""

    @property
    def name(self) -> str:
        """How logs and readiness call it."""
        ...

    @property
    def stop_seconds(self) -> float:
        """How long its orderly stop may take."""
        ...

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serves until `stop` or cancellation; calls `task_status.started()` once it is ready."""
        ...

    def stop(self) -> bool:
        """Asks for an orderly end. False: the part has no such way and is to be cancelled."""
        ...


@attrs.frozen(kw_only=True)
class Loop:
    """A part made of a library's `run()` coroutine function, which drains when it is cancelled."""

    name: str
    body: Callable[[], Awaitable[None]]
    stop_seconds: float = 3.0

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Runs the body; ready at once."""
        task_status.started()
        await self.body()

    def stop(self) -> bool:
        """Loops end by cancellation."""
        return False


class _Running(TaskStatus[None]):
    """A part with what became of it; it is told `started` by the part itself."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.scope = anyio.CancelScope()
        self.ready = anyio.Event()
        self.done = anyio.Event()
        self.error: Exception | None = None

    def started(self, value: None = None) -> None:  # noqa: ARG002  # the signature is fixed
        self.ready.set()


class Supervisor:
    """Runs parts until told to stop or until one fails.

    Args:
        parts: in the order of their start; each may rely on those before it.
        progress: told the name of each part when it is ready, and when it has ended.
    """

    def __init__(
        self, parts: Sequence[Part], *, progress: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        self._parts = tuple(parts)
        self._progress = progress
        self._stopping = anyio.Event()
        self.all_started = anyio.Event()
        self._running: list[_Running] = []

    def request_stop(self) -> None:
        """Begins the orderly stop; `run` returns when it is over."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Starts all parts, waits, stops them. Ready once all parts are.

        Raises:
            ServerError: a part could not start.
            ServiceFailedError: a part failed or ended by itself while it should serve.
        """
        async with anyio.create_task_group() as group:
            try:
                await self._start_all(group)
                if not self._stopping.is_set():
                    self.all_started.set()
                    task_status.started()
                await self._stopping.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._stop_all(group)
        failed = [one for one in self._running if one.error is not None]
        if failed:
            cause = failed[0].error
            if isinstance(cause, ServerError) and not isinstance(cause, ServiceFailedError):
                raise cause
            raise ServiceFailedError(
                f"the part {failed[0].part.name} ended with an error and the server was stopped:"
                f" {type(cause).__name__}: {cause}"
            ) from cause

    async def _start_all(self, group: TaskGroup) -> None:
        for part in self._parts:
            running = _Running(part)
            self._running.append(running)
            # A part that fails before it is ready ends here too: _guard has noted why.
            group.start_soon(self._guard, running)
            await running.ready.wait()
            if self._stopping.is_set():
                return
            self._progress("started", part.name)

    async def _guard(self, running: _Running) -> None:
        try:
            with running.scope:
                await running.part.run(task_status=running)
                if not self._stopping.is_set():
                    raise ServiceFailedError("it ended though it should serve")
        except Exception as error:  # noqa: BLE001  # the one supervisor of every part
            running.error = error
            if not isinstance(error, ServerError):
                _log.error("part %s failed", running.part.name, exc_info=error)
            self._stopping.set()
        finally:
            running.ready.set()
            running.done.set()

    async def _stop_all(self, group: TaskGroup) -> None:
        self._stopping.set()
        for running in reversed(self._running):
            if running.done.is_set():
                continue
            with anyio.move_on_after(running.part.stop_seconds):
                if not running.part.stop():
                    running.scope.cancel()
                await running.done.wait()
            if not running.done.is_set():
                _log.warning(
                    "part %s did not end within %.0f s and is cut off",
                    running.part.name,
                    running.part.stop_seconds,
                )
                running.scope.cancel()
            self._progress("stopped", running.part.name)
        group.cancel_scope.cancel()
