"""Dead batches in a file of sealed lines (see `ahcollector._sealed`).

``{"id":…,"dead_at":…,"reason":…,"samples":…,"batch":{…}}`` adds a letter and ``{"drop":[…]}`` takes
letters out. The file is replaced when more than half of it is past.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ahcollector._sealed import read_sealed, seal, set_aside
from ahcollector._sealedlog import SealedLog
from ahcollector.bus.base import SampleBatch
from ahcollector.errors import DeadBatchesError
from ahcollector.metrics import Metrics
from ahcollector.worker._dead_counts import DeadCounts
from ahcollector.worker._dead_shelf import Bounds, Kept, Shelf, kept_of
from ahcollector.worker.deadletter import DeadBatch

__all__ = ["FileDeadBatches"]

_PAST_LINES_MAX: Final = 100
_PAST_BYTES_MAX: Final = 1 << 20


class FileDeadBatches:
    """`DeadBatches` in one file, mode 0600; made by `open`. One process uses it at a time.

    The lines are also held in memory, at most `bytes_max` of them. Lines that are found damaged are
    appended to a file beside it, of the same name and ``.damaged``, which is never shortened.
    """

    def __init__(self, *, path: Path, log: SealedLog, shelf: Shelf, counts: DeadCounts) -> None:
        self._path = path
        self._log = log
        self._shelf = shelf
        self._counts = counts
        self._turn = anyio.Lock()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        letters_max: int = 1_000,
        bytes_max: int = 64 * 1024 * 1024,
        retention_seconds: float = 30 * 86_400.0,
        metrics: Metrics | None = None,
    ) -> FileDeadBatches:
        """Open the file, which is made with its directory when it does not exist.

        Args:
            path: The file.
            letters_max: Bound of their number.
            bytes_max: Bound of their lines' size, in bytes.
            retention_seconds: Bound of their age; what is older goes at the next put.
            metrics: Where to count.

        Raises:
            DeadBatchesError: It cannot be read or written.
        """
        counts = DeadCounts(metrics)
        shelf = Shelf(
            bounds=Bounds(
                letters_max=letters_max, bytes_max=bytes_max, retention_seconds=retention_seconds
            ),
            counts=counts,
        )
        log = SealedLog(path)
        try:
            damaged = await anyio.to_thread.run_sync(_load, path, log, shelf)
        except OSError as error:
            raise _unusable(path, error) from error
        counts.found_damaged(damaged, str(_damaged(path)))
        return cls(path=path, log=log, shelf=shelf, counts=counts)

    @property
    def total(self) -> int:
        """How many were put since the file was opened."""
        return self._counts.total

    @property
    def dropped(self) -> int:
        """How many the bounds pushed out since then."""
        return self._counts.dropped

    @property
    def damaged(self) -> int:
        """How many pieces of the file were damaged when it was opened."""
        return self._counts.damaged

    async def put(self, batch: SampleBatch, reason: str, now: float) -> None:
        """Keep a batch, synced to the disk."""
        async with self._turn:
            change = self._shelf.plan(batch, reason, now)
            if change is None:
                return
            # The letter first: a cut between the lines leaves one too many, not one too few.
            await self._append([change.comes.line, *_drop_lines(list(change.gone))])
            self._shelf.apply(change)

    async def letters(self, *, after: str = "", limit: int = 100) -> list[DeadBatch]:
        """Return a page."""
        return self._shelf.page(after, limit)

    async def read(self, letter_id: str) -> SampleBatch | None:
        """Return the batch of a letter."""
        return self._shelf.batch(letter_id)

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters, synced to the disk."""
        async with self._turn:
            found = self._shelf.ids(letter_ids)
            if found:
                await self._append(_drop_lines(found))
                self._shelf.remove(found)
            return len(found)

    async def count(self) -> int:
        """Return how many there are."""
        return len(self._shelf)

    async def _append(self, lines: list[bytes]) -> None:
        whole: list[bytes] | None = None
        if (
            self._log.broken
            or self._log.lines > _PAST_LINES_MAX + 2 * len(self._shelf)
            or self._log.size_bytes > _PAST_BYTES_MAX + 2 * self._shelf.size_bytes
        ):
            whole = self._shelf.lines()
        try:
            await anyio.to_thread.run_sync(_append, self._log, lines, whole)
        except OSError as error:
            raise _unusable(self._path, error) from error


def _append(log: SealedLog, lines: list[bytes], whole: list[bytes] | None) -> None:
    if whole is not None:
        log.rewrite(whole)
    log.append(lines, sync=True)


def _drop_lines(letter_ids: list[str]) -> list[bytes]:
    return [seal({"drop": letter_ids})] if letter_ids else []


def _load(path: Path, log: SealedLog, shelf: Shelf) -> int:
    """Read the file; return how many pieces of it were damaged."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = log.read()
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    letters: dict[str, Kept] = {}
    for record in lines.records:
        try:
            if "drop" in record:
                for letter_id in record["drop"]:
                    letters.pop(letter_id, None)
                continue
            kept = kept_of(record)
        except (AttributeError, KeyError, TypeError, ValueError):
            damaged.append(seal(record).rstrip())
            continue
        letters[kept.letter.letter_id] = kept
    for kept in sorted(letters.values(), key=lambda one: int(one.letter.letter_id)):
        shelf.add(kept)
    log.lines = len(lines.records)
    if damaged:
        set_aside(_damaged(path), damaged)
    if damaged or (data and not data.endswith(b"\n")):
        log.rewrite(shelf.lines())
    return len(damaged)


def _damaged(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _unusable(path: Path, error: OSError) -> DeadBatchesError:
    return DeadBatchesError(
        f"the dead batches in {path} cannot be read or written ({error}): make room, repair its "
        "permissions, or choose another path"
    )
