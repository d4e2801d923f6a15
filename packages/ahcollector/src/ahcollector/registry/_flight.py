"""One call for many callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

__all__ = ["SingleFlight"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Flight(Generic[V]):
    """A call under way; when it has landed with neither value nor error, nobody finished it."""

    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.value: tuple[V] | None = None
        self.error: Exception | None = None


class SingleFlight(Generic[K, V]):
    """Callers that ask for one key at the same time share one call.

    The first caller makes the call in its own task and the others wait. When it is cancelled, one
    of the waiting makes the call anew; when the call fails, all who waited get that error, and
    whoever asks next tries again.
    """

    def __init__(self) -> None:
        self._flights: dict[K, _Flight[V]] = {}

    def __len__(self) -> int:
        """Return how many calls are under way."""
        return len(self._flights)

    async def do(self, key: K, call: Callable[[], Awaitable[V]]) -> V:
        """Return what `call` returns, made by whichever caller of `key` came first."""
        while (flight := self._flights.get(key)) is not None:
            await flight.landed.wait()
            if flight.value is not None:
                return flight.value[0]
            if flight.error is not None:
                raise flight.error
        flight = self._flights[key] = _Flight()
        try:
            value = await call()
        except Exception as error:
            flight.error = error
            raise
        else:
            flight.value = (value,)
            return value
        finally:
            del self._flights[key]
            flight.landed.set()
