"""The memory registry on disk, so that one machine restarts without asking about everyone.

The file is UTF-8 text, one JSON object a line. The first line is the header
``{"format": "ahcollector-registry", "version": 1, "cursor": …, "lines": n}``; then come exactly n
lines, each either ``{"record": AgentRecord, "newest_version": int, "revoked_at": number|null}`` or
``{"tombstone": hash, "agent_id": …}`` for a hash of a revoked agent that its record does not name.
It holds token hashes, no tokens; mode 0600.

It is written whole to ``<name>.tmp``, synced, and renamed over the old one, so a reader finds the
old or the new state, never half of one. A file that cannot be understood is set aside under
``<name>.damaged-<n>`` and reported; the registry then begins empty and fills from the hub.

Durability: `SnapshotKeeper.run` writes at most `delay_seconds` after a change and once more when it
is cancelled. A process that is killed loses what changed in between; with a hub, the cursor in the
file is as old as the rest of it, so the next sync brings it back.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import anyio

from ahcollector.clock import AsyncClock
from ahcollector.errors import SnapshotError
from ahcollector.registry.base import AgentEntry
from ahcollector.registry.memory import MemoryRegistry, RegistryImage
from ahwire import AgentRecord, DecodeError

__all__ = ["SnapshotKeeper"]

_log = logging.getLogger("ahcollector.registry")

_FORMAT = "ahcollector-registry"
_VERSION = 1


def encode(image: RegistryImage) -> bytes:
    """Return the file's bytes."""
    lines: list[dict[str, Any]] = [
        {
            "record": json.loads(entry.record.to_json()),
            "newest_version": entry.newest_version,
            "revoked_at": entry.revoked_at,
        }
        for entry in image.agents
    ]
    lines += [
        {"tombstone": token_hash, "agent_id": agent_id} for token_hash, agent_id in image.tombstones
    ]
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "cursor": image.cursor,
        "lines": len(lines),
    }
    return "".join(
        json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in [header, *lines]
    ).encode()


def decode(data: bytes) -> RegistryImage:
    """Return what the bytes say.

    Raises:
        ValueError: They are no snapshot of this version, or are cut.
    """
    try:
        header, *lines = [json.loads(line) for line in data.decode().splitlines()]
        if (header["format"], header["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"is of format {header['format']!r} version {header['version']!r}")
        if len(lines) != header["lines"]:
            raise ValueError(f"has {len(lines)} lines instead of {header['lines']}")
        agents = tuple(
            AgentEntry(
                record=AgentRecord.from_json(json.dumps(line["record"]).encode()),
                newest_version=int(line["newest_version"]),
                revoked_at=None if line["revoked_at"] is None else float(line["revoked_at"]),
            )
            for line in lines
            if "record" in line
        )
        tombstones = tuple(
            (str(line["tombstone"]), str(line["agent_id"])) for line in lines if "tombstone" in line
        )
        return RegistryImage(agents=agents, tombstones=tombstones, cursor=str(header["cursor"]))
    except (KeyError, TypeError, AttributeError, RecursionError, DecodeError) as error:
        raise ValueError(f"cannot be read: {type(error).__name__} {error}") from error


class SnapshotKeeper:
    """Keeps a memory registry in a file; see the module for the format and what may be lost.

    Args:
        registry: What is kept.
        path: The file; its directory must exist.
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

    async def load(self) -> int:
        """Fill the registry from the file and return how many agents it holds.

        No file is an empty registry. A damaged one is set aside and reported, never deleted.

        Raises:
            SnapshotError: The file, or the place beside it, cannot be reached.
        """
        image = await anyio.to_thread.run_sync(self._read)
        if image is not None:
            self._registry.restore(image)
        self._saved = self._registry.changes
        return 0 if image is None else len(image.agents)

    async def save(self) -> None:
        """Write what the registry holds now.

        Raises:
            SnapshotError: It could not be written; the old file is whole.
        """
        changes = self._registry.changes
        data = encode(self._registry.image())
        await anyio.to_thread.run_sync(self._write, data)
        self._saved = changes

    async def run(self) -> None:
        """Write the file soon after each change, and once more when cancelled."""
        try:
            while True:
                await self._clock.sleep(self._delay_seconds)
                if self._registry.changes != self._saved:
                    await self._try_save()
        finally:
            with anyio.CancelScope(shield=True):
                if self._registry.changes != self._saved:
                    await self._try_save()

    async def _try_save(self) -> None:
        try:
            await self.save()
        except SnapshotError as error:
            _log.error("registry snapshot could not be written", extra={"error": str(error)})

    def _read(self) -> RegistryImage | None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SnapshotError(f"cannot read {self._path}: {error}; check its owner") from error
        try:
            return decode(data)
        except ValueError as error:
            aside = self._set_aside()
            _log.error(
                "registry snapshot is damaged and was set aside; the registry begins empty",
                extra={"path": str(self._path), "aside": str(aside), "error": str(error)},
            )
            return None

    def _set_aside(self) -> Path:
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.damaged-{number}")).exists():
            number += 1
        try:
            self._path.rename(aside)
        except OSError as error:
            raise SnapshotError(f"cannot set {self._path} aside: {error}") from error
        return aside

    def _write(self, data: bytes) -> None:
        temporary = self._path.with_name(f"{self._path.name}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:  # noqa: PTH123 - the mode is set by os.open
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise SnapshotError(
                f"cannot write {self._path}: {error}; free space or fix the directory's owner"
            ) from error
