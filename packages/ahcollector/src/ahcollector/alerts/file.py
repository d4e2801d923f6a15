"""The states of alerts in files, for one process.

Each unit has a file of its own, ``<shard>-<company>.alerts``, of sealed lines (see
`ahcollector._sealed`), mode 0600. The first is ``{"op": "head", "format": "ah-alerts", "version":
1, "shard": …, "company_id": …, "epoch": …}``; then there is a line a step: ``{"op": "commit",
"seq": …, "base": …, "pieces": …, "intents": […]}`` as `AlertChange` says, and ``{"op": "told",
"ids": […]}``. A commit with a base begins the file anew, in one step; others are appended and
synced. A line that was cut by a crash is a commit that never returned.

What cannot be read is kept aside in ``<name>.damaged``, counted and logged, and the rest is used,
also where it is the head that is lost. A directory in the place of a file is renamed to
``<name>.directory``.
``alerts.lock`` is held with flock by the process that uses the directory.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio.to_thread
import attrs

from ahcollector._sealed import read_sealed, replace_file, seal, set_aside
from ahcollector._sealedlog import SealedLog
from ahcollector.alerts.base import AlertChange, AlertImage, StoreGlance, UnitKey, taken_over
from ahcollector.errors import AlertStateError
from ahwire import DecodeError, Event

__all__ = ["FileAlertStateStore"]

_log = logging.getLogger("ahcollector.alerts")

_FORMAT: Final = "ah-alerts"
_VERSION: Final = 1
_SUFFIX: Final = ".alerts"
_NAME: Final = re.compile(r"([0-9]{1,4})-([A-Za-z0-9][A-Za-z0-9_.:-]{0,127})\.alerts")
_T = TypeVar("_T")


def _head(key: UnitKey, epoch: int) -> bytes:
    return seal(
        {
            "op": "head",
            "format": _FORMAT,
            "version": _VERSION,
            "shard": key.shard,
            "company_id": key.company_id,
            "epoch": epoch,
        }
    )


def _commit_line(change: AlertChange) -> bytes:
    return seal(
        {
            "op": "commit",
            "seq": change.seq,
            "base": None if change.base is None else dict(change.base),
            "pieces": dict(change.pieces),
            "intents": [json.loads(event.to_json()) for event in change.intents],
        }
    )


def _lines(key: UnitKey, image: AlertImage) -> list[bytes]:
    whole = AlertChange(seq=image.seq, base=image.base, pieces=image.pieces, intents=image.intents)
    return [_head(key, image.epoch), _commit_line(whole)]


def decode(key: UnitKey, data: bytes) -> tuple[AlertImage, tuple[bytes, ...]]:
    """Return the image of a unit's file, and the damaged pieces.

    Behind the head of another format, version or unit nothing counts. Where the head is lost, the
    file's name says whose the lines are, and the events in them must not say otherwise.
    """
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    image = AlertImage(epoch=0)
    is_headed = any(record.get("op") == "head" for record in lines.records)
    is_ours = not is_headed and not any(_is_of_others(key, one) for one in lines.records)
    for record in lines.records:
        try:
            if record["op"] == "head":
                is_ours = False
                image = attrs.evolve(image, epoch=_epoch(key, record))
                is_ours = True
            elif not is_ours:
                raise ValueError("the file is another one's")
            elif record["op"] == "told":
                ids = frozenset(record["ids"])
                left = tuple(event for event in image.intents if event.event_id not in ids)
                image = attrs.evolve(image, intents=left)
            else:
                image = _change(record).on(image)
        except (KeyError, TypeError, ValueError, DecodeError):
            damaged.append(seal(record).rstrip(b"\n"))
    if not is_headed and data and not damaged:
        # Cut out whole: all that is here can be read, and something is missing all the same.
        damaged.append(b"")
    return attrs.evolve(image, damaged=len(damaged)), tuple(damaged)


def _is_of_others(key: UnitKey, record: dict[str, Any]) -> bool:
    """Whether a line holds an event of another company."""
    intents = record.get("intents")
    events = intents if isinstance(intents, list) else []
    companies = [event.get("company_id") for event in events if isinstance(event, dict)]
    return any(company_id != key.company_id for company_id in companies)


def _epoch(key: UnitKey, record: dict[str, Any]) -> int:
    found = (record["format"], record["version"], record["shard"], record["company_id"])
    if found != (_FORMAT, _VERSION, key.shard, key.company_id):
        raise ValueError("the head is of another format, version or unit")
    return int(record["epoch"])


def _change(record: dict[str, Any]) -> AlertChange:
    base, pieces = record["base"], record["pieces"]
    if not (base is None or isinstance(base, dict)) or not isinstance(pieces, dict):
        raise TypeError("base and pieces are objects")
    texts = [*(base or {}).values(), *(piece for piece in pieces.values() if piece is not None)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("the parts of a snapshot are texts")
    return AlertChange(
        seq=int(record["seq"]),
        base=base,
        pieces=pieces,
        intents=tuple(Event.from_json(json.dumps(item).encode()) for item in record["intents"]),
    )


class FileAlertStateStore:
    """`AlertStateStore` in a directory; see the module for the format. Made by `open`.

    `commit` and `claim` are synced to the disk before they return. `told` is not: a power cut that
    forgets it appends an event to the outbox again, which ignores it by its id. Every call works in
    a thread; calls about one unit come one after the other.
    """

    def __init__(self, *, directory: Path, lock_descriptor: int) -> None:
        self._directory = directory
        self._lock_descriptor: int | None = lock_descriptor
        self._epochs: dict[UnitKey, int] = {}
        self._removed: dict[UnitKey, int] = {}
        # What a file that begins anew must still hold.
        self._intents: dict[UnitKey, dict[str, Event]] = {}
        # Files behind whose end nobody knows what is: they are read and written anew.
        self._broken: set[UnitKey] = set()

    @classmethod
    async def open(cls, directory: Path) -> FileAlertStateStore:
        """Open a directory, which is made, mode 0700, when it does not exist.

        Raises:
            AlertStateError: Another process holds it, or it cannot be used.
        """
        try:
            descriptor = await anyio.to_thread.run_sync(_lock, directory)
        except BlockingIOError as error:
            raise AlertStateError(
                f"the alerts in {directory} are held by another process: stop that one, or set "
                "another directory"
            ) from error
        except OSError as error:
            raise AlertStateError(
                f"the alerts in {directory} cannot be used ({error}): repair its permissions or "
                "set another directory"
            ) from error
        return cls(directory=directory, lock_descriptor=descriptor)

    async def close(self) -> None:
        """Let go of the directory; may be repeated. Nothing works after it."""
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    async def units(self, shards: Collection[int]) -> list[UnitKey]:
        """Return the units that have a file."""
        return await self._disk(lambda: self._units(shards))

    async def look(self, keys: Collection[UnitKey]) -> StoreGlance:
        """Return the epochs of units; a directory that is held is never another one."""
        known = {key: self._epochs[key] for key in keys if key in self._epochs}
        return StoreGlance(birth=str(self._directory), epochs=known)

    async def claim(self, key: UnitKey) -> AlertImage:
        """Become the owner; what is damaged is set aside and logged."""
        return await self._disk(lambda: self._claim(key))

    async def commit(self, key: UnitKey, epoch: int, change: AlertChange) -> None:
        """Keep a change."""
        self._check(key, epoch)
        await self._disk(lambda: self._commit(key, change))

    async def told(self, key: UnitKey, event_ids: Collection[str]) -> None:
        """Forget intents."""
        if key in self._epochs:
            await self._disk(lambda: self._told(key, event_ids))

    async def set_aside(self, key: UnitKey, epoch: int) -> None:
        """Copy the file to ``<name>.damaged``."""
        self._check(key, epoch)
        path = self._path(key)
        await self._disk(lambda: set_aside(_aside(path), [path.read_bytes()]))

    async def remove(self, key: UnitKey, epoch: int) -> None:
        """Remove the file."""
        self._check(key, epoch)
        if not self._intents[key]:
            await self._disk(lambda: self._path(key).unlink(missing_ok=True))
            self._removed[key] = self._epochs.pop(key)
            del self._intents[key]

    def _check(self, key: UnitKey, epoch: int) -> None:
        if self._epochs.get(key) != epoch:
            raise taken_over(key)

    def _path(self, key: UnitKey) -> Path:
        return self._directory / f"{key.shard}-{key.company_id}{_SUFFIX}"

    async def _disk(self, work: Callable[[], _T]) -> _T:
        if self._lock_descriptor is None:
            raise AlertStateError(f"the alerts in {self._directory} were closed: open them again")
        try:
            return await anyio.to_thread.run_sync(work)
        except OSError as error:
            raise AlertStateError(
                f"the alerts in {self._directory} cannot be kept ({error}): make room or repair "
                "the disk"
            ) from error

    def _units(self, shards: Collection[int]) -> list[UnitKey]:
        found = map(_NAME.fullmatch, os.listdir(self._directory))  # noqa: PTH208 - names only
        keys = [UnitKey(shard=int(name[1]), company_id=name[2]) for name in found if name]
        return sorted(key for key in keys if key.shard in shards)

    def _claim(self, key: UnitKey) -> AlertImage:
        image = self._load(key)
        # The file may have lost what it said of the last one.
        known = max(self._epochs.get(key, 0), self._removed.get(key, 0))
        image = attrs.evolve(image, epoch=max(image.epoch, known) + 1)
        self._rewrite(key, image)
        self._epochs[key] = image.epoch
        self._intents[key] = {event.event_id: event for event in image.intents}
        return image

    def _load(self, key: UnitKey) -> AlertImage:
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return AlertImage(epoch=0)
        except IsADirectoryError:
            path.rename(path.with_name(f"{path.name}.directory"))
            _log.warning(
                "a directory in the place of the states of alerts was renamed",
                extra={"path": str(path)},
            )
            return AlertImage(epoch=0, damaged=1)
        image, damaged = decode(key, data)
        if damaged:
            set_aside(_aside(path), damaged)
            _log.warning(
                "damaged lines of the states of alerts were set aside",
                extra={"path": str(path), "lines": len(damaged)},
            )
        return image

    def _commit(self, key: UnitKey, change: AlertChange) -> None:
        if change.base is None:
            self._append(key, _commit_line(change), sync=True)
        else:
            before = AlertImage(epoch=self._epochs[key], intents=tuple(self._intents[key].values()))
            self._rewrite(key, change.on(before))
        self._intents[key].update((event.event_id, event) for event in change.intents)

    def _told(self, key: UnitKey, event_ids: Collection[str]) -> None:
        self._append(key, seal({"op": "told", "ids": list(event_ids)}), sync=False)
        for event_id in event_ids:
            self._intents[key].pop(event_id, None)

    def _append(self, key: UnitKey, line: bytes, *, sync: bool) -> None:
        if key in self._broken:
            image = self._load(key)
            self._rewrite(key, attrs.evolve(image, epoch=self._epochs[key]))
        log = SealedLog(self._path(key))
        try:
            log.append([line], sync=sync)
        except OSError:
            self._broken.add(key)
            raise
        finally:
            log.close()

    def _rewrite(self, key: UnitKey, image: AlertImage) -> None:
        replace_file(self._path(key), _lines(key, image))
        self._broken.discard(key)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")


def _lock(directory: Path) -> int:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory / "alerts.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
