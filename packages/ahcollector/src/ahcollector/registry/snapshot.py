"""The memory registry on disk, so that one machine restarts without asking about everyone.

The file holds sealed lines (see `ahcollector._sealed`). The first is
``{"kind": "head", "format": "ah-registry", "version": 1, "cursor": …, "lines": …,
"full_sync_at": …}``, where ``lines`` is the number of lines behind it and ``full_sync_at`` when all
agents of the hub were last read, Unix seconds or null (files of older programs tell neither). Then
there is one line an agent, ``{"kind": "agent", "record": …, "newest_version": …, "revoked_at":
…}``: the AgentRecord, the newest version ever seen, and when it was revoked (Unix seconds or null);
and one line for each hash of a revoked agent that its record does not name, ``{"kind": "tombstone",
"hash": …, "agent_id": …}``. The file holds token hashes, no tokens; its mode is 0600.

It is replaced as a whole, so a reader finds the old or the new state, never half of one. Lines that
cannot be read are left out, kept aside in ``<name>.damaged`` and counted; the cursor then counts as
lost too, so that the next sync reads everything again and fills the gap. A file without a head, or
with fewer lines than it tells, is damaged too: an empty one is never taken for an empty registry.

Durability: `SnapshotKeeper.run` writes at most `delay_seconds` after a change and once more when it
is cancelled. A process that is killed loses what changed in between; with a hub, the cursor in the
file is as old as the rest of it, so the next sync brings it back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import attrs

from ahcollector._sealed import read_sealed, replace_file, seal, set_aside
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import SnapshotError
from ahcollector.registry.base import AgentEntry
from ahcollector.registry.memory import MemoryRegistry, RegistryImage
from ahwire import AgentRecord

__all__ = ["SnapshotKeeper"]

_log = logging.getLogger("ahcollector.registry")

_FORMAT = "ah-registry"
_VERSION = 1


def encode(image: RegistryImage) -> list[bytes]:
    """Return the file's lines."""
    head = {
        "kind": "head",
        "format": _FORMAT,
        "version": _VERSION,
        "cursor": image.cursor,
        "lines": len(image.agents) + len(image.tombstones),
        "full_sync_at": image.full_sync_at,
    }
    agents = [
        {
            "kind": "agent",
            "record": json.loads(entry.record.to_json()),
            "newest_version": entry.newest_version,
            "revoked_at": entry.revoked_at,
        }
        for entry in image.agents
    ]
    tombstones = [
        {"kind": "tombstone", "hash": token_hash, "agent_id": agent_id}
        for token_hash, agent_id in image.tombstones
    ]
    return [seal(line) for line in (head, *agents, *tombstones)]


def decode(data: bytes) -> tuple[RegistryImage, tuple[bytes, ...]]:
    """Return the image of a file's bytes, and the damaged pieces.

    Raises:
        SnapshotError: The file is of a version that this program does not know.
    """
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    cursor: str | None = None
    told: int | None = None
    full_sync_at: float | None = None
    agents: list[AgentEntry] = []
    tombstones: list[tuple[str, str]] = []
    for line in lines.records:
        try:
            if line["kind"] == "head":
                cursor, told = _cursor(line), line.get("lines")
                full_sync_at = _instant(line.get("full_sync_at"))
            elif line["kind"] == "agent":
                agents.append(_agent(line))
            else:
                tombstones.append((str(line["hash"]), str(line["agent_id"])))
        except (KeyError, TypeError, ValueError):
            damaged.append(seal(line).rstrip(b"\n"))
    missing = told not in (None, len(agents) + len(tombstones))
    if not damaged and (cursor is None or missing):
        # Every line is whole, and some are missing: it was emptied, or cut between two lines.
        damaged.append(b"")
    image = RegistryImage(
        agents=tuple(agents),
        tombstones=tuple(tombstones),
        cursor="" if damaged or cursor is None else cursor,
        full_sync_at=full_sync_at,
    )
    return image, tuple(damaged)


