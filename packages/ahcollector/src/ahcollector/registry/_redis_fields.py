"""How the registry's values lie in Redis, where every field is text.

Versions are decimal, times are ISO 8601 in UTC, what is absent is the empty string. Whatever cannot
be read is logged with its key and counts as unknown: the hub is then asked, and its answer put in
the place of the damage.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from ahcollector.presence.base import AgentRef
from ahcollector.registry.base import LONG_AGO, AgentEntry, Change, TokenEntry
from ahwire import AgentRecord, DecodeError
from ahwire.hub import AgentState

__all__ = [
    "AGENT_FIELDS",
    "LONG_AGO_TEXT",
    "TOKEN_FIELDS",
    "key_part",
    "put_arguments",
    "read_agent",
    "read_change",
    "read_token",
]

_log = logging.getLogger("ahcollector.registry")

Reply = Sequence[bytes | None]

TOKEN_FIELDS = ("agent_id", "company_id", "server_id", "state", "exp", "ver")
AGENT_FIELDS = (
    "company_id",
    "server_id",
    "state",
    "ver",
    "newest",
    "token",
    "exp",
    "prev",
    "prev_exp",
    "revoked",
)
"""The first ones of those in ``lua/library.lua``, in the same order."""

LONG_AGO_TEXT = LONG_AGO.isoformat()
"""The end of a previous token that has none; see `token_entries`."""


def key_part(identity: str) -> str:
    """Return an id that may stand before another one in a key: ids may hold colons."""
    return identity.replace("%", "%25").replace(":", "%3A")


def put_arguments(record: AgentRecord, now: float, *, renewal: bool) -> list[str]:
    """Return what the script `put` is given after the prefix."""
    return [
        record.agent_id,
        repr(now),
        record.company_id,
        record.server_id,
        record.state.value,
        str(record.version),
        record.token_hash or "",
        _written(record.expires_at),
        record.prev_token_hash or "",
        _written(record.prev_token_expires_at),
        LONG_AGO_TEXT,
        "1" if renewal else "",
    ]


def read_token(token_hash: str, reply: Reply) -> TokenEntry | None:
    """Return what the fields `TOKEN_FIELDS` of a token say; None when there are none."""
    if reply[0] is None and not any(reply):
        return None
    try:
        agent_id, company_id, server_id, state, expires_at, version = _texts(reply)
        return TokenEntry(
            agent=AgentRef(agent_id=agent_id, company_id=company_id, server_id=server_id),
            state=AgentState(state),
            expires_at=_instant(expires_at),
            version=int(version),
        )
    except ValueError as error:
        _log.error(
            "a token in Redis is damaged and counts as unknown",
            extra={"key": f"reg:tok:{token_hash[:8]}…", "error": str(error)},
        )
        return None


def read_agent(agent_id: str, reply: Reply) -> AgentEntry | None:
    """Return what the fields `AGENT_FIELDS` of an agent say; None when there are none."""
    if not any(field is not None for field in reply):
        return None
    try:
        company_id, server_id, state, version, newest, *rest = _texts(reply)
        token, expires_at, previous, previous_expires_at, revoked = rest[:5]
        return AgentEntry(
            record=AgentRecord(
                agent_id=agent_id,
                company_id=company_id,
                server_id=server_id,
                state=AgentState(state),
                token_hash=token or None,
                expires_at=_instant(expires_at),
                prev_token_hash=previous or None,
                prev_token_expires_at=_instant(previous_expires_at),
                version=int(version),
            ),
            newest_version=int(newest),
            revoked_at=float(revoked) if revoked else None,
        )
    except (ValueError, DecodeError) as error:
        _log.error(
            "an agent in Redis is damaged and counts as unknown",
            extra={"key": f"reg:agent:{agent_id}", "error": str(error)},
        )
        return None


def read_change(message: str) -> Change | None:
    """Return what a message of the channel says; None when it says something else."""
    agents, hashes = set(), set()
    for word in message.split(" "):
        if word[:1] == "a":
            agents.add(word[1:])
        elif word[:1] == "t":
            hashes.add(word[1:])
        else:
            return None
    return Change(agents=frozenset(agents), hashes=frozenset(hashes))


def _texts(reply: Reply) -> list[str]:
    return ["" if field is None else field.decode() for field in reply]


def _written(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat()


def _instant(text: str) -> datetime | None:
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return moment
