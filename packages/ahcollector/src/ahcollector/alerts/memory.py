"""The states of alerts in memory: they end with the process."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import attrs

from ahcollector.alerts.base import AlertChange, AlertImage, StoreGlance, UnitKey, taken_over
from ahwire import Event

__all__ = ["MemoryAlertStateStore"]

_log = logging.getLogger("ahcollector.alerts")


class MemoryAlertStateStore:
    """`AlertStateStore` in a dictionary, for tests and for servers that may forget their alerts.

    After a restart alerts that go on open again, and what was not in the outbox is lost; the log
    warns of that once.
    """

    def __init__(self) -> None:
        _log.warning(
            "the states of alerts are in memory: after a restart alerts that go on open again; use "
            "a FileAlertStateStore or a RedisAlertStateStore"
        )
        self._images: dict[UnitKey, _Kept] = {}
        self._epochs: dict[UnitKey, int] = {}

    async def units(self, shards: Collection[int]) -> list[UnitKey]:
        """Return the units that were claimed."""
        return sorted(key for key in self._images if key.shard in shards)

    async def look(self, keys: Collection[UnitKey]) -> StoreGlance:
        """Return the epochs of units; what is in memory is never another store."""
        known = {key: self._images[key].epoch for key in keys if key in self._images}
        return StoreGlance(birth="memory", epochs=known)

    async def claim(self, key: UnitKey) -> AlertImage:
        """Become the owner."""
        kept = self._images.setdefault(key, _Kept())
        # Also above that of a unit that was removed since.
        kept.epoch = self._epochs[key] = self._epochs.get(key, 0) + 1
        return kept.image()

    async def commit(self, key: UnitKey, epoch: int, change: AlertChange) -> None:
        """Keep a change."""
        self._owned(key, epoch).take(change)

    async def told(self, key: UnitKey, event_ids: Collection[str]) -> None:
        """Forget intents."""
        kept = self._images.get(key)
        if kept is not None:
            for event_id in event_ids:
                kept.intents.pop(event_id, None)

    async def set_aside(self, key: UnitKey, epoch: int) -> None:
        """Keep nothing more: what ends with the process is of no use aside."""
        self._owned(key, epoch)

    async def remove(self, key: UnitKey, epoch: int) -> None:
        """Forget a unit; one that has intents stays."""
        if not self._owned(key, epoch).intents:
            del self._images[key]

    def _owned(self, key: UnitKey, epoch: int) -> _Kept:
        kept = self._images.get(key)
        if kept is None or kept.epoch != epoch:
            raise taken_over(key)
        return kept


@attrs.define
class _Kept:
    """What is kept of a unit. A change costs what it moves, however much is kept."""

    epoch: int = 0
    seq: int = 0
    base: Mapping[str, str] = attrs.field(factory=dict)
    pieces: dict[str, str] = attrs.field(factory=dict)
    intents: dict[str, Event] = attrs.field(factory=dict)

    def take(self, change: AlertChange) -> None:
        """Do what `AlertChange.on` says."""
        self.seq = max(self.seq, change.seq)
        if change.base is not None:
            self.base, self.pieces = dict(change.base), {}
        for name, piece in change.pieces.items():
            if piece is None:
                self.pieces.pop(name, None)
            else:
                self.pieces[name] = piece
        self.intents.update((event.event_id, event) for event in change.intents)

    def image(self) -> AlertImage:
        """Return it as it is now."""
        return AlertImage(
            epoch=self.epoch,
            seq=self.seq,
            base=dict(self.base),
            pieces=dict(self.pieces),
            intents=tuple(sorted(self.intents.values(), key=lambda event: event.seq)),
        )
