"""Contacts in memory: loaded whole, swapped whole, the old set kept when a reload fails."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from ahnotify.clock import AsyncClock
from ahnotify.directory import Contact, Directory, DirectorySnapshot, RecipientKey
from ahnotify.errors import DatabaseUnavailableError
from ahnotify.templates._context import RuleView

logger: Final = logging.getLogger("ahnotify.sending")


class DirectoryCache:
    """Holds the current snapshot; `run` keeps it current by ticker."""

    def __init__(self, *, directory: Directory, clock: AsyncClock, reload_seconds: float) -> None:
        self._directory = directory
        self._clock = clock
        self._reload_seconds = reload_seconds
        self._snapshot: DirectorySnapshot | None = None
        self._loaded = anyio.Event()

    async def run(self) -> None:
        """Reload until cancelled."""
        while True:
            try:
                self._snapshot = await self._directory.snapshot()
                self._loaded.set()
            except DatabaseUnavailableError as error:
                logger.warning("directory_not_reloaded", extra={"cause": str(error)})
            await self._clock.sleep(self._reload_seconds)

    async def loaded(self) -> None:
        """Wait for the first load."""
        await self._loaded.wait()

    async def find(
        self, tenant_id: str, recipient: RecipientKey, channel: str
    ) -> tuple[Contact, ...]:
        """The usable contacts; a miss reads the database once before it is one.

        Raises:
            DatabaseUnavailableError: The database was asked and did not answer.
        """
        assert self._snapshot is not None
        found = self._snapshot.find(tenant_id, recipient, channel)
        if found:
            return found
        fresh = await self._directory.tenant_snapshot(tenant_id)
        return fresh.find(tenant_id, recipient, channel)

    async def rule_view(self, tenant_id: str, rule_id: str) -> RuleView:
        """What texts say of the rule; like `find`, a miss reads the database once.

        Raises:
            DatabaseUnavailableError: The database was asked and did not answer.
        """
        assert self._snapshot is not None
        snapshot = self._snapshot
        if (tenant_id, rule_id) not in snapshot.rule_names:
            snapshot = await self._directory.tenant_snapshot(tenant_id)
        return RuleView(
            name=snapshot.rule_names.get((tenant_id, rule_id), rule_id),
            company=snapshot.tenant_names.get(tenant_id, tenant_id),
            timezone=snapshot.timezone(tenant_id, rule_id),
        )
