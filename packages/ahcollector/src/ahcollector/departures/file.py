"""Departures in a file of sealed lines (see `ahcollector._sealed`), for one process.

Each line is ``{"company":…,"server":…,"at_ms":…,"series_at_ms":…}``: what was noted, ``server``
being null for a whole company and ``series_at_ms`` null where the series were kept. Of several
lines about one the later instants count. The file is replaced when more than half of it is past.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from ahcollector._sealed import read_sealed, seal, set_aside
from ahcollector._sealedlog import SealedLog
from ahcollector.departures.base import (
    DEPARTURES_MAX,
    KEEP_SECONDS,
    Departure,
    Left,
    ServerKey,
)
from ahcollector.departures.memory import MemoryDepartures
from ahcollector.errors import DeparturesError
from ahcollector.metrics import Metrics

__all__ = ["FileDepartures"]

_log = logging.getLogger("ahcollector.departures")

_PAST_LINES_MAX: Final = 100


class FileDepartures:
    """`Departures` in one file, mode 0600; made by `open`. One process uses it at a time.

    They are also held in memory, so that only `note` touches the disk. Lines that are found damaged
    are appended to a file beside it, of the same name and ``.damaged``.
    """

    def __init__(self, *, path: Path, log: SealedLog, known: MemoryDepartures) -> None:
        self._path = path
        self._log = log
        self._known = known
        self._turn = anyio.Lock()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        keep_seconds: float = KEEP_SECONDS,
        departures_max: int = DEPARTURES_MAX,
        metrics: Metrics | None = None,
    ) -> FileDepartures:
        """Open the file; its directory is made, mode 0700, when it is missing.

        Args:
            path: The file.
            keep_seconds: How long a departure is remembered.
            departures_max: How many are.
            metrics: Where those are counted that make room.

        Raises:
            DeparturesError: It cannot be read or written.
            ValueError: Nothing would be remembered under these bounds.
        """
        known = MemoryDepartures(
            keep_seconds=keep_seconds, departures_max=departures_max, metrics=metrics
        )
        log = SealedLog(path)
        try:
            damaged = await anyio.to_thread.run_sync(_load, path, log, known)
        except OSError as error:
            raise _unusable(path, error) from error
        if damaged:
            _log.error(
                "damaged lines about who left were set aside: what was deleted then may come back"
                " from a bus; delete it again",
                extra={"path": str(_damaged(path)), "lines": damaged},
            )
        return cls(path=path, log=log, known=known)

    async def note(self, departure: Departure) -> None:
        """Remember a departure, synced to the disk."""
        async with self._turn:
            if not self._known.is_news(departure):
                return
            line = _line(departure.company_id, departure.server_id, departure.left)
            whole: list[bytes] | None = None
            if self._log.broken or self._log.lines > _PAST_LINES_MAX + 2 * len(self._known):
                whole = [_line(*one) for one in self._known.all()]
            try:
                await anyio.to_thread.run_sync(_append, self._log, line, whole)
            except OSError as error:
                raise _unusable(self._path, error) from error
            await self._known.note(departure)

    async def of(self, servers: Collection[ServerKey]) -> Mapping[ServerKey, Left]:
        """Return when servers left, from memory."""
        return await self._known.of(servers)

    async def version(self) -> str:
        """Return how often something was noted."""
        return await self._known.version()


def _append(log: SealedLog, line: bytes, whole: list[bytes] | None) -> None:
    if whole is not None:
        log.rewrite(whole)
    log.append([line], sync=True)


def _line(company_id: str, server_id: str | None, left: Left) -> bytes:
    return seal(
        {
            "company": company_id,
            "server": server_id,
            "at_ms": left.at_ms,
            "series_at_ms": left.series_at_ms,
        }
    )


def _load(path: Path, log: SealedLog, known: MemoryDepartures) -> int:
    """Read the file; return how many pieces of it were damaged."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = log.read()
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    over = 0
    for record in lines.records:
        try:
            company, server, left = _read(record)
        except (KeyError, TypeError, ValueError):
            damaged.append(seal(record).rstrip())
            continue
        over += known.take(company, server, left)
    log.lines = len(lines.records)
    # Once for all of the file: most of it was told by the process before, one by one.
    known.tell_over(over)
    if damaged:
        set_aside(_damaged(path), damaged)
    if damaged or (data and not data.endswith(b"\n")):
        log.rewrite([_line(*one) for one in known.all()])
    return len(damaged)


def _read(record: Mapping[str, Any]) -> tuple[str, str | None, Left]:
    company, server = record["company"], record["server"]
    at_ms, series_at_ms = record["at_ms"], record["series_at_ms"]
    if not isinstance(company, str) or not isinstance(server, str | None):
        raise TypeError("a company or server is no text")
    if not isinstance(at_ms, int) or not isinstance(series_at_ms, int | None):
        raise TypeError("an instant is no whole number")
    return company, server, Left(at_ms=at_ms, series_at_ms=series_at_ms)


def _damaged(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _unusable(path: Path, error: OSError) -> DeparturesError:
    return DeparturesError(
        f"who left, in {path}, cannot be read or written ({error}): make room, repair its "
        "permissions, or choose another path"
    )