def _cursor(line: Mapping[str, Any]) -> str:
    if line["format"] != _FORMAT or line["version"] != _VERSION:
        raise SnapshotError(
            f"the registry snapshot is {line['format']!r} version {line['version']!r}, this "
            f"program reads {_FORMAT!r} version {_VERSION}: use the program that wrote it, or move "
            "the file away to begin anew"
        )
    return str(line["cursor"])


def _agent(line: Mapping[str, Any]) -> AgentEntry:
    return AgentEntry(
        record=AgentRecord.from_json(json.dumps(line["record"]).encode()),
        newest_version=int(line["newest_version"]),
        revoked_at=_instant(line["revoked_at"]),
    )


def _instant(value: Any) -> float | None:
    return None if value is None else float(value)


@attrs.frozen(kw_only=True)
class Loaded:
    """What a file gave.

    Attributes:
        agents: Agents now in the registry.
        damaged: Pieces that could not be read and were set aside.
    """

    agents: int
    damaged: int


class SnapshotKeeper:
    """Keeps a memory registry in a file; see the module for the format and what may be lost.

    Args:
        registry: What is kept.
        path: The file; its directory is made, mode 0700, when it is missing.
        clock: Time.
        delay_seconds: How long after a change the file is written.
    """

    def __init__(
        self,
        *,
        registry: MemoryRegistry,
        path: Path,
        clock: AsyncClock,
        delay_seconds: float = 1.0,
    ) -> None:
        self._registry = registry
        self._path = path
        self._clock = clock
        self._delay_seconds = delay_seconds
        self._saved = registry.changes
        self._trouble = Trouble(
            _log,
            "registry snapshot not written",
            "registry snapshot written again",
            level=logging.ERROR,
        )

    async def load(self) -> Loaded:
        """Fill the registry from the file, before anything else uses it. No file: it stays empty.

        Raises:
            SnapshotError: The file, or the place beside it, cannot be reached, or it is of another
                version.
        """
        image, damaged = await anyio.to_thread.run_sync(self._read)
        if image is not None:
            self._registry.restore(image)
        self._saved = self._registry.changes
        if damaged:
            _log.error(
                "registry snapshot was damaged; what could not be read was set aside",
                extra={"path": str(self._path), "pieces": damaged},
            )
        return Loaded(agents=0 if image is None else len(image.agents), damaged=damaged)

    async def save(self) -> None:
        """Write what the registry holds now; durable on return.

        Raises:
            SnapshotError: It could not be written; the old file is whole.
        """
        changes = self._registry.changes
        image = self._registry.image()
        await anyio.to_thread.run_sync(self._write, image)
        self._saved = changes

    async def run(self) -> None:
        """Write the file soon after each change, and once more when cancelled."""
        try:
            while True:
                await self._clock.sleep(self._delay_seconds)
                await self._save_changes()
        finally:
            with anyio.CancelScope(shield=True):
                await self._save_changes()

    async def _save_changes(self) -> None:
        if self._registry.changes == self._saved:
            return
        try:
            await self.save()
        except SnapshotError as error:
            self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
        else:
            self._trouble.is_over()

    def _read(self) -> tuple[RegistryImage | None, int]:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            image, damaged = decode(self._path.read_bytes())
            if damaged:
                set_aside(self._path.with_name(f"{self._path.name}.damaged"), damaged)
        except FileNotFoundError:
            return None, 0
        except OSError as error:
            raise SnapshotError(
                f"cannot read {self._path}: {error}; fix its owner and mode"
            ) from error
        return image, len(damaged)

    def _write(self, image: RegistryImage) -> None:
        try:
            replace_file(self._path, encode(image))
        except OSError as error:
            raise SnapshotError(
                f"cannot write {self._path}: {error}; free space, or fix the directory's owner"
            ) from error
