"""Recipients and contacts as values."""

from __future__ import annotations

from typing import Final

import attrs

_NESTING_MAX: Final = 8
RECIPIENT_TYPES: Final = ("user", "team", "group")


@attrs.frozen
class RecipientKey:
    """A recipient within a tenant."""

    recipient_type: str
    recipient_id: str


@attrs.frozen(kw_only=True)
class Contact:
    """One address of one recipient.

    Attributes:
        tenant_id: Whose it is.
        contact_id: Its id.
        recipient: Whom it reaches.
        channel: By which channel.
        address: As the channel writes addresses.
        enabled: Switched on.
        verified: Known to be theirs; nothing is sent before.
        version: Grows with every change.
    """

    tenant_id: str
    contact_id: str
    recipient: RecipientKey
    channel: str
    address: str = attrs.field(repr=False)
    enabled: bool
    verified: bool
    version: int


@attrs.frozen(kw_only=True)
class DirectorySnapshot:
    """Everyone's contacts and memberships at one moment, in memory.

    Attributes:
        contacts: Usable contacts by (tenant, recipient).
        members: Members by (tenant, team or group).
        rule_names: Names of rules by (tenant, rule), for texts.
        rule_timezones: Time zones of rules that have one, by (tenant, rule).
        tenant_names: Names of tenants.
        tenant_timezones: Time zones of tenants, for rules that have none.
    """

    contacts: dict[tuple[str, RecipientKey], tuple[Contact, ...]]
    members: dict[tuple[str, RecipientKey], tuple[RecipientKey, ...]]
    rule_names: dict[tuple[str, str], str]
    rule_timezones: dict[tuple[str, str], str] = attrs.field(factory=dict)
    tenant_names: dict[str, str] = attrs.field(factory=dict)
    tenant_timezones: dict[str, str] = attrs.field(factory=dict)

    def timezone(self, tenant_id: str, rule_id: str) -> str:
        """In which time zone the rule tells times: its own, else its tenant's, else UTC."""
        own = self.rule_timezones.get((tenant_id, rule_id))
        return own or self.tenant_timezones.get(tenant_id) or "UTC"

    def find(self, tenant_id: str, recipient: RecipientKey, channel: str) -> tuple[Contact, ...]:
        """The contacts of `recipient` and of its members, each address once, in a stable order.

        A team that holds itself, however far down, is walked once.
        """
        found: dict[str, Contact] = {}
        seen: set[RecipientKey] = set()
        level: list[RecipientKey] = [recipient]
        for _ in range(_NESTING_MAX):
            following: list[RecipientKey] = []
            for each in level:
                if each in seen:
                    continue
                seen.add(each)
                for contact in self.contacts.get((tenant_id, each), ()):
                    if contact.channel == channel:
                        found.setdefault(contact.address, contact)
                following.extend(self.members.get((tenant_id, each), ()))
            level = following
        return tuple(sorted(found.values(), key=lambda contact: contact.contact_id))
