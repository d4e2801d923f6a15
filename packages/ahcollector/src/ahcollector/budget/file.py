"""The known series of agents in files, so that one machine restarts without taking them for new.

Each agent has a file of its own, ``<agent_id>.series``, so that a change costs what the agent has
and not what the fleet has, and nothing of it is in memory. It holds sealed lines (see
`ahcollector._sealed`). The first is ``{"kind": "head", "format": "ah-series", "version": 1,
"agent_id": …, "start": …, "first": …, "begun": …, "lines": …}``: the newest window (its start in
Unix seconds), and the number of lines behind it. Then there is one line for each hour, ``{"kind":
"hour", "hour": …, "series": …}``: the Unix hour, and the fingerprints of the series that were last
sent in it, 16 bytes each, one behind the other, in base64. Fingerprints tell nothing of names and
labels. The mode is 0600.

A file is replaced as a whole, so it holds the old or the new state, never half of one. What cannot
be read of it is kept aside in ``<agent_id>.series.damaged``, counted and logged, and the rest is
used; a file without a head, with another version's, or with fewer lines than it tells is damaged
too. Its agent then begins an hour anew, in its favour. Files that nobody changed for a day and an
hour are removed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import logging
import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from ahcollector._sealed import read_sealed, replace_file, seal, set_aside
from ahcollector.budget.base import (
    HOUR_SECONDS,
    TTL_HOURS,
    AgentSeries,
    SeriesChange,
    Window,
    hour_of,
    taken,
)
from ahcollector.errors import BudgetStoreError
from ahcollector.metrics import INGEST_BUDGET_FAILURES, Metrics, NullMetrics

__all__ = ["FileBudgetStore"]

_log = logging.getLogger("ahcollector.budget")

_FORMAT: Final = "ah-series"
_VERSION: Final = 1
_SUFFIX: Final = ".series"
_FINGERPRINT_BYTES: Final = 16
_AGENT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


def encode(agent_id: str, known: AgentSeries) -> list[bytes]:
    """Return the lines of an agent's file."""
    by_hour: defaultdict[int, list[bytes]] = defaultdict(list)
    for series, hour in known.hours.items():
        by_hour[hour].append(series)
    head = {
        "kind": "head",
        "format": _FORMAT,
        "version": _VERSION,
        "agent_id": agent_id,
        "start": known.window.start,
        "first": known.window.first,
        "begun": known.window.begun,
        "lines": len(by_hour),
    }
    hours = [
        {"kind": "hour", "hour": hour, "series": base64.b64encode(b"".join(series)).decode()}
        for hour, series in sorted(by_hour.items())
    ]
    return [seal(line) for line in (head, *hours)]


def decode(data: bytes, agent_id: str, *, now: float) -> tuple[AgentSeries, tuple[bytes, ...]]:
    """Return what an agent's file holds, and the damaged pieces."""
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    window: Window | None = None
    told: int | None = None
    hours: dict[bytes, int] = {}
    read = 0
    for line in lines.records:
        try:
            if line["kind"] == "head":
                window, told = _window(line, agent_id), int(line["lines"])
            else:
                hours.update(_hour(line))
                read += 1
        except (KeyError, TypeError, ValueError):
            damaged.append(seal(line).rstrip(b"\n"))
    if not damaged and told != read:
        # Every line is whole, and some are missing: it was emptied, or cut between two lines.
        damaged.append(b"")
    if window is None:
        window = Window(start=now, first=True, begun=0)
    return AgentSeries(window=window, hours=hours), tuple(damaged)


def _window(line: Mapping[str, Any], agent_id: str) -> Window:
    if (line["format"], line["version"], line["agent_id"]) != (_FORMAT, _VERSION, agent_id):
        raise ValueError("the head is of another format, version or agent")
    return Window(start=float(line["start"]), first=bool(line["first"]), begun=int(line["begun"]))


def _hour(line: Mapping[str, Any]) -> dict[bytes, int]:
    hour = int(line["hour"])
    try:
        series = base64.b64decode(line["series"], validate=True)
    except binascii.Error as error:
        raise ValueError("the fingerprints are no base64") from error
    if len(series) % _FINGERPRINT_BYTES:
        raise ValueError("the last fingerprint is cut")
    return {
        series[at : at + _FINGERPRINT_BYTES]: hour
        for at in range(0, len(series), _FINGERPRINT_BYTES)
    }


