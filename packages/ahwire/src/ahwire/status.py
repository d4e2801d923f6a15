"""The status table of agent and collector: what each answer means to the agent, as data.

A proxy or a firewall between the two must not be able to make an agent drop data or stop. So the
rows that cost something (400, 403, 415, 422) hold only for an answer that carries the row's code,
which only a collector sends; without it the answer is an odd one, and the batch is kept.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, unique
from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from ahwire.agent_pb2 import MetricsAck

__all__ = [
    "HTTP_STATUS",
    "Action",
    "Code",
    "classify",
]


@unique
class Code(StrEnum):
    """The code of an error reply: `X-AH-Code`, and `ErrorBody.code`."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    LICENSE_INVALID = "license_invalid"
    AGENT_REVOKED = "agent_revoked"
    NOT_FOUND = "not_found"
    TIMEOUT = "timeout"
    ALREADY_ENROLLED = "already_enrolled"
    TOKEN_USED = "token_used"  # noqa: S105  # the name of a code, no secret
    TOO_LARGE = "too_large"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    INVALID_SERIES = "invalid_series"
    BINDING_FAILED = "binding_failed"
    UPGRADE_REQUIRED = "upgrade_required"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    UNAVAILABLE = "unavailable"


HTTP_STATUS: Mapping[Code, int] = MappingProxyType(
    {
        Code.BAD_REQUEST: 400,
        Code.UNAUTHORIZED: 401,
        Code.LICENSE_INVALID: 401,
        Code.AGENT_REVOKED: 403,
        Code.NOT_FOUND: 404,
        Code.TIMEOUT: 408,
        Code.ALREADY_ENROLLED: 409,
        Code.TOKEN_USED: 409,
        Code.TOO_LARGE: 413,
        Code.UNSUPPORTED_ENCODING: 415,
        Code.INVALID_SERIES: 422,
        Code.BINDING_FAILED: 422,
        Code.UPGRADE_REQUIRED: 426,
        Code.RATE_LIMITED: 429,
        Code.SERVER_ERROR: 500,
        Code.UNAVAILABLE: 503,
    }
)
"""The HTTP status that the collector sends with each code."""


@unique
class Action(Enum):
    """What an agent does with the batch, and with itself, after an answer to `POST /metrics`."""

    ACCEPT = "accept"
    """Remove the batch, reset the backoff, state ok."""
    DROP = "drop"
    """Drop the batch and count its points: it can never be read or accepted."""
    STOP_AND_PROBE = "stop_and_probe"
    """Stop sending, keep buffering, ask `GET /config` every 10 minutes."""
    REVOKE = "revoke"
    """Clear the token, stop for good, keep the data on disk."""
    SPLIT = "split"
    """Split the batch and send its halves."""
    RESEND_AS_GZIP = "resend_as_gzip"
    """Send once more as gzip protobuf, else drop and count."""
    UPGRADE = "upgrade"
    """Flag that an upgrade is needed, keep the batch, back off."""
    RETRY = "retry"
    """Keep the batch and back off, never before Retry-After."""
    ODD = "odd"
    """Keep the batch and back off; after 8 in a row for one batch the next batch is tried."""


@attrs.frozen(kw_only=True)
class _Row:
    """One row of the table: what a status means, and the code without which it means nothing."""

    action: Action
    needs_code: Code | None = None


_TABLE: Mapping[int, _Row] = MappingProxyType(
    {
        400: _Row(action=Action.DROP, needs_code=Code.BAD_REQUEST),
        401: _Row(action=Action.STOP_AND_PROBE),
        403: _Row(action=Action.REVOKE, needs_code=Code.AGENT_REVOKED),
        408: _Row(action=Action.RETRY),
        413: _Row(action=Action.SPLIT),
        415: _Row(action=Action.RESEND_AS_GZIP, needs_code=Code.UNSUPPORTED_ENCODING),
        426: _Row(action=Action.UPGRADE),
        429: _Row(action=Action.RETRY),
    }
)
_ACKNOWLEDGING = frozenset({200, 202})
_NOTHING_ACCEPTED = 422
_SERVER_FAULTS = range(500, 600)


def classify(
    status: int,
    *,
    code: str | None,
    ack: "MetricsAck | None",
    sent_seq: int,
) -> Action:
    """What the agent does after an answer to `POST /metrics`.

    Network, TLS and DNS errors, timeouts and cut bodies never come here: their caller keeps the
    batch and backs off.

    Args:
        status: the HTTP status.
        code: `X-AH-Code`, or `ErrorBody.code` of a readable body; None when there is neither.
        ack: the body as a MetricsAck when it could be read as one, else None.
        sent_seq: `seq` of the batch that was sent.

    Returns:
        The action; ODD for every answer outside the table.
    """
    if status in _ACKNOWLEDGING:
        return Action.ACCEPT if ack is not None and ack.ack_seq == sent_seq else Action.ODD
    if status == _NOTHING_ACCEPTED:
        return Action.DROP if _says_nothing_accepted(code, ack, sent_seq) else Action.ODD
    if status in _SERVER_FAULTS:
        return Action.RETRY
    row = _TABLE.get(status)
    if row is None or (row.needs_code is not None and row.needs_code != code):
        return Action.ODD
    return row.action


def _says_nothing_accepted(code: str | None, ack: "MetricsAck | None", sent_seq: int) -> bool:
    # An empty body reads as an empty MetricsAck, so being readable is not enough: the answer must
    # also name this batch (or, from older collectors, none) and a refused series or the row's code.
    if ack is None or ack.ack_seq not in {0, sent_seq}:
        return False
    return bool(ack.rejected) or code == Code.INVALID_SERIES
