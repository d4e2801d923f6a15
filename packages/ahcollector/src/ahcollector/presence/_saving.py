"""When a memory presence is saved, and what is known to be on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import anyio.to_thread

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import PresenceError
from ahcollector.presence._snapshot import PresenceImage, Snapshot, encode

__all__ = ["Saving"]

_log = logging.getLogger("ahcollector.presence")


class Saving:
    """Saves the image of a presence when something changed since it was saved last.

    Args:
        snapshot: Where to save; None: nowhere, and every save succeeds.
        image: Takes an image that no longer changes.
    """

    def __init__(self, *, snapshot: Snapshot | None, image: Callable[[], PresenceImage]) -> None:
        self._snapshot = snapshot
        self._image = image
        self._changes = 0
        self._changes_saved = 0
        self._decisions = 0
        self._decisions_saved = 0
        self._turn = anyio.Lock()
        self._failure: str | None = None

    def changed(self) -> None:
        """Note a change that the next save in turn may carry."""
        self._changes += 1

    def decided(self) -> None:
        """Note an intent, which must be saved before anybody gets it."""
        self._changes += 1
        self._decisions += 1

    async def run(self, *, clock: AsyncClock, interval_seconds: float) -> None:
        """Save every few seconds, and once more when cancelled; failures are outlived."""
        trouble = Trouble(_log, "presence snapshot not saved", "presence snapshot saved again")
        try:
            while True:
                await clock.sleep(interval_seconds)
                await self._try(trouble, clock.monotonic())
        finally:
            with anyio.CancelScope(shield=True):
                await self._try(trouble, clock.monotonic())

    async def _try(self, trouble: Trouble, steady: float) -> None:
        try:
            await self.save()
        except PresenceError as error:
            trouble.goes_on(steady, {"error": str(error)})
        else:
            trouble.is_over()

    async def save_decided(self) -> None:
        """Return when every intent is saved. Raises PresenceError."""
        if self._decisions != self._decisions_saved:
            await self.save()

    async def save(self) -> None:
        """Save now if anything changed since the last save. Raises PresenceError."""
        if self._snapshot is None:
            return
        async with self._turn:
            if self._changes == self._changes_saved:
                return
            changes, decisions = self._changes, self._decisions
            try:
                await anyio.to_thread.run_sync(_save_blocking, self._snapshot, self._image())
            except OSError as error:
                self._failure = (
                    f"the presence snapshot cannot be written ({error}): make room or repair its "
                    "directory; transitions wait until it can"
                )
                raise PresenceError(self._failure) from error
            self._failure = None
            self._changes_saved, self._decisions_saved = changes, decisions

    def check(self) -> None:
        """Raise PresenceError when the last save failed."""
        if self._failure is not None:
            raise PresenceError(self._failure)


def _save_blocking(snapshot: Snapshot, image: PresenceImage) -> None:
    snapshot.save(encode(image))
