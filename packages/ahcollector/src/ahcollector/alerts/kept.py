"""The hub's last word on rules and silences, kept for a start without a hub."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import anyio.to_thread

from ahcollector._sealed import read_sealed, replace_file, seal, set_aside
from ahcollector.errors import AlertStateError

__all__ = ["FileKeptLists", "KeptLists", "MemoryKeptLists", "decode_list", "encode_list"]

_log = logging.getLogger("ahcollector.alerts")

_FORMAT: Final = "ah-hub-list"
_VERSION: Final = 1


class KeptLists(Protocol):
    """Keeps lists by name, each the newest only.

    All methods may raise `AlertStateError`, and all may be repeated.
    """

    async def load(self, name: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the items kept last; None when there are none, or none that can be read."""
        ...

    async def save(
        self, name: str, items: Sequence[Mapping[str, Any]], *, as_of: float = 0.0
    ) -> None:
        """Keep items in the place of older ones; durable on return as far as the store is.

        Args:
            name: Which list.
            items: What is in it.
            as_of: When the hub was asked for it, Unix seconds by `now`. What is newer stays.
        """
        ...

    async def as_of(self, name: str) -> float | None:
        """Return of when the list is that is kept; None: there is none; 0: nobody knows."""
        ...

    async def now(self) -> float | None:
        """Return the time that all who share these lists have, in Unix seconds; None: the own."""
        ...


def encode_list(name: str, items: Sequence[Mapping[str, Any]], as_of: float = 0.0) -> bytes:
    """Return a list as one sealed line."""
    return seal(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "list": name,
            "as_of": as_of,
            "items": list(items),
        }
    )


def decode_list(name: str, data: bytes) -> list[dict[str, Any]] | None:
    """Return the items of a sealed line; None when it is damaged, or another's."""
    found = _decode(name, data)
    return None if found is None else found[0]


def _decode(name: str, data: bytes) -> tuple[list[dict[str, Any]], float] | None:
    """Return the items of a sealed line, and of when they are."""
    records = read_sealed(data).records
    if len(records) != 1:
        return None
    record = records[0]
    if (record.get("format"), record.get("version"), record.get("list")) != (
        _FORMAT,
        _VERSION,
        name,
    ):
        return None
    items = record.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    as_of = record.get("as_of")
    return items, float(as_of) if isinstance(as_of, int | float) else 0.0


class MemoryKeptLists:
    """`KeptLists` that end with the process."""

    def __init__(self) -> None:
        self._lists: dict[str, bytes] = {}

    async def load(self, name: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the items kept last."""
        data = self._lists.get(name)
        return None if data is None else decode_list(name, data)

    async def save(
        self, name: str, items: Sequence[Mapping[str, Any]], *, as_of: float = 0.0
    ) -> None:
        """Keep items."""
        before = await self.as_of(name)
        if before is None or before <= as_of:
            self._lists[name] = encode_list(name, items, as_of)

    async def as_of(self, name: str) -> float | None:
        """Return of when the list is that is kept."""
        data = self._lists.get(name)
        found = None if data is None else _decode(name, data)
        return None if found is None else found[1]

    async def now(self) -> float | None:
        """Return None: nobody shares what is in memory."""
        return None


class FileKeptLists:
    """`KeptLists` in a directory: a file ``<name>.list`` each, replaced whole, mode 0600.

    A file that cannot be read is kept aside as ``<name>.list.damaged`` and logged.

    Args:
        directory: Made, mode 0700, when it is missing.
    """

    def __init__(self, *, directory: Path) -> None:
        self._directory = directory
        self._times: dict[str, float] = {}

    async def load(self, name: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the items kept last."""
        return await anyio.to_thread.run_sync(self._load, name)

    async def save(
        self, name: str, items: Sequence[Mapping[str, Any]], *, as_of: float = 0.0
    ) -> None:
        """Keep items; durable on return. One process has a directory, and saves one by one."""
        before = await self.as_of(name)
        if before is not None and before > as_of:
            return
        await anyio.to_thread.run_sync(self._save, name, encode_list(name, items, as_of))
        self._times[name] = as_of

    async def as_of(self, name: str) -> float | None:
        """Return of when the list is that is kept."""
        if name not in self._times:
            await self.load(name)
        return self._times.get(name)

    async def now(self) -> float | None:
        """Return None: nobody shares a directory."""
        return None

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.list"

    def _load(self, name: str) -> Sequence[Mapping[str, Any]] | None:
        path = self._path(name)
        try:
            data = path.read_bytes()
            found = _decode(name, data)
            if found is None:
                set_aside(path.with_name(f"{path.name}.damaged"), [data])
                path.unlink()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AlertStateError(f"cannot read {path}: {error}; fix its owner and mode") from error
        if found is None:
            _log.error(
                "the hub's last %s were damaged and set aside; there are none until it is asked",
                name,
                extra={"path": str(path)},
            )
            return None
        items, self._times[name] = found
        return items

    def _save(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, [data])
        except OSError as error:
            raise AlertStateError(
                f"cannot write {path}: {error}; free space, or fix its owner"
            ) from error