class FileBudgetStore:
    """`BudgetStore` in a directory, for one process; see the module for the format.

    Durability: what `take` returned from is on the disk. Every call works in a thread.

    Args:
        directory: Made, mode 0700, when it is missing.
        metrics: Where damaged files are counted.
    """

    shared = False

    def __init__(self, *, directory: Path, metrics: Metrics | None = None) -> None:
        self._directory = directory
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._swept_hour: int | None = None

    async def load(self, agent_id: str, *, now: float) -> AgentSeries | None:
        """Return what is known of an agent."""
        # A batch waits for this one: a disk that hangs holds the thread up, and not the batch.
        known = await anyio.to_thread.run_sync(self._load, agent_id, now, abandon_on_cancel=True)
        return None if known is None else known.at(hour_of(now) - TTL_HOURS)

    async def take(self, changes: Sequence[SeriesChange], *, now: float) -> Sequence[Window]:
        """Take changes; once an hour, remove the files of agents that are silent for a day."""
        windows = await anyio.to_thread.run_sync(self._take, changes, now)
        hour = hour_of(now)
        if hour != self._swept_hour:
            await anyio.to_thread.run_sync(self._sweep, now)
            self._swept_hour = hour
        return windows

    async def forget(self, agent_ids: Collection[str]) -> None:
        """Remove the files of agents."""
        await anyio.to_thread.run_sync(self._forget, agent_ids)

    def _path(self, agent_id: str) -> Path:
        # The registry lets no other ids in; this is so that none could ever name another file.
        safe = _AGENT_ID.fullmatch(agent_id)
        name = agent_id if safe else f"~{hashlib.sha256(agent_id.encode()).hexdigest()}"
        return self._directory / f"{name}{_SUFFIX}"

    def _replace(self, agent_id: str, known: AgentSeries, now: float) -> None:
        path = self._path(agent_id)
        replace_file(path, encode(agent_id, known))
        # By our own clock, for the sweep.
        os.utime(path, (now, now))

    def _load(self, agent_id: str, now: float) -> AgentSeries | None:
        path = self._path(agent_id)
        try:
            known, damaged = decode(path.read_bytes(), agent_id, now=now)
            if damaged:
                set_aside(path.with_name(f"{path.name}.damaged"), damaged)
                # What is whole replaces it, so that the damage is told of once.
                self._replace(agent_id, known, now)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BudgetStoreError(
                f"cannot read {path}: {error}; fix its owner and mode"
            ) from error
        if damaged:
            self._metrics.inc(INGEST_BUDGET_FAILURES, call="damaged")
            _log.error(
                "known series of an agent were damaged; what could not be read was set aside",
                extra={"agent_id": agent_id, "path": str(path), "pieces": len(damaged)},
            )
        return known

    def _take(self, changes: Sequence[SeriesChange], now: float) -> list[Window]:
        windows = []
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for change in changes:
                known = taken(
                    self._load(change.agent_id, now),
                    change,
                    oldest_hour=hour_of(now) - TTL_HOURS,
                )
                self._replace(change.agent_id, known, now)
                windows.append(known.window)
        except OSError as error:
            raise BudgetStoreError(
                f"cannot write to {self._directory}: {error}; free space, or fix its owner"
            ) from error
        return windows

    def _forget(self, agent_ids: Collection[str]) -> None:
        try:
            for agent_id in agent_ids:
                self._path(agent_id).unlink(missing_ok=True)
        except OSError as error:
            raise BudgetStoreError(f"cannot remove from {self._directory}: {error}") from error

    def _sweep(self, now: float) -> None:
        oldest = now - (TTL_HOURS + 1) * HOUR_SECONDS
        with contextlib.suppress(OSError):  # The next hour's sweep tries again.
            for path in self._directory.glob(f"*{_SUFFIX}"):
                if path.stat().st_mtime < oldest:
                    path.unlink()
