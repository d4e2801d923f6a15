"""A channel's provider: what takes a message to one person.

Adding a channel is one file with a `Provider` and one test file that runs
`ahnotify.testing.ProviderContract` and what is special about the service.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

import attrs

__all__ = [
    "CHANNELS",
    "Channel",
    "Content",
    "OutgoingMessage",
    "Provider",
    "ProviderResult",
    "TargetContact",
    "UnknownPolicy",
]

#: Every channel that a rule may name; which of them can be used is for the composition to say.
CHANNELS: Final = ("email", "telegram", "sms", "voice", "webhook", "apprise")

SettingsT = TypeVar("SettingsT")
SettingsT_contra = TypeVar("SettingsT_contra", contravariant=True)


class UnknownPolicy:
    """What to do about a call whose end nobody knows."""

    #: Send it again under the same reference, after the usual delay; a person may see it twice.
    RESEND: Final = "resend"
    #: Leave it; a person may not see it at all.
    STOP: Final = "stop"


@attrs.frozen(kw_only=True)
class Content:
    """A rendered text.

    Attributes:
        subject: One line; a provider must still not trust it with its protocol.
        text: Plain text.
        html: The same as HTML, else None.
    """

    subject: str
    text: str
    html: str | None = None


@attrs.frozen(kw_only=True)
class OutgoingMessage:
    """What a provider sends.

    Attributes:
        reference: The same for every attempt at this target: the service or the reader's program
            can tell a second copy by it.
        tenant_id: Whose it is.
        notification_uuid: Of which notification.
        content: The rendered text.
    """

    reference: str
    tenant_id: str
    notification_uuid: str
    content: Content = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class TargetContact:
    """Where a provider sends to.

    Attributes:
        contact_id: Its row.
        address: As the channel writes addresses.
    """

    contact_id: str
    address: str = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ProviderResult:
    """The provider took the message over.

    Attributes:
        provider_message_id: What the provider calls it, else None.
        answer: The provider's own words, shortened.
    """

    provider_message_id: str | None = None
    answer: str = ""


class Provider(Protocol[SettingsT_contra]):
    """Takes one message to one contact.

    Order: none. Durability: none of its own; when `send` returned, the service has taken the
    message over. Idempotence: calling it twice may reach the person twice; both calls carry the
    same `reference`. It keeps no time limit of its own beyond its settings: the caller bounds the
    call and treats being cut short as an unknown outcome.
    """

    async def send(
        self, message: OutgoingMessage, contact: TargetContact, settings: SettingsT_contra
    ) -> ProviderResult:
        """Send `message` to `contact`.

        Raises:
            TemporaryProviderError: Not accepted; a later attempt can help.
            PermanentProviderError: Not accepted; no attempt can help.
            UnknownOutcomeError: The service could have accepted it.
        """
        ...


@attrs.frozen(kw_only=True)
class Channel(Generic[SettingsT]):
    """A provider and how this deployment uses it.

    Attributes:
        provider: What sends.
        settings: The provider's own settings.
        unknown_policy: A value of `UnknownPolicy`.
        attempt_timeout_seconds: How long one call may take.
        render_limit_items: How many events of a digest are shown.
    """

    provider: Provider[SettingsT]
    settings: SettingsT
    unknown_policy: str = UnknownPolicy.RESEND
    attempt_timeout_seconds: float = 30
    render_limit_items: int = 10

    async def send(self, message: OutgoingMessage, contact: TargetContact) -> ProviderResult:
        """`Provider.send` with this channel's settings."""
        return await self.provider.send(message, contact, self.settings)
