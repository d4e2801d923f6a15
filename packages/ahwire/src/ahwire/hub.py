"""The contracts of collector and hub: who the agents are, what happened to them, what is set.

Every class has `from_json` and `to_json` (see `ahwire.errors.DecodeError` for what they refuse).
Times are aware datetimes in UTC. Answers of the hub may come wrapped in `{"data": …}`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum, unique
from typing import ClassVar

import attrs
from attrs import field
from attrs.validators import optional

from ahwire import _fields as check
from ahwire import limits
from ahwire._event import (
    Event,
    EventSeverity,
    EventsReply,
    EventsRequest,
    EventType,
    RejectedEvent,
)
from ahwire._fields import JsonValue
from ahwire._hub_rules import (
    Aggregation,
    LabelMatcher,
    MatchOp,
    NoData,
    Recurrence,
    Silence,
    Silences,
    ThresholdOp,
    ThresholdRule,
    ThresholdRules,
    Weekday,
)
from ahwire._hub_settings import AgentSettings, CompanySettings, GroupDownSettings
from ahwire._json import JsonContract
from ahwire.errors import DecodeError

__all__ = [
    "AgentPage",
    "AgentRecord",
    "AgentSettings",
    "AgentState",
    "Aggregation",
    "CompanySettings",
    "EnrollGrant",
    "Event",
    "EventSeverity",
    "EventType",
    "EventsReply",
    "EventsRequest",
    "Fenced",
    "GroupDownSettings",
    "Heartbeat",
    "InventoryReport",
    "JsonValue",
    "LabelMatcher",
    "MatchOp",
    "NoData",
    "Recurrence",
    "RejectedEvent",
    "RenewGrant",
    "RenewRequest",
    "Seen",
    "SeenReport",
    "Silence",
    "Silences",
    "ThresholdOp",
    "ThresholdRule",
    "ThresholdRules",
    "Weekday",
]

_COMPANIES_MAX = 1_000_000


@unique
class AgentState(StrEnum):
    """Whether an agent may send."""

    PENDING = "pending"
    ACTIVE = "active"
    REVOKED = "revoked"


@attrs.frozen(kw_only=True)
class AgentRecord(JsonContract):
    """One agent as the hub knows it.

    Attributes:
        agent_id: id of the agent.
        company_id: whose it is.
        server_id: the machine it measures.
        state: whether it may send.
        token_hash: SHA-256 of the token in lower-case hex; there when the state is active.
        expires_at: end of the token's life; None: never.
        prev_token_hash: the token before, still good until `prev_token_expires_at`; without that
            time it is expired.
        prev_token_expires_at: end of its overlap.
        version: rises with each change of the record, from 0.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    agent_id: str = field(validator=check.identity)
    company_id: str = field(validator=check.identity)
    server_id: str = field(validator=check.identity)
    state: AgentState = field(validator=check.instance(AgentState))
    token_hash: str | None = field(default=None, validator=optional(check.sha256_hex), repr=False)
    expires_at: datetime | None = field(
        default=None, converter=check.as_utc, validator=optional(check.moment)
    )
    prev_token_hash: str | None = field(
        default=None, validator=optional(check.sha256_hex), repr=False
    )
    prev_token_expires_at: datetime | None = field(
        default=None, converter=check.as_utc, validator=optional(check.moment)
    )
    version: int = field(validator=check.integer(least=0))

    def __attrs_post_init__(self) -> None:
        if self.state is AgentState.ACTIVE and self.token_hash is None:
            raise DecodeError(field="token_hash", reason="is missing; an active agent has one")


@attrs.frozen(kw_only=True)
class AgentPage(JsonContract):
    """Answer to `GET /agents?since=&limit=`.

    Attributes:
        agents: up to 500 records, in the order in which they changed.
        more: whether another page follows.
        next_since: opaque cursor of the next page; not empty when there is one.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    agents: tuple[AgentRecord, ...] = field(
        validator=check.items(check.instance(AgentRecord), 0, limits.MAX_AGENTS_PER_PAGE)
    )
    more: bool = field(validator=check.boolean)
    next_since: str = field(
        default="", validator=check.text(chars_min=0, chars_max=check.TEXT_CHARS_MAX)
    )

    def __attrs_post_init__(self) -> None:
        if self.more and not self.next_since:
            reason = "is empty; a page that more follow names where they begin"
            raise DecodeError(field="next_since", reason=reason)


@attrs.frozen(kw_only=True)
class EnrollGrant(JsonContract):
    """Answer to `POST /enroll`: an identity and its token, told once.

    Attributes:
        agent_id: id of the agent, new or, for an enrolment told again, the same.
        company_id: whose it is.
        server_id: the machine it measures.
        token_hash: SHA-256 of `agent_token` in lower-case hex.
        agent_token: secret; what the agent shows as its bearer token.
        expires_at: end of the token's life; None: never.
        version: of the agent's record; 0 when the hub gave none.
        config: what its company lets it be told.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    agent_id: str = field(validator=check.identity)
    company_id: str = field(validator=check.identity)
    server_id: str = field(validator=check.identity)
    token_hash: str = field(validator=check.sha256_hex, repr=False)
    agent_token: str = field(validator=check.token, repr=False)
    expires_at: datetime | None = field(
        default=None, converter=check.as_utc, validator=optional(check.moment)
    )
    version: int = field(default=0, validator=check.integer(least=0))
    config: AgentSettings = field(factory=AgentSettings, validator=check.instance(AgentSettings))


