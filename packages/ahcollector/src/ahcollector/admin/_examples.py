"""The examples of the admin door's document and page; a test holds them to the schemas."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "AGENT",
    "AGENT_PAGE",
    "COUNTS",
    "DEAD_BATCH",
    "DEAD_ENTRY",
    "DEAD_EVENT",
    "LATEST",
    "OUTBOX",
    "PRESENCE_PAGE",
    "RECORD",
    "REVOKED",
    "SERIES",
]

_WHO: Final = {"agent_id": "web-1-agent", "company_id": "acme", "server_id": "web-1"}
_HASH: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

RECORD: Final[dict[str, Any]] = {**_WHO, "state": "active", "token_hash": _HASH, "version": 7}

AGENT: Final[dict[str, Any]] = {
    **_WHO,
    "state": "active",
    "token_hash_prefix": _HASH[:8],
    "expires_at": None,
    "prev_token_expires_at": None,
    "version": 7,
    "newest_version": 7,
    "revoked_at": None,
}

REVOKED: Final[dict[str, Any]] = {
    **AGENT,
    "state": "revoked",
    "revoked_at": "2026-09-21T14:13:20.000Z",
}

AGENT_PAGE: Final[dict[str, Any]] = {"agents": [AGENT], "next_after": None}

PRESENCE_PAGE: Final[dict[str, Any]] = {
    "agents": [
        {
            **_WHO,
            "state": "up",
            "last_seen_at": "2026-09-21T14:13:20.000Z",
            "interval_seconds": 30.0,
            "deadline_at": "2026-09-21T14:14:50.000Z",
            "down_since": None,
        }
    ],
    "next_after": None,
}

COUNTS: Final[dict[str, Any]] = {
    "registry": {"active": 2, "pending": 0, "revoked": 1},
    "presence": {"agents": 2, "down": 1},
    "companies": {"acme": {"agents": 2, "down": 1}},
}

_LABELS: Final = {
    "__name__": "ah_cpu_usage_percent",
    "company_id": "acme",
    "server_id": "web-1",
}

SERIES: Final[dict[str, Any]] = {
    "series": [{"labels": _LABELS, "points": [[1790000000000, 12.5], [1790000030000, 13.0]]}]
}

LATEST: Final[dict[str, Any]] = {"series": [{"labels": _LABELS, "points": [[1790000030000, 13.0]]}]}

OUTBOX: Final[dict[str, Any]] = {
    "depth": 1,
    "oldest_age_seconds": 2.5,
    "dead": 0,
    "dead_bytes": 0,
    "dead_dropped": 0,
    "damaged_lines": 0,
}

_EVENT_ID: Final = "0199f0a1-5c00-7000-8000-000000000001"

DEAD_EVENT: Final[dict[str, Any]] = {
    "letter_id": _EVENT_ID,
    "reason": "rejected: unknown server",
    "enqueued_at": "2026-09-21T14:13:20.000Z",
    "dead_at": "2026-09-21T14:13:21.000Z",
    "replayable": True,
    "event": {
        "event_id": _EVENT_ID,
        "type": "agent.down",
        "seq": 1790000000000,
        "occurred_at": "2026-09-21T14:13:20.000Z",
        "suppressed": False,
        **_WHO,
    },
    "body": None,
}

_BATCH: Final[dict[str, Any]] = {
    **_WHO,
    "request_id": "5f2b7c0d9e1a4b38",
    "received_at": "2026-09-21T14:13:20.000Z",
    "samples": 120,
}

DEAD_BATCH: Final[dict[str, Any]] = {
    "letter_id": "1790000001000",
    "reason": "the store answered 400: cannot parse line 3",
    "dead_at": "2026-09-21T14:13:21.000Z",
    **_BATCH,
    "size_bytes": 9120,
}

DEAD_ENTRY: Final[dict[str, Any]] = {
    "letter_id": "1790000001000-0",
    "reason": "a handler failed 5 times: ValueError: no such series",
    "dead_at": "2026-09-21T14:13:21.000Z",
    "shard": 17,
    "replayable": True,
    **_BATCH,
}
