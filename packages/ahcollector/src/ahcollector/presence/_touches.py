"""Contacts, noted in Redis in groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ahcollector import metrics as names
from ahcollector._gather import Gather
from ahcollector.errors import PresenceDamagedError
from ahcollector.metrics import Metrics
from ahcollector.presence._arguments import Contact
from ahcollector.presence._redis_link import RedisLink
from ahcollector.redis import Script

__all__ = ["RedisTouches"]

# Lua passes all of them to one command, and has room for some thousands.
_ITEMS_MAX: Final = 1_000


class RedisTouches:
    """Notes contacts of many tasks in few script calls.

    When a key of one agent or company is damaged, the script that comes to it fails for all. Then
    each contact of the group is noted alone, and only those fail whose keys are damaged.

    Args:
        link: The Redis.
        script: The script that notes contacts.
        event_ids: Makes event ids.
        settings: What the script takes after the contacts.
        items_max: Contacts in one script call at most.
        metrics: Where contacts that came too late are counted.
    """

    def __init__(
        self,
        *,
        link: RedisLink,
        script: Script,
        event_ids: Callable[[], str],
        settings: Sequence[str | float],
        items_max: int,
        metrics: Metrics,
    ) -> None:
        if not 1 <= items_max <= _ITEMS_MAX:
            raise ValueError(f"touch_items_max is {items_max}; it must be 1 to {_ITEMS_MAX}")
        self._link = link
        self._script = script
        self._event_ids = event_ids
        self._settings = tuple(settings)
        self._metrics = metrics
        self._contacts: Gather[Contact] = Gather(write=self._write, items_max=items_max)

    async def put(self, contact: Contact) -> None:
        """Return when the contact is noted. Raises PresenceError."""
        await self._contacts.put(contact)

    async def _write(self, contacts: Sequence[Contact]) -> Mapping[int, PresenceDamagedError]:
        try:
            await self._note(contacts)
        except PresenceDamagedError:
            return await self._write_one_by_one(contacts)
        return {}

    async def _write_one_by_one(
        self, contacts: Sequence[Contact]
    ) -> Mapping[int, PresenceDamagedError]:
        failures: dict[int, PresenceDamagedError] = {}
        for place, contact in enumerate(contacts):
            try:
                await self._note([contact])
            except PresenceDamagedError as error:
                failures[place] = PresenceDamagedError(
                    f"agent {contact.agent.agent_id} of company {contact.agent.company_id}: {error}"
                )
        return failures

    async def _note(self, contacts: Sequence[Contact]) -> None:
        event_ids = [""] * len(contacts)
        # Ids are made only for agents that are down: hardly one contact in a thousand.
        while down := await self._run(contacts, event_ids):
            for place in down:
                event_ids[place] = self._event_ids()

    async def _run(self, contacts: Sequence[Contact], event_ids: list[str]) -> list[int]:
        """Note all contacts, or none: then return the places that need an event id."""
        fields = [
            contact.fields(event_id) for contact, event_id in zip(contacts, event_ids, strict=True)
        ]
        reply: list[int] = await self._link.run(
            self._script, json.dumps(fields, separators=(",", ":")), *self._settings
        )
        late, *places = reply
        if late:
            self._metrics.inc(names.PRESENCE_LATE_CONTACTS, late)
        return places