@attrs.frozen(kw_only=True)
class RenewRequest(JsonContract):
    """Body of `POST /credentials/renew`.

    Attributes:
        agent_id: whose token is to be replaced; the old one was just checked.
    """

    agent_id: str = field(validator=check.identity)


@attrs.frozen(kw_only=True)
class RenewGrant(JsonContract):
    """Answer to `POST /credentials/renew`: a new token; the old one is good for an overlap.

    Attributes:
        token_hash: SHA-256 of `agent_token` in lower-case hex.
        agent_token: secret; the new token.
        expires_at: end of its life; None: never.
        prev_token_expires_at: until when the old token is good too.
        version: of the agent's record, after this change.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    token_hash: str = field(validator=check.sha256_hex, repr=False)
    agent_token: str = field(validator=check.token, repr=False)
    expires_at: datetime | None = field(
        default=None, converter=check.as_utc, validator=optional(check.moment)
    )
    prev_token_expires_at: datetime = field(converter=check.as_utc, validator=check.moment)
    version: int = field(validator=check.integer(least=0))


@attrs.frozen(kw_only=True)
class Seen(JsonContract):
    """When an agent was last heard.

    Attributes:
        agent_id: which one.
        last_seen_at: by the collector's clock.
    """

    agent_id: str = field(validator=check.identity)
    last_seen_at: datetime = field(converter=check.as_utc, validator=check.moment)


@attrs.frozen(kw_only=True)
class SeenReport(JsonContract):
    """Body of `POST /agents/seen`: up to 500 agents.

    Attributes:
        seen: each agent once; an older time than the hub has changes nothing.
    """

    seen: tuple[Seen, ...] = field(
        validator=check.items(check.instance(Seen), 0, limits.MAX_SEEN_PER_REPORT)
    )


@attrs.frozen(kw_only=True)
class InventoryReport(JsonContract):
    """Body of `POST /inventory`.

    Attributes:
        agent_id: whose it is.
        inventory: the message Inventory in protobuf's JSON mapping. Copied; treat as read-only.
    """

    agent_id: str = field(validator=check.identity)
    inventory: Mapping[str, JsonValue] = field(
        converter=check.as_json, validator=check.json_object, hash=False
    )


@attrs.frozen(kw_only=True)
class Fenced(JsonContract):
    """Answer 412 to `POST /events`: another sender has a newer fence, and nothing was taken.

    Attributes:
        newest: the newest fence that was seen, 0 to `limits.MAX_FENCE`, as the header has them.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    newest: int = field(validator=check.integer(least=0, most=limits.MAX_FENCE))


@attrs.frozen(kw_only=True)
class Heartbeat(JsonContract):
    """Body of `POST /heartbeat`: a collector lives, and what it has to do.

    Attributes:
        collector_id: the collector's own name.
        version: of its program.
        at: by its clock.
        agents: how many it knows.
        agents_down: how many of them are down.
        companies: how many agents each company has here.
        batches_per_second: taken in since the heartbeat before.
        samples_per_second: likewise.
        outbox_depth: events that the hub does not have yet.
    """

    collector_id: str = field(validator=check.text())
    version: str = field(validator=check.text())
    at: datetime = field(converter=check.as_utc, validator=check.moment)
    agents: int = field(validator=check.integer(least=0))
    agents_down: int = field(validator=check.integer(least=0))
    companies: Mapping[str, int] = field(
        converter=check.as_json,
        validator=check.mapping(check.identity, check.integer(least=0), _COMPANIES_MAX),
        hash=False,
    )
    batches_per_second: float = field(converter=check.as_number, validator=check.number(least=0))
    samples_per_second: float = field(converter=check.as_number, validator=check.number(least=0))
    outbox_depth: int = field(validator=check.integer(least=0))
