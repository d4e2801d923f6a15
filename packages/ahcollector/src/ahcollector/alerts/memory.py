"""The states of alerts in memory: they end with the process."""

from __future__ import annotations

import logging
from collections.abc import Collection

import attrs

from ahcollector.alerts.base import AlertChange, AlertImage, UnitKey, taken_over

__all__ = ["MemoryAlertStateStore"]

_log = logging.getLogger("ahcollector.alerts")


class MemoryAlertStateStore:
    """`AlertStateStore` in a dictionary, for tests and for servers that may forget their alerts.

    After a restart alerts that go on open again, and what was not in the outbox is lost; the log
    warns of that once.
    """

    def __init__(self) -> None:
        _log.warning(
            "the states of alerts are in memory: after a restart alerts that go on open again; set "
            "redis.addr or alerting.rules_dir"
        )
        self._images: dict[UnitKey, AlertImage] = {}
        self._epochs: dict[UnitKey, int] = {}

    async def units(self, shards: Collection[int]) -> list[UnitKey]:
        """Return the units that were claimed."""
        return sorted(key for key in self._images if key.shard in shards)

    async def claim(self, key: UnitKey) -> AlertImage:
        """Become the owner."""
        image = self._images.get(key, AlertImage(epoch=0))
        # Also above that of a unit that was removed since.
        epoch = self._epochs[key] = self._epochs.get(key, 0) + 1
        image = self._images[key] = attrs.evolve(image, epoch=epoch)
        return image

    async def commit(self, key: UnitKey, epoch: int, change: AlertChange) -> None:
        """Keep a change."""
        self._images[key] = change.on(self._owned(key, epoch))

    async def told(self, key: UnitKey, event_ids: Collection[str]) -> None:
        """Forget intents."""
        image = self._images.get(key)
        if image is not None:
            left = tuple(event for event in image.intents if event.event_id not in event_ids)
            self._images[key] = attrs.evolve(image, intents=left)

    async def set_aside(self, key: UnitKey, epoch: int) -> None:
        """Keep nothing more: what ends with the process is of no use aside."""
        self._owned(key, epoch)

    async def remove(self, key: UnitKey, epoch: int) -> None:
        """Forget a unit; one that has intents stays."""
        if not self._owned(key, epoch).intents:
            del self._images[key]

    def _owned(self, key: UnitKey, epoch: int) -> AlertImage:
        image = self._images.get(key)
        if image is None or image.epoch != epoch:
            raise taken_over(key)
        return image
