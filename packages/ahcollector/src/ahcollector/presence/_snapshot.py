"""The snapshot file of a memory presence.

The file holds sealed lines (see `ahcollector._sealed`). The first has ``"kind":"head"``: format
(``ah-presence``), version (1), the beacons (``beacon_at``, ``beacon_since``, ``beacon_dark``), the
newest grace (``grace``: null or [ended_at, blind_seconds]) and ``lines``, the number of lines
behind the head (files of older programs do not tell it). Then there is one line an agent,
``"kind":"agent"``, with the fields of `AgentState` and its intents in order; and one line for each
agent that was removed a short while ago, ``"kind":"gone"``, which keeps its seq and its last
intents. Times are Unix seconds, except ``due_ms`` and ``grace_until_ms``.

The file is replaced as a whole, so it always tells of one instant; the one before is kept as
``<name>.old``. A file without a head, with fewer lines than the head tells, or with lines that
cannot be read is damaged, an empty one too: what could not be read is kept aside in
``<name>.damaged`` and counted, and the old file is used in its place. Where that one is damaged or
missing too, the lines that can be read are used.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from ahcollector._sealed import read_sealed, replace_file, seal, set_aside
from ahcollector.errors import SnapshotError
from ahcollector.presence._gone import GoneAgent
from ahcollector.presence._state import AgentState, GraceEpoch
from ahcollector.presence.base import AgentRef, IngestSight, Transition, TransitionKind

__all__ = [
    "PresenceImage",
    "Snapshot",
    "SnapshotFile",
    "decode",
    "encode",
    "intent_from_json",
    "intent_to_json",
]

_FORMAT = "ah-presence"
_VERSION = 1
_log = logging.getLogger("ahcollector.presence")


@attrs.frozen(kw_only=True)
class PresenceImage:
    """Everything a memory presence knows at one instant; `damaged` counts unreadable lines."""

    sight: IngestSight | None = None
    epoch: GraceEpoch | None = None
    agents: tuple[AgentState, ...] = ()
    gone: tuple[GoneAgent, ...] = ()
    intents: tuple[Transition, ...] = ()
    damaged: int = 0


class Snapshot(Protocol):
    """Where a snapshot is kept. The call blocks; it is made in a thread."""

    def save(self, chunks: list[bytes]) -> None:
        """Replace what is saved, whole or not at all, durable on return. Raises OSError."""
        ...


class SnapshotFile:
    """A snapshot in a file of its own, and the one before it in ``<name>.old``; mode 0600.

    The directory is made, mode 0700.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._old = path.with_name(path.name + ".old")
        # Size of the file when it was last known to be whole; only a whole one becomes the old one.
        self._whole_bytes: int | None = None

    def load(self) -> bytes | None:
        """Return the newest saved bytes, None when there are none. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _read(self._path)

    def read(self) -> PresenceImage:
        """Return the newest image that is whole, or what is left of it; damage is logged.

        Raises:
            OSError: The file cannot be read.
            SnapshotError: It is of a version that this program does not know.
        """
        data, old_data = self.load(), _read(self._old)
        if data is None and old_data is None:
            return PresenceImage()
        image, damaged = decode(data) if data is not None else (PresenceImage(damaged=1), ())
        if data is not None and not damaged:
            self._whole_bytes = len(data)
            return image
        old = PresenceImage()
        old_damaged: tuple[bytes, ...] = (b"",)
        if old_data is not None:
            old, old_damaged = decode(old_data)
        use_old = not old_damaged or len(old.agents) > len(image.agents)
        self._keep_aside(damaged if data is None or not use_old else (data,))
        self._tell(image.damaged, missing=data is None, old_is_whole=not old_damaged)
        return attrs.evolve(old if use_old else image, damaged=image.damaged)

    def _tell(self, lines: int, *, missing: bool, old_is_whole: bool) -> None:
        extra = {"path": str(self._path), "lines": lines}
        state = "missing" if missing else "damaged and was set aside"
        if old_is_whole:
            _log.warning("the presence snapshot is %s; the one before is used", state, extra=extra)
        else:
            _log.error(
                "the presence snapshot is %s, and the one before cannot be used either: silences "
                "that were already told may be told again",
                state,
                extra=extra,
            )

    def _keep_aside(self, pieces: tuple[bytes, ...]) -> None:
        if pieces:
            set_aside(self._path.with_name(self._path.name + ".damaged"), pieces)

    def save(self, chunks: list[bytes]) -> None:
        """Replace the file; the one before becomes the old one, if it is whole."""
        self._keep_old()
        self._whole_bytes = None
        replace_file(self._path, chunks)
        self._whole_bytes = sum(map(len, chunks))

    def _keep_old(self) -> None:
        """Give the file its second name; it has the first one until the next is in its place."""
        try:
            if self._path.stat().st_size != self._whole_bytes:
                return
        except FileNotFoundError:
            return
        link = self._path.with_name(f".{self._path.name}.link")
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        os.link(self._path, link)
        link.replace(self._old)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def encode(image: PresenceImage) -> list[bytes]:
    """Return the lines of an image."""
    return list(_lines(image))


def _lines(image: PresenceImage) -> Iterator[bytes]:
    sight, epoch = image.sight, image.epoch
    yield seal(
        {
            "kind": "head",
            "format": _FORMAT,
            "version": _VERSION,
            "beacon_at": sight and sight.at,
            "beacon_since": sight and sight.since,
            "beacon_dark": sight and sight.dark_seconds,
            "grace": epoch and [epoch.ended_at, epoch.blind_seconds],
            "lines": len(image.agents) + len(image.gone),
        }
    )
    intents: dict[str, list[dict[str, Any]]] = {}
    for transition in image.intents:
        intents.setdefault(transition.agent.agent_id, []).append(intent_to_json(transition))
    for state in image.agents:
        yield seal(
            {
                "kind": "agent",
                "agent_id": state.agent.agent_id,
                "company_id": state.agent.company_id,
                "server_id": state.agent.server_id,
                "interval_seconds": state.interval_seconds,
                "interval_told": state.interval_told,
                "down_min_seconds": state.down_min_seconds,
                "last_seen": state.last_seen,
                "due_ms": state.due_ms,
                "grace_until_ms": state.grace_until_ms,
                "down_since": state.down_since,
                "seq": state.seq,
                "intents": intents.get(state.agent.agent_id, []),
            }
        )
    for gone in image.gone:
        yield seal(
            {
                "kind": "gone",
                "agent_id": gone.agent_id,
                "seq": gone.seq,
                "removed_at": gone.removed_at,
                "intents": intents.get(gone.agent_id, []),
            }
        )


def intent_to_json(transition: Transition) -> dict[str, Any]:
    """Return an intent as JSON values."""
    record = attrs.asdict(transition, recurse=False)
    record["agent"] = [
        transition.agent.agent_id,
        transition.agent.company_id,
        transition.agent.server_id,
    ]
    record["kind"] = transition.kind.value
    return record


def decode(data: bytes) -> tuple[PresenceImage, tuple[bytes, ...]]:
    """Return the image of a file's bytes, and the damaged pieces.

    Raises:
        SnapshotError: The file is of a version that this program does not know.
    """
    lines = read_sealed(data)
    damaged = list(lines.damaged)
    image = PresenceImage()
    headed, told = False, None
    agents: list[AgentState] = []
    gone: list[GoneAgent] = []
    intents: list[Transition] = []
    for record in lines.records:
        try:
            kind = record["kind"]
            if kind == "head":
                image = _head(record)
                headed, told = True, record.get("lines")
                continue
            if kind == "agent":
                agents.append(_agent(record))
            else:
                gone.append(
                    GoneAgent(
                        agent_id=record["agent_id"],
                        seq=int(record["seq"]),
                        removed_at=float(record["removed_at"]),
                    )
                )
            intents.extend(intent_from_json(item) for item in record["intents"])
        except (KeyError, TypeError, ValueError):
            damaged.append(seal(record).rstrip(b"\n"))
    if not damaged and (not headed or told not in (None, len(agents) + len(gone))):
        # Every line is whole, and some are missing: it was emptied, or cut between two lines.
        damaged.append(b"")
    image = attrs.evolve(
        image,
        agents=tuple(agents),
        gone=tuple(gone),
        intents=tuple(intents),
        damaged=len(damaged),
    )
    return image, tuple(damaged)


def _head(record: Mapping[str, Any]) -> PresenceImage:
    if record["format"] != _FORMAT or record["version"] != _VERSION:
        raise SnapshotError(
            f"the presence snapshot is {record['format']!r} version {record['version']!r}, this "
            f"program reads {_FORMAT!r} version {_VERSION}: use the program that wrote it, or move "
            "the file and its .old away to begin anew"
        )
    at, since, dark = record["beacon_at"], record["beacon_since"], record["beacon_dark"]
    grace = record["grace"]
    return PresenceImage(
        sight=None
        if at is None
        else IngestSight(
            at=float(at), since=float(since), dark_seconds=None if dark is None else float(dark)
        ),
        epoch=None
        if grace is None
        else GraceEpoch(ended_at=float(grace[0]), blind_seconds=float(grace[1])),
    )


def _maybe(value: float | None) -> float | None:
    return None if value is None else float(value)


def _agent(record: Mapping[str, Any]) -> AgentState:
    return AgentState(
        agent=AgentRef(
            agent_id=record["agent_id"],
            company_id=record["company_id"],
            server_id=record["server_id"],
        ),
        interval_seconds=float(record["interval_seconds"]),
        interval_told=bool(record["interval_told"]),
        # An earlier version wrote none.
        down_min_seconds=_maybe(record.get("down_min_seconds")),
        last_seen=_maybe(record["last_seen"]),
        due_ms=int(record["due_ms"]),
        grace_until_ms=int(record["grace_until_ms"]),
        down_since=_maybe(record["down_since"]),
        seq=int(record["seq"]),
    )


def intent_from_json(record: Mapping[str, Any]) -> Transition:
    """Return the intent; KeyError, TypeError or ValueError when it is none."""
    agent_id, company_id, server_id = record["agent"]
    return Transition(
        agent=AgentRef(agent_id=agent_id, company_id=company_id, server_id=server_id),
        event_id=record["event_id"],
        seq=int(record["seq"]),
        kind=TransitionKind(record["kind"]),
        occurred_at=float(record["occurred_at"]),
        last_seen=_maybe(record["last_seen"]),
        down_since=_maybe(record["down_since"]),
        reason=record["reason"],
    )
