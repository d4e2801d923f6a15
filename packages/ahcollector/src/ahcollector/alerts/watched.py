"""Whether the states of alerts can be kept now, for a readiness check."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from ahcollector.alerts.base import AlertChange, AlertImage, AlertStateStore, StoreGlance, UnitKey
from ahcollector.errors import AlertStateError, FencedAlertStateError
from ahwire import Clock

__all__ = ["WatchedAlertStates"]

_FAILING_MAX: Final = 1_000


class WatchedAlertStates:
    """An `AlertStateStore` that remembers which calls of the one behind it failed last.

    It changes nothing of what a call does. A failure is over when the same call of the same unit is
    done; or, since the unit may be another process' by then, when nobody has repeated it for
    `lasting_seconds`. The newest 1,000 are remembered.

    Args:
        store: Keeps the states.
        clock: Ages failures.
        lasting_seconds: How long a failure counts that is not repeated: longer than whoever uses
            the store waits between two tries.
    """

    def __init__(
        self, *, store: AlertStateStore, clock: Clock, lasting_seconds: float = 60.0
    ) -> None:
        self._store = store
        self._clock = clock
        self._lasting_seconds = lasting_seconds
        self._failing: dict[tuple[str, UnitKey | None], tuple[float, str]] = {}

    async def check(self) -> None:
        """Return when every call that somebody waits for was done.

        Raises:
            AlertStateError: The newest failure, and of how many units there are some.
        """
        since = self._clock.monotonic() - self._lasting_seconds
        self._failing = {call: one for call, one in self._failing.items() if one[0] >= since}
        if not self._failing:
            return
        (_, key), (_, text) = next(reversed(self._failing.items()))
        others = len({unit for _, unit in self._failing}) - 1
        whose = "the list of them" if key is None else f"{key.company_id} in shard {key.shard}"
        raise AlertStateError(
            f"states of alerts cannot be kept or read ({whose}"
            f"{f', and {others} more' if others else ''}): {text}"
        )

    async def units(self, shards: Collection[int]) -> list[UnitKey]:
        """Return the units of these shards."""
        with self._noting("units", None):
            return await self._store.units(shards)

    async def look(self, keys: Collection[UnitKey]) -> StoreGlance:
        """Return the epochs of units."""
        with self._noting("look", None):
            return await self._store.look(keys)

    async def claim(self, key: UnitKey) -> AlertImage:
        """Become the owner of a unit."""
        with self._noting("claim", key):
            return await self._store.claim(key)

    async def commit(self, key: UnitKey, epoch: int, change: AlertChange) -> None:
        """Keep a change."""
        with self._noting("commit", key):
            await self._store.commit(key, epoch, change)

    async def told(self, key: UnitKey, event_ids: Collection[str]) -> None:
        """Forget intents."""
        with self._noting("told", key):
            await self._store.told(key, event_ids)

    async def set_aside(self, key: UnitKey, epoch: int) -> None:
        """Keep a copy of a unit."""
        with self._noting("set_aside", key):
            await self._store.set_aside(key, epoch)

    async def remove(self, key: UnitKey, epoch: int) -> None:
        """Forget a unit."""
        with self._noting("remove", key):
            await self._store.remove(key, epoch)

    @contextmanager
    def _noting(self, call: str, key: UnitKey | None) -> Iterator[None]:
        try:
            yield
        except FencedAlertStateError:
            # It answered: the unit is another process' to keep.
            self._failing.pop((call, key), None)
            raise
        except AlertStateError as error:
            self._failing.pop((call, key), None)
            self._failing[call, key] = (self._clock.monotonic(), str(error))
            if len(self._failing) > _FAILING_MAX:
                del self._failing[next(iter(self._failing))]
            raise
        self._failing.pop((call, key), None)
