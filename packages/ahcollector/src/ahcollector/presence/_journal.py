"""What a memory presence decided since its snapshot, in a file that is only appended to.

A snapshot of many agents takes seconds, and a scan in which they all fall silent has many pages.
So a page is made durable here before it is handed out, and costs what it holds.

``<name>.decided`` holds sealed lines (see `ahcollector._sealed`): ``{"op": "decided"}`` with the
fields of a transition, as in the snapshot, and ``{"op": "told", "ids": […]}`` for those whose
events were durable elsewhere when the next page was written. When a snapshot begins, the file
becomes ``<name>.decided.turned``, and what is decided from then on stands in a new one. When the
snapshot is there, the turned one becomes ``<name>.decided.old`` in the place of that before: it is
what the snapshot before, ``<name>.old``, lacks. All are read at a start, the oldest first.

A transition counts when its seq is above the agent's in the snapshot: what stands in both, or was
written twice, is one. Lines that cannot be read are kept aside in ``<name>.damaged`` and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from ahcollector._sealed import read_sealed, seal, set_aside, sync_directory
from ahcollector._sealedlog import SealedLog
from ahcollector.presence._snapshot import PresenceImage, intent_from_json, intent_to_json
from ahcollector.presence._state import AgentState
from ahcollector.presence.base import Transition, TransitionKind

__all__ = ["Journal", "JournalFile", "Journalled", "with_journal"]

_LINES_MAX: Final = 200_000
_AGENTS_MIN: Final = 2_000


@attrs.frozen(kw_only=True)
class Journalled:
    """What a journal holds.

    Attributes:
        decided: Transitions, in order.
        told: Event ids of those that need not be handed out again.
        damaged: Pieces that could not be read.
    """

    decided: tuple[Transition, ...] = ()
    told: frozenset[str] = frozenset()
    damaged: tuple[bytes, ...] = ()


class Journal(Protocol):
    """Where decisions are kept between two snapshots.

    The calls block; they are made in a thread. No two are made at once but `add` and `settle`.
    """

    @property
    def agents_min(self) -> int:
        """With fewer agents a snapshot is as good as a line here, and tells more."""
        ...

    @property
    def is_good(self) -> bool:
        """Whether `add` may be tried; else only a snapshot keeps decisions."""
        ...

    def add(self, decided: Sequence[Transition], told: Iterable[str]) -> None:
        """Keep decisions behind the others, durable on return. Raises OSError."""
        ...

    def turn_over(self) -> None:
        """Note that a snapshot begins which has everything that was added. Raises OSError."""
        ...

    def settle(self) -> None:
        """Note that the snapshot that began last is there.

        What it has is of use only beside the one before it, and goes with that. Raises OSError.
        """
        ...


class JournalFile:
    """A journal in files beside the snapshot's, mode 0600.

    Args:
        path: The snapshot's. Its directory is there.
        agents_min: Snapshots of fewer agents are written for each page of decisions.

    Attributes:
        agents_min: That number.
    """

    def __init__(self, path: Path, *, agents_min: int = _AGENTS_MIN) -> None:
        self.agents_min = agents_min
        self._aside = path.with_name(f"{path.name}.damaged")
        self._path = path.with_name(f"{path.name}.decided")
        self._turned = path.with_name(f"{path.name}.decided.turned")
        self._old = path.with_name(f"{path.name}.decided.old")
        self._log = SealedLog(self._path)
        self._is_damaged = False

    @property
    def is_good(self) -> bool:
        """Whether nothing is unknown about its end, and it is not too long."""
        return not self._log.broken and self._log.lines < _LINES_MAX

    def read(self) -> Journalled:
        """Return what the files hold; what is damaged is set aside. Raises OSError."""
        records: list[dict[str, Any]] = []
        damaged: list[bytes] = []
        data = b""
        for path in (self._old, self._turned, self._path):
            data = path.read_bytes() if path.exists() else b""
            lines = read_sealed(data)
            records += lines.records
            damaged += lines.damaged
        # Behind a cut line nothing may be written: the first snapshot takes the file away.
        self._log.broken = bool(damaged) or (bool(data) and not data.endswith(b"\n"))
        found = decode(records, damaged)
        self._is_damaged = bool(found.damaged)
        if found.damaged:
            set_aside(self._aside, found.damaged)
        return found

    def add(self, decided: Sequence[Transition], told: Iterable[str]) -> None:
        """Append lines and sync them."""
        lines = [seal({"op": "decided", **intent_to_json(one)}) for one in decided]
        ids = list(told)
        if ids:
            lines.insert(0, seal({"op": "told", "ids": ids}))
        self._log.append(lines, sync=True)

    def turn_over(self) -> None:
        """Give the file its other name; where one of that name is left, both stay."""
        if self._turned.exists() or not self._path.exists():
            return
        self._path.replace(self._turned)
        # Before anything can fail: what is added from here on is none of the turned file.
        self._log.close()
        self._log = SealedLog(self._path)
        sync_directory(self._path.parent)

    def settle(self) -> None:
        """Let the turned file be the old one; what is damaged was read, and goes."""
        if self._turned.exists() and not self._is_damaged:
            self._turned.replace(self._old)
        else:
            self._turned.unlink(missing_ok=True)
            self._old.unlink(missing_ok=True)
            self._is_damaged = False


def decode(records: Iterable[dict[str, Any]], damaged: Iterable[bytes] = ()) -> Journalled:
    """Return what records say; those that say nothing are damaged."""
    decided: list[Transition] = []
    told: set[str] = set()
    pieces = list(damaged)
    for record in records:
        try:
            if record["op"] == "told":
                told.update(map(str, record["ids"]))
            elif record["op"] == "decided":
                decided.append(intent_from_json(record))
            else:
                raise ValueError(f"unknown op {record['op']!r}")
        except (KeyError, TypeError, ValueError):
            pieces.append(seal(record).rstrip(b"\n"))
    return Journalled(decided=tuple(decided), told=frozenset(told), damaged=tuple(pieces))


def with_journal(
    image: PresenceImage,
    found: Journalled,
    *,
    down_min_seconds: float,
    default_interval_seconds: float,
) -> PresenceImage:
    """Return the image as it was when the last of these decisions was kept.

    An agent that the snapshot does not know becomes known: it came after it. Its interval is the
    default one until it is heard.
    """
    agents = {state.agent.agent_id: state for state in image.agents}
    gone = {one.agent_id: one for one in image.gone}
    intents = list(image.intents)
    for transition in found.decided:
        agent_id = transition.agent.agent_id
        state = agents.get(agent_id)
        known = state.seq if state is not None else gone[agent_id].seq if agent_id in gone else 0
        if transition.seq <= known:
            continue
        if state is None:
            gone.pop(agent_id, None)
            state = agents[agent_id] = AgentState(
                agent=transition.agent,
                interval_seconds=default_interval_seconds,
                last_seen=transition.last_seen,
            )
        state.seq = transition.seq
        if transition.kind is TransitionKind.DOWN:
            state.down_since = transition.occurred_at
            if transition.last_seen is not None:
                state.last_seen = max(transition.last_seen, state.last_seen or 0.0)
        else:
            state.down_since = None
            state.heard(transition.occurred_at, down_min_seconds, 0.0)
        intents.append(transition)
    return attrs.evolve(
        image,
        agents=tuple(agents.values()),
        gone=tuple(gone.values()),
        intents=tuple(one for one in intents if one.event_id not in found.told),
        damaged=image.damaged + len(found.damaged),
    )
