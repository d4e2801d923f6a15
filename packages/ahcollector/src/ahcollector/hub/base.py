"""The hub as the collector sees it: who agents are, and who takes events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from ahrules import RuleError, SilenceError
from ahwire.agent_pb2 import EnrollRequest, Inventory
from ahwire.hub import (
    AgentPage,
    AgentRecord,
    CompanySettings,
    EnrollGrant,
    Event,
    EventsReply,
    Heartbeat,
    RenewGrant,
    SeenReport,
    Silence,
    ThresholdRule,
)

__all__ = [
    "AgentsHub",
    "EnrollHub",
    "EventsHub",
    "Hub",
    "InventoryHub",
    "RenewalHub",
    "ReportsHub",
    "RulesHub",
    "RulesReply",
    "SettingsHub",
    "SettingsReply",
    "SilencesHub",
    "SilencesReply",
]


@attrs.frozen(kw_only=True)
class SettingsReply:
    """A company's settings as the hub holds them now.

    Attributes:
        settings: The settings; None when they are still those of the etag that was sent.
        etag: What to send next time; None when the hub gives none.
    """

    settings: CompanySettings | None
    etag: str | None


@attrs.frozen(kw_only=True)
class RulesReply:
    """The threshold rules as the hub holds them now.

    Attributes:
        rules: Those that keep the contract; None when all are still those of the etag that was
            sent.
        refused: Those that do not, with their faults by field path.
        etag: What to send next time; None when the hub gives none.
    """

    rules: tuple[ThresholdRule, ...] | None
    refused: tuple[RuleError, ...] = ()
    etag: str | None


@attrs.frozen(kw_only=True)
class SilencesReply:
    """The silences as the hub holds them now.

    Attributes:
        silences: Those that keep the contract; None when all are still those of the etag that was
            sent.
        refused: Those that do not, with their faults by field path.
        etag: What to send next time; None when the hub gives none.
    """

    silences: tuple[Silence, ...] | None
    refused: tuple[SilenceError, ...] = ()
    etag: str | None


class EnrollHub(Protocol):
    """Who exchanges licenses; see `Hub` for errors."""

    async def enroll(
        self, request: EnrollRequest, *, client_ip: str, request_id: str
    ) -> EnrollGrant:
        """Exchange a one-time license for an identity.

        Raises:
            TemporaryHubError: Also when the grant lacks a field.
            PermanentHubError: Refused; ``status`` and ``code`` say why.
        """
        ...


class RenewalHub(Protocol):
    """Who makes new tokens; see `Hub` for errors."""

    async def renew(self, agent_id: str, *, request_id: str) -> RenewGrant:
        """Get a new token for an agent whose old one was just checked."""
        ...


class AgentsHub(Protocol):
    """Who knows the agents; see `Hub` for errors."""

    async def agent_by_token_hash(self, token_hash: str) -> AgentRecord | None:
        """Return whose token this is, or None when the hub answers 404."""
        ...

    async def agents_since(self, cursor: str, limit: int) -> AgentPage:
        """Return one page of changes after `cursor` (empty: from the beginning)."""
        ...


class EventsHub(Protocol):
    """Who takes events; see `Hub` for errors. `OutboxSender` needs nothing else of a hub."""

    async def send_events(self, events: Sequence[Event], fence: int | None = None) -> EventsReply:
        """Hand over 1 to 200 events; idempotent by event id.

        An event that the answer names neither as accepted nor as rejected is sent again.

        Args:
            events: Oldest first.
            fence: Of the sender's lease, rising with each holder; None: the sender is alone.

        Raises:
            FencedHubError: `fence` is older than the newest the hub has seen; nothing was taken.
        """
        ...


class ReportsHub(Protocol):
    """Who is told what a collector hears; see `Hub` for errors."""

    async def send_seen(self, report: SeenReport) -> None:
        """Tell when up to 500 agents were last heard."""
        ...

    async def heartbeat(self, beat: Heartbeat) -> None:
        """Tell that this collector lives, with its counts."""
        ...


class InventoryHub(Protocol):
    """Who takes inventories; see `Hub` for errors."""

    async def send_inventory(self, agent_id: str, inventory: Inventory, *, request_id: str) -> None:
        """Pass on an agent's newest inventory, which replaces the last."""
        ...


class SettingsHub(Protocol):
    """Who says what is set for a company; see `Hub` for errors."""

    async def settings(self, company_id: str, *, etag: str | None) -> SettingsReply:
        """Return a company's settings, or that they are unchanged since `etag`."""
        ...


class RulesHub(Protocol):
    """Who has the threshold rules; see `Hub` for errors."""

    async def rules(self, etag: str | None) -> RulesReply:
        """Return all threshold rules, or that they are unchanged since `etag`."""
        ...


class SilencesHub(Protocol):
    """Who has the silences; see `Hub` for errors."""

    async def silences(self, etag: str | None) -> SilencesReply:
        """Return all silences, or that they are unchanged since `etag`."""
        ...


class Hub(
    EnrollHub,
    RenewalHub,
    AgentsHub,
    EventsHub,
    ReportsHub,
    InventoryHub,
    SettingsHub,
    RulesHub,
    SilencesHub,
    Protocol,
):
    """All calls of the collector to its hub; each part asks for those that it makes, and no more.

    Every call may raise `TemporaryHubError` (a retry can help; an answer that makes no sense counts
    as one, because something between us and the hub gave it) and `PermanentHubError` (it cannot).
    No call is retried inside; every call may be cancelled at any time, after which the hub may or
    may not have taken it.
    """
