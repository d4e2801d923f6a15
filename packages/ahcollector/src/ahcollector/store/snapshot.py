"""A file that carries a memory store over restarts.

The file holds sealed lines (see `ahcollector._sealed`). The first is
``{"format":"ah-store","version":1,"series":n}``; then there is one line for each of the n series:
``{"labels":[[name, value] …],"points":n,"timestamps":…,"values":…}``, the columns being base64 of
zlib of the n little-endian numbers: signed 64-bit milliseconds, and 64-bit IEEE doubles. The file
is replaced as a whole. Lines that cannot be read are kept aside in ``<name>.damaged``. A file
without its first line, or with fewer series than that tells (files of older programs tell no
number), is damaged too, an empty one before all.
"""

from __future__ import annotations

import base64
import logging
import sys
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from ahcollector._sealed import read_sealed, replace_file, seal, set_aside
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import SnapshotError, TemporaryStoreError
from ahcollector.store.memory import Labels, MemoryStore

__all__ = ["StoreSnapshot"]

_FORMAT: Final = "ah-store"
_VERSION: Final = 1
_log = logging.getLogger("ahcollector.store")

_Column = tuple[Labels, bytes, bytes]


class StoreSnapshot:
    """Loads a memory store from a file, and saves it there while it runs.

    What was written since the last save is lost with a crash; agents were told that it is stored,
    so this is for the demo and small deployments that accept it. What was deleted must not be back
    after one, so this is the store's `Deleter`, too, and saves before it says that it is done.

    Args:
        store: The store.
        path: The file, mode 0600; its directory is made, mode 0700.
        clock: Paces the saves.
        interval_seconds: Pause between two saves; nothing is saved when nothing changed.
    """

    def __init__(
        self, *, store: MemoryStore, path: Path, clock: AsyncClock, interval_seconds: float = 30.0
    ) -> None:
        self._store = store
        self._path = path
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._saved = store.changes
        self._saving = anyio.Lock()
        self._trouble = Trouble(_log, "the store was not saved", "the store is saved again")

    async def load(self) -> int:
        """Take the file's series into the store; return how many there were.

        Raises:
            SnapshotError: The file cannot be read, or is of another version.
        """
        try:
            series, damaged = await anyio.to_thread.run_sync(_load, self._path)
        except OSError as error:
            raise self._unusable(error) from error
        for labels, points in series:
            self._store.restore(labels, points)
        if damaged:
            _log.warning(
                "damaged lines of the store's snapshot were set aside",
                extra={"path": str(self._path), "lines": damaged},
            )
        self._saved = self._store.changes
        return len(series)

    async def run(self) -> None:
        """Save each interval until cancelled, and once more then; failures are logged."""
        try:
            while True:
                await self._clock.sleep(self._interval_seconds)
                await self._try()
        finally:
            with anyio.CancelScope(shield=True):
                await self._try()

    async def delete_server(self, company_id: str, server_id: str) -> int:
        """Delete all series of a server from the store and the file; return how many there were.

        Raises:
            TemporaryStoreError: The file could not be written, and may still have them; the call
                may be repeated.
        """
        return await self._saved_after(await self._store.delete_server(company_id, server_id))

    async def delete_company(self, company_id: str) -> int:
        """Delete all series of a company from the store and the file, as `delete_server` does."""
        return await self._saved_after(await self._store.delete_company(company_id))

    async def _saved_after(self, count: int) -> int:
        try:
            await self.save()
        except SnapshotError as error:
            raise TemporaryStoreError(
                f"series are deleted, and may be back after a crash: {error}"
            ) from error
        return count

    async def _try(self) -> None:
        try:
            await self.save()
        except SnapshotError as error:
            self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
        else:
            self._trouble.is_over()

    async def save(self) -> None:
        """Save now if anything changed. Raises SnapshotError."""
        async with self._saving:
            changes = self._store.changes
            if changes == self._saved:
                return
            # The columns are copied here, because the store goes on while a thread writes them.
            columns = [
                (labels, series.timestamps.tobytes(), series.values.tobytes())
                for labels, series in self._store.image()
            ]
            try:
                await anyio.to_thread.run_sync(_save, self._path, columns)
            except OSError as error:
                raise self._unusable(error) from error
            self._saved = changes

    def _unusable(self, error: OSError) -> SnapshotError:
        return SnapshotError(
            f"the snapshot of the store in {self._path} cannot be read or written ({error}): make "
            "room, repair its permissions, or choose another path"
        )


def _save(path: Path, columns: list[_Column]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, _lines(columns))


def _lines(columns: list[_Column]) -> Iterator[bytes]:
    yield seal({"format": _FORMAT, "version": _VERSION, "series": len(columns)})
    for labels, timestamps, values in columns:
        yield seal(
            {
                "labels": [list(pair) for pair in labels],
                "points": len(timestamps) // 8,
                "timestamps": _pack(array("q", timestamps)),
                "values": _pack(array("d", values)),
            }
        )


def _pack(column: array[Any]) -> str:
    if sys.byteorder == "big":
        column.byteswap()
    return base64.b64encode(zlib.compress(column.tobytes(), 1)).decode()


def _unpack(typecode: str, text: str, points: int) -> array[Any]:
    column = array(typecode)
    # Never more than the line says it holds, so that a damaged line cannot fill the memory.
    column.frombytes(zlib.decompressobj().decompress(base64.b64decode(text), points * 8))
    if len(column) != points:
        raise ValueError(f"the column holds {len(column)} numbers, the line says {points}")
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _load(path: Path) -> tuple[list[tuple[Labels, list[tuple[int, float]]]], int]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    headed, told = False, None
    result: list[tuple[Labels, list[tuple[int, float]]]] = []
    for record in lines.records:
        if "format" in record:
            if (record["format"], record.get("version")) != (_FORMAT, _VERSION):
                raise SnapshotError(
                    f"the snapshot {path} is {record['format']!r} version "
                    f"{record.get('version')!r}, this program reads {_FORMAT!r} version "
                    f"{_VERSION}: use the program that wrote it, or move the file away"
                )
            headed, told = True, record.get("series")
            continue
        try:
            labels = tuple((str(name), str(value)) for name, value in record["labels"])
            if [name for name, _ in labels[:3]] != ["__name__", "company_id", "server_id"]:
                raise ValueError("the labels name no tenant")
            points = int(record["points"])
            timestamps = _unpack("q", record["timestamps"], points)
            values = _unpack("d", record["values"], points)
        except (KeyError, TypeError, ValueError, zlib.error):
            damaged.append(seal(record).rstrip())
            continue
        result.append((labels, list(zip(timestamps, values, strict=True))))
    if not damaged and (not headed or told not in (None, len(result))):
        # Every line is whole, and some are missing: it was emptied, or cut between two lines.
        damaged.append(b"")
    if damaged:
        set_aside(path.with_name(path.name + ".damaged"), damaged)
    return result, len(damaged)
