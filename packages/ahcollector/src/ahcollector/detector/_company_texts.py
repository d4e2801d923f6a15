"""How what is kept of a company's agents is written: parts of a snapshot, and pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, Final

import attrs

from ahrules import GroupDownState, GroupMember, SnapshotError
from ahwire.hub import GroupDownSettings

__all__ = [
    "AgentSeqs",
    "Found",
    "dump",
    "group_of",
    "head_text",
    "member_text",
    "members_of",
    "seqs_of",
    "settings_of",
]


@attrs.frozen
class AgentSeqs:
    """What is known of an agent's events.

    Attributes:
        taken: The newest seq that presence gave one that was taken.
        told: The newest seq that one went out under.
    """

    taken: int
    told: int


@attrs.define
class Found:
    """What was read of a group, until all of it is there; and what could not be read."""

    members: dict[str, Any] = attrs.field(factory=dict)
    head: Any = None
    faults: list[str] = attrs.field(factory=list)

    def read(self, name: str, take: Callable[[], None]) -> None:
        """Take something; what is wrong with it is noted."""
        try:
            take()
        except (SnapshotError, ValueError, TypeError, AttributeError, LookupError) as error:
            self.faults.append(f"{name[:200]}: {error}")


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def dump(value: Any) -> str:
    """Return JSON."""
    return _ENCODER.encode(value)


def seqs_of(row: Any) -> AgentSeqs:
    """Return seqs from their row."""
    taken, told = row
    return AgentSeqs(int(taken), int(told))


def members_of(state: GroupDownState) -> Mapping[str, GroupMember]:
    """Return who is kept of a company, in a group or not."""
    return state.recent if state.group is None else state.group.members


def member_text(agent_id: str, member: GroupMember) -> str:
    """Return a member as a row of the snapshot of `GroupDownState`."""
    return f"[{dump(agent_id)},{member.event.to_json().decode()},{dump(member.told)}]"


def head_text(state: GroupDownState, settings: GroupDownSettings) -> str:
    """Return what is kept beside the members."""
    group = state.group
    formed = None
    if group is not None:
        formed = {
            "key": group.key,
            "formed_at": group.formed_at.astimezone(UTC).isoformat(),
            "untold": group.untold,
        }
    return dump(
        {
            "newest_key": state.newest_key,
            "group": formed,
            "settings": json.loads(settings.to_json()),
        }
    )


def settings_of(head: Any) -> GroupDownSettings:
    """Return the settings of a head."""
    return GroupDownSettings.from_json(dump(head["settings"]).encode())


def group_of(company_id: str, found: Found) -> GroupDownState:
    """Return the state that was read. Raises SnapshotError, TypeError or LookupError."""
    empty = GroupDownState(company_id=company_id)
    head: dict[str, Any] = found.head or {"newest_key": 0, "group": None}
    rows: list[Any] = list(found.members.values())
    group: dict[str, Any] | None = head["group"]
    return GroupDownState.restore(
        {
            **empty.snapshot(),
            "newest_key": head["newest_key"],
            "recent": [] if group else rows,
            "group": group | {"members": rows} if group else None,
        }
    )
