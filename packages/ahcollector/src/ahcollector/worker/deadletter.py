"""Batches that the store refused for good, kept within bounds until an operator replays them.

The file holds sealed lines (see `ahcollector._sealed`):
``{"id":…,"dead_at":…,"reason":…,"samples":…,"batch":{…}}`` adds a letter and ``{"drop":[…]}`` takes
letters out. It is replaced when more than half of it is past.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
import attrs

from ahcollector._sealed import read_sealed, seal, set_aside
from ahcollector._sealedlog import SealedLog
from ahcollector.bus.base import SampleBatch
from ahcollector.errors import SnapshotError
from ahcollector.worker._batches import batch_from_json, batch_to_json

__all__ = ["DeadBatch", "DeadBatches", "FileDeadBatches", "MemoryDeadBatches"]

_COMPACT_LINES_MIN: Final = 100


@attrs.frozen(kw_only=True)
class DeadBatch:
    """One refused batch.

    Attributes:
        letter_id: Names it to `take`.
        reason: What the store said.
        dead_at: Unix seconds.
        size_bytes: What it counts for in the bound of bytes.
    """

    letter_id: str
    batch: SampleBatch
    reason: str
    dead_at: float
    size_bytes: int


class DeadBatches(Protocol):
    """Where refused batches go. Bounded by count, bytes and age; the oldest go first, counted."""

    @property
    def total(self) -> int:
        """How many were put since the process began."""
        ...

    @property
    def dropped(self) -> int:
        """How many of them the bounds pushed out."""
        ...

    async def put(self, batch: SampleBatch, reason: str, now: float) -> None:
        """Keep a batch; on return it is as durable as the implementation can make it.

        Raises:
            SnapshotError: It could not be kept.
        """
        ...

    async def letters(self) -> list[DeadBatch]:
        """Return all, oldest first."""
        ...

    async def take(self, letter_ids: Collection[str] | None) -> list[DeadBatch]:
        """Remove letters (None: all) and return them: to publish them again, or to forget them."""
        ...


class MemoryDeadBatches:
    """`DeadBatches` in memory.

    Args:
        letters_max: Bound of their number.
        bytes_max: Bound of their size as JSON.
        retention_seconds: Bound of their age.
    """

    def __init__(
        self,
        *,
        letters_max: int = 1_000,
        bytes_max: int = 64 * 1024 * 1024,
        retention_seconds: float = 30 * 86_400.0,
    ) -> None:
        self._letters_max = letters_max
        self._bytes_max = bytes_max
        self._retention_seconds = retention_seconds
        self._letters: OrderedDict[str, DeadBatch] = OrderedDict()
        self._bytes = 0
        self._last_id = 0
        self.total = 0
        self.dropped = 0

    async def put(self, batch: SampleBatch, reason: str, now: float) -> None:
        """Keep a batch."""
        letter, _ = self.make(batch, reason, now)
        self.add(letter)
        self.total += 1
        self.forget(self.overflow(now))

    async def letters(self) -> list[DeadBatch]:
        """Return all."""
        return list(self._letters.values())

    async def take(self, letter_ids: Collection[str] | None) -> list[DeadBatch]:
        """Remove letters."""
        wanted = list(self._letters) if letter_ids is None else letter_ids
        taken = [self._letters[letter_id] for letter_id in wanted if letter_id in self._letters]
        for letter in taken:
            self._remove(letter.letter_id)
        return taken

    def make(self, batch: SampleBatch, reason: str, now: float) -> tuple[DeadBatch, bytes]:
        """Return a new letter, and its line in a file."""
        self._last_id = max(self._last_id + 1, round(now * 1000))
        letter_id = str(self._last_id)
        line = seal(
            {
                "id": letter_id,
                "dead_at": now,
                "reason": reason,
                "samples": batch.samples,
                "batch": batch_to_json(batch),
            }
        )
        letter = DeadBatch(
            letter_id=letter_id, batch=batch, reason=reason, dead_at=now, size_bytes=len(line)
        )
        return letter, line

    def add(self, letter: DeadBatch) -> None:
        """Put a letter behind the others."""
        self._letters[letter.letter_id] = letter
        self._bytes += letter.size_bytes
        self._last_id = max(self._last_id, int(letter.letter_id))

    def overflow(self, now: float) -> list[str]:
        """Return the ids that the bounds push out, oldest first."""
        count, size = len(self._letters), self._bytes
        result: list[str] = []
        for letter in self._letters.values():
            if (
                count <= self._letters_max
                and size <= self._bytes_max
                and letter.dead_at >= now - self._retention_seconds
            ):
                break
            result.append(letter.letter_id)
            count -= 1
            size -= letter.size_bytes
        return result

    def forget(self, letter_ids: list[str]) -> None:
        """Drop letters that the bounds push out."""
        for letter_id in letter_ids:
            self._remove(letter_id)
        self.dropped += len(letter_ids)

    def _remove(self, letter_id: str) -> None:
        letter = self._letters.pop(letter_id, None)
        if letter is not None:
            self._bytes -= letter.size_bytes


class FileDeadBatches:
    """`DeadBatches` in one file, mode 0600; made by `open`. One process uses it at a time."""

    def __init__(self, *, path: Path, log: SealedLog, held: MemoryDeadBatches) -> None:
        self._path = path
        self._log = log
        self._held = held
        self._turn = anyio.Lock()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        letters_max: int = 1_000,
        bytes_max: int = 64 * 1024 * 1024,
        retention_seconds: float = 30 * 86_400.0,
    ) -> FileDeadBatches:
        """Open the file, which is made with its directory when it does not exist.

        Raises:
            SnapshotError: It cannot be read or written.
        """
        held = MemoryDeadBatches(
            letters_max=letters_max, bytes_max=bytes_max, retention_seconds=retention_seconds
        )
        log = SealedLog(path)
        try:
            await anyio.to_thread.run_sync(_load, path, log, held)
        except OSError as error:
            raise _unusable(path, error) from error
        return cls(path=path, log=log, held=held)

    @property
    def total(self) -> int:
        """How many were put since the process began."""
        return self._held.total

    @property
    def dropped(self) -> int:
        """How many the bounds pushed out."""
        return self._held.dropped

    async def put(self, batch: SampleBatch, reason: str, now: float) -> None:
        """Keep a batch, synced to the disk."""
        async with self._turn:
            letter, line = self._held.make(batch, reason, now)
            await self._append([line])
            self._held.add(letter)
            self._held.total += 1
            overflow = self._held.overflow(now)
            if overflow:
                await self._append([seal({"drop": overflow})])
                self._held.forget(overflow)

    async def letters(self) -> list[DeadBatch]:
        """Return all."""
        return await self._held.letters()

    async def take(self, letter_ids: Collection[str] | None) -> list[DeadBatch]:
        """Remove letters."""
        async with self._turn:
            held = await self._held.letters()
            wanted = None if letter_ids is None else set(letter_ids)
            ids = [
                letter.letter_id for letter in held if wanted is None or letter.letter_id in wanted
            ]
            if ids:
                await self._append([seal({"drop": ids})])
            return await self._held.take(ids)

    async def _append(self, lines: list[bytes]) -> None:
        letters = await self._held.letters()
        try:
            await anyio.to_thread.run_sync(_append, self._log, lines, letters)
        except OSError as error:
            raise _unusable(self._path, error) from error


def _append(log: SealedLog, lines: list[bytes], letters: list[DeadBatch]) -> None:
    if log.broken or log.lines > _COMPACT_LINES_MIN + 2 * len(letters):
        log.rewrite(map(_line, letters))
    log.append(lines, sync=True)


def _line(letter: DeadBatch) -> bytes:
    return seal(
        {
            "id": letter.letter_id,
            "dead_at": letter.dead_at,
            "reason": letter.reason,
            "samples": letter.batch.samples,
            "batch": batch_to_json(letter.batch),
        }
    )


def _load(path: Path, log: SealedLog, held: MemoryDeadBatches) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = log.read()
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    letters: dict[str, DeadBatch] = {}
    for record in lines.records:
        try:
            if "drop" in record:
                for letter_id in record["drop"]:
                    letters.pop(letter_id, None)
                continue
            letter = DeadBatch(
                letter_id=str(int(record["id"])),
                batch=batch_from_json(record["batch"]),
                reason=str(record["reason"]),
                dead_at=float(record["dead_at"]),
                size_bytes=len(seal(record)),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            damaged.append(seal(record).rstrip())
            continue
        letters[letter.letter_id] = letter
    for letter in letters.values():
        held.add(letter)
    log.lines = len(lines.records)
    if damaged:
        set_aside(path.with_name(path.name + ".damaged"), damaged)
    if damaged or (data and not data.endswith(b"\n")):
        log.rewrite(map(_line, letters.values()))


def _unusable(path: Path, error: OSError) -> SnapshotError:
    return SnapshotError(
        f"the dead letters in {path} cannot be read or written ({error}): make room, repair its "
        "permissions, or choose another path"
    )
