"""The rules in memory: loaded whole at the start, then kept up by what changed.

Laws: matching sees one immutable catalog at a time, swapped whole; a failed reload leaves the last
good one; ten changes of a rule within one interval are one read, because a reload asks only for
what has a newer revision; a full load every few minutes repairs what a gap in revisions could have
hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio
import attrs

from ahnotify._signal import Signal
from ahnotify.clock import AsyncClock, SystemClock
from ahnotify.errors import DatabaseUnavailableError
from ahnotify.rules._store import RuleStore
from ahrules import RuleSet, compile_rules

logger: Final = logging.getLogger("ahnotify.rules")


@attrs.frozen(kw_only=True)
class RuleCatalog:
    """What matching works on.

    Attributes:
        rules: The compiled rules of all tenants.
        timezones: Every tenant's time zone.
        revision: The newest change that is in it.
    """

    rules: RuleSet
    timezones: Mapping[str, str]
    revision: int


class RuleCache:
    """Holds the current `RuleCatalog`; `run` keeps it current."""

    def __init__(
        self,
        *,
        store: RuleStore,
        clock: AsyncClock | None = None,
        reload_seconds: float = 1,
        full_sync_seconds: float = 300,
    ) -> None:
        """Keep the collaborators; nothing is opened or started yet.

        Args:
            store: Where rules come from.
            clock: Time.
            reload_seconds: How long changes are gathered before they are read: the debounce.
            full_sync_seconds: How often everything is read anew.
        """
        self._store = store
        self._clock: AsyncClock = clock or SystemClock()
        self._reload_seconds = reload_seconds
        self._full_sync_seconds = full_sync_seconds
        self._catalog: RuleCatalog | None = None
        self._loaded = anyio.Event()
        self._swapped = Signal()
        self._loaded_at = 0.0

    @property
    def age_seconds(self) -> float:
        """Time since the catalog was last known to be current; infinite before the first load."""
        return self._clock.monotonic() - self._loaded_at if self._catalog else float("inf")

    async def catalog(self) -> RuleCatalog:
        """The current catalog; waits for the first load."""
        await self._loaded.wait()
        assert self._catalog is not None
        return self._catalog

    async def run(self) -> None:
        """Load, then follow changes until cancelled."""
        full_at = self._clock.monotonic()
        while True:
            full = self._clock.monotonic() >= full_at
            try:
                await self.reload(full=full)
            except DatabaseUnavailableError as error:
                logger.warning("rules_not_reloaded", extra={"cause": str(error)})
            else:
                if full:
                    full_at = self._clock.monotonic() + self._full_sync_seconds
            await self._clock.sleep(self._reload_seconds)

    async def reload(self, *, full: bool = False) -> None:
        """Read what changed (or everything) and swap the catalog.

        Raises:
            DatabaseUnavailableError: Nothing was swapped.
        """
        old = None if full else self._catalog
        changes = await self._store.changes(old.revision if old else 0)
        if old is None:
            rules = compile_rules(changes.changed)
        elif changes.changed or changes.removed:
            rules = old.rules.replace(changes.changed, changes.removed)
        else:
            rules = old.rules
        self._catalog = RuleCatalog(
            rules=rules, timezones=changes.timezones, revision=changes.revision
        )
        self._loaded_at = self._clock.monotonic()
        self._loaded.set()
        self._swapped.fire()
