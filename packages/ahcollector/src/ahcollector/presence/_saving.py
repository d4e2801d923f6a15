"""When a memory presence is saved, and what is known to be on disk."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable

import anyio
import anyio.to_thread

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import PresenceError
from ahcollector.presence._journal import Journal
from ahcollector.presence._snapshot import PresenceImage, Snapshot, encode
from ahcollector.presence.base import Transition

__all__ = ["Saving"]

_log = logging.getLogger("ahcollector.presence")


class Saving:
    """Saves the image of a presence when something changed since it was saved last.

    With a journal, and so many agents that it is worth it, decisions are kept there until the next
    save in turn. Those that a journal does not tell whole (an agent was removed with them) make a
    save of everything due.

    Args:
        snapshot: Where to save; None: nowhere, and every save succeeds.
        image: Takes an image that no longer changes.
        journal: Where decisions are kept between two saves; None: each page of them is a save.
    """

    def __init__(
        self,
        *,
        snapshot: Snapshot | None,
        image: Callable[[], PresenceImage],
        journal: Journal | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._image = image
        self._journal = journal
        self._changes = 0
        self._changes_saved = 0
        # Decisions are numbered in their order: so many were made, so many of them are on disk.
        self._decisions = 0
        self._decisions_saved = 0
        # The newest that only a save can keep.
        self._decisions_whole = 0
        self._new: deque[tuple[int, Transition]] = deque()
        # Intents that were confirmed are numbered too: neither an image nor the journal has them.
        self._tellings = 0
        self._told: deque[tuple[int, str]] = deque()
        self._agents_saved = 0
        self._turn = anyio.Lock()
        self._noting = anyio.Lock()
        self._failure: str | None = None

    def changed(self) -> None:
        """Note a change that the next save in turn may carry."""
        self._changes += 1

    def decided(self, transition: Transition, *, whole: bool) -> None:
        """Note an intent, which must be on disk before anybody gets it.

        Args:
            transition: The intent.
            whole: Whether more was changed with it than it tells.
        """
        self._changes += 1
        self._decisions += 1
        if whole:
            self._decisions_whole = self._decisions
        if self._journal is not None:
            self._new.append((self._decisions, transition))

    def told(self, event_id: str) -> None:
        """Note that an intent was confirmed."""
        self._changes += 1
        if self._journal is not None:
            self._tellings += 1
            self._told.append((self._tellings, event_id))

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
        """Return when every intent is on disk. Raises PresenceError."""
        until = self._decisions
        while self._snapshot is not None and self._decisions_saved < until:
            if self._journal is not None and self._may_note(self._journal):
                await self._note(self._journal)
            else:
                await self.save()

    def _may_note(self, journal: Journal) -> bool:
        return (
            self._agents_saved >= journal.agents_min
            and self._decisions_whole <= self._decisions_saved
            and journal.is_good
        )

    async def _note(self, journal: Journal) -> None:
        async with self._noting:
            # An agent may have been removed while others were noted.
            if self._may_note(journal):
                decided = [transition for _, transition in self._new]
                told = [event_id for _, event_id in self._told]
                numbers = self._decisions, self._tellings
                try:
                    await anyio.to_thread.run_sync(journal.add, decided, told)
                except OSError as error:
                    raise self._failed(error) from error
                self._on_disk(*numbers)

    async def save(self) -> None:
        """Save now if anything changed since the last save. Raises PresenceError."""
        if self._snapshot is None:
            return
        async with self._turn:
            if self._changes == self._changes_saved:
                return
            try:
                async with self._noting:
                    # Whatever is in the journal is in the image; what comes goes to a new journal.
                    if self._journal is not None:
                        await anyio.to_thread.run_sync(self._journal.turn_over)
                    changes, numbers = self._changes, (self._decisions, self._tellings)
                    image = self._image()
                await anyio.to_thread.run_sync(_save_blocking, self._snapshot, image, self._journal)
            except OSError as error:
                raise self._failed(error) from error
            self._changes_saved = changes
            self._agents_saved = len(image.agents)
            self._on_disk(*numbers)

    def _on_disk(self, decisions: int, tellings: int) -> None:
        """Note that so many decisions are kept, and so many of them known to be told."""
        self._failure = None
        self._decisions_saved = max(self._decisions_saved, decisions)
        while self._new and self._new[0][0] <= self._decisions_saved:
            self._new.popleft()
        while self._told and self._told[0][0] <= tellings:
            self._told.popleft()

    def _failed(self, error: OSError) -> PresenceError:
        self._failure = (
            f"the presence snapshot cannot be written ({error}): make room or repair its "
            "directory; transitions wait until it can"
        )
        return PresenceError(self._failure)

    def check(self) -> None:
        """Raise PresenceError when the last save failed."""
        if self._failure is not None:
            raise PresenceError(self._failure)


def _save_blocking(snapshot: Snapshot, image: PresenceImage, journal: Journal | None) -> None:
    snapshot.save(encode(image))
    if journal is not None:
        # What stays there is older than the snapshot, and read as such.
        with contextlib.suppress(OSError):
            journal.settle()
