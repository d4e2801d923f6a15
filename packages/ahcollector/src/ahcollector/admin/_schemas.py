"""What the admin door takes and answers, as JSON Schemas; the answers are what `_views` makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ahcollector._openapi import ERROR_SCHEMA, HEALTH_SCHEMA, READINESS_SCHEMA, Schema, reference
from ahcollector.admin._params import LETTER_ID_CHARS_MAX
from ahcollector.presence.base import PresenceState
from ahwire.hub import AgentState

__all__ = ["IDENTITY", "SCHEMAS"]

IDENTITY: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"}
_HASH: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_NUMBER: Final[Schema] = {"type": "number"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def _count(doc: str) -> Schema:
    """Return the schema of a number of things."""
    return {**_COUNT, "description": doc}


def _said(schema: Schema, doc: str) -> Schema:
    return {**schema, "description": doc}


def _or_null(schema: Schema, doc: str = "") -> Schema:
    either = {"anyOf": [dict(schema), {"type": "null"}]}
    return _said(either, doc) if doc else either


def _record(properties: Mapping[str, Schema], doc: str) -> Schema:
    """Return an object of which every property is always there, and no other."""
    return {
        "type": "object",
        "description": doc,
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": dict(items)}


def _listed(name: str, items: Schema, doc: str) -> Schema:
    """Return the schema of a page of a list."""
    after = _or_null(
        {"type": "string"}, "What `after` says to get the next page; null: this is the last."
    )
    return _record({name: _array(items), "next_after": after}, doc)


_AGENT: Final = _record(
    {
        "agent_id": IDENTITY,
        "company_id": IDENTITY,
        "server_id": IDENTITY,
        "state": {"enum": [state.value for state in AgentState]},
        "token_hash_prefix": _or_null(
            {"type": "string", "maxLength": 8}, "The first 8 characters of the token's hash."
        ),
        "expires_at": _or_null(_TIME, "End of the token's life; null: never."),
        "prev_token_expires_at": _or_null(_TIME, "Until when the token before is good."),
        "version": _count("The version of the record; 0: the hub gave none."),
        "newest_version": _count("The newest version seen; an older record is refused."),
        "revoked_at": _or_null(_TIME),
    },
    "An agent as the registry has it.",
)

_PRESENCE: Final = _record(
    {
        "agent_id": IDENTITY,
        "company_id": IDENTITY,
        "server_id": IDENTITY,
        "state": {"enum": [state.value for state in PresenceState]},
        "last_seen_at": _or_null(_TIME, "Null: it was never heard."),
        "interval_seconds": _said(_NUMBER, "How often it sends."),
        "deadline_at": _or_null(_TIME, "When it counts as silent; null while it is down."),
        "down_since": _or_null(_TIME, "Null while it is up."),
    },
    "When an agent was heard.",
)

_SERIES: Final = _record(
    {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "points": _array(
            {
                "type": "array",
                # What makes clients of documents does not take `"items": false`.
                "prefixItems": [{"type": "integer"}, {"type": "number"}],
                "minItems": 2,
                "maxItems": 2,
                "description": "Unix milliseconds, and the value.",
            }
        ),
    },
    "One series with its points.",
)

_LETTER: Final[dict[str, Schema]] = {
    "letter_id": {"type": "string"},
    "reason": _said({"type": "string"}, "Why it was not taken."),
}

_DEAD_EVENT: Final = _record(
    {
        **_LETTER,
        "enqueued_at": _or_null(_TIME),
        "dead_at": _TIME,
        "replayable": _said({"type": "boolean"}, "False: it is no event and can only be deleted."),
        "event": _or_null({"type": "object"}, "The event as the hub would get it."),
        "body": _or_null({"type": "string"}, "The beginning of what is no event."),
    },
    "An event that the hub did not take.",
)

_BATCH: Final[dict[str, Schema]] = {
    "company_id": IDENTITY,
    "server_id": IDENTITY,
    "agent_id": IDENTITY,
    "request_id": {"type": "string"},
    "received_at": _TIME,
    "samples": _COUNT,
}

_DEAD_BATCH: Final = _record(
    {**_LETTER, "dead_at": _TIME, **_BATCH, "size_bytes": _COUNT},
    "A batch that the store did not take; its samples are not shown.",
)

_DEAD_ENTRY: Final = _record(
    {
        **_LETTER,
        "dead_at": _TIME,
        "shard": _or_null({"type": "integer", "minimum": 0, "maximum": 63}),
        "replayable": _said({"type": "boolean"}, "False: it cannot be read, only deleted."),
        **{name: _or_null(schema) for name, schema in _BATCH.items()},
    },
    "An entry of the bus that no worker could take; its samples are not shown.",
)

_AGENT_RECORD: Final[dict[str, Any]] = {
    "type": "object",
    "description": "An agent as the hub knows it. Unknown fields are passed over; the whole may be"
    ' wrapped in `{"data": …}`.',
    "properties": {
        "agent_id": IDENTITY,
        "company_id": IDENTITY,
        "server_id": IDENTITY,
        "state": {"enum": [state.value for state in AgentState]},
        "token_hash": _or_null(_HASH, "SHA-256 of the token; required when the state is active."),
        "expires_at": _or_null(_TIME, "End of the token's life; null or absent: never."),
        "prev_token_hash": _or_null(_HASH, "The token before, good until its own end."),
        "prev_token_expires_at": _or_null(_TIME, "Absent: the token before has expired."),
        "version": _count("Rises with each change; 0 always applies and revives nothing."),
    },
    "required": ["agent_id", "company_id", "server_id", "state", "version"],
    "if": {"properties": {"state": {"const": "active"}}},
    "then": {"properties": {"token_hash": _HASH}, "required": ["token_hash"]},
}

_CHOSEN: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Which letters: one of the two.",
    "properties": {
        "ids": {
            "type": "array",
            "items": {"type": "string", "maxLength": LETTER_ID_CHARS_MAX},
            "description": "These; an empty list names none.",
        },
        "all": {"type": "boolean", "description": "All of them. Only `true` may be said."},
    },
    "maxProperties": 1,
    "additionalProperties": False,
}

_HOW_MANY: Final = _record({"agents": _COUNT, "down": _COUNT}, "Agents, and how many are down.")

SCHEMAS: Final[dict[str, Schema]] = {
    "Agent": _AGENT,
    "AgentPage": _listed("agents", reference("Agent"), "Agents of a server, by id."),
    "AgentRecord": _AGENT_RECORD,
    "Chosen": _CHOSEN,
    "Counts": _record(
        {
            "registry": _record(
                {"active": _COUNT, "pending": _COUNT, "revoked": _COUNT}, "Agents by state."
            ),
            "presence": reference("HowMany"),
            "companies": {"type": "object", "additionalProperties": reference("HowMany")},
        },
        "How many there are.",
    ),
    "DeadBatch": _DEAD_BATCH,
    "DeadBatchPage": _listed("letters", reference("DeadBatch"), "Oldest first."),
    "DeadEntry": _DEAD_ENTRY,
    "DeadEntryPage": _listed("letters", reference("DeadEntry"), "Oldest first."),
    "DeadEvent": _DEAD_EVENT,
    "DeadEventPage": _listed("letters", reference("DeadEvent"), "Oldest first."),
    "Deleted": _record(
        {"deleted": _COUNT, "left": _count("Those named that are still there.")},
        "What was deleted.",
    ),
    "Error": {**ERROR_SCHEMA, "additionalProperties": False},
    "Forgotten": _record(
        {"agents": _COUNT, "series": _COUNT}, "How many agents and series were forgotten."
    ),
    "Health": HEALTH_SCHEMA,
    "HowMany": _HOW_MANY,
    "Outbox": _record(
        {
            "depth": _count("Events the hub has not yet taken."),
            "oldest_age_seconds": _said(_NUMBER, "Age of the oldest of them; 0: there is none."),
            "dead": _count("Dead letters held."),
            "dead_bytes": _count("Size of their bodies."),
            "dead_dropped": _count("Dead letters that the bounds pushed out."),
            "damaged_lines": _count("Stored pieces that could not be read."),
        },
        "The state of the outbox since the process began.",
    ),
    "Presence": _PRESENCE,
    "PresencePage": _listed("agents", reference("Presence"), "Agents, by id."),
    "Readiness": READINESS_SCHEMA,
    "Reloaded": _record(
        {"in_force": _count("Rules, or silences, in force now.")}, "What was read."
    ),
    "Replayed": _record(
        {"replayed": _COUNT, "left": _count("Those named that are still dead.")}, "What went back."
    ),
    "Series": _SERIES,
    "SeriesList": _record({"series": _array(reference("Series"))}, "In order of their labels."),
}
