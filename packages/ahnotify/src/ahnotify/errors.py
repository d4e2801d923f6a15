"""Everything ahnotify raises, in one tree.

    NotifyError
    ├── ConfigurationError          a setting is wrong; no retry helps
    ├── DatabaseUnavailableError    the database did not answer; a retry can help
    ├── InvalidError                what a caller wants stored is wrong: field and reason
    ├── NotFoundError               no such row in this tenant
    ├── ConflictError               it changed since it was read (If-Match)
    │   └── ExistsError             it was to be made, and is there already
    ├── RenderError                 the built-in text could not be rendered; a bug of ours
    ├── BrokerError
    │   ├── UnroutableError         no queue takes this topic; no retry helps
    │   ├── BrokerUnavailableError  the broker did not confirm; a retry can help
    │   └── LeaseLostError          the delivery went back to its queue; leave it alone
    └── ProviderError
        ├── TemporaryProviderError  not accepted, a later attempt can help
        ├── PermanentProviderError  not accepted, no attempt can help
        └── UnknownOutcomeError     perhaps accepted; nobody can tell from here

Texts name the cause, the value and the way out, and never an address's message, a password or a
key.
"""

from __future__ import annotations

__all__ = [
    "BrokerError",
    "BrokerUnavailableError",
    "ConfigurationError",
    "ConflictError",
    "DatabaseUnavailableError",
    "ExistsError",
    "InvalidError",
    "LeaseLostError",
    "NotFoundError",
    "NotifyError",
    "PermanentProviderError",
    "ProviderError",
    "RenderError",
    "TemporaryProviderError",
    "UnknownOutcomeError",
    "UnroutableError",
]


class NotifyError(Exception):
    """The root: catch it to catch everything of this package."""


class ConfigurationError(NotifyError):
    """A setting is wrong; the text names it and the way out."""


class DatabaseUnavailableError(NotifyError):
    """The database did not answer or was locked for too long; try again later."""


class InvalidError(NotifyError):
    """What was to be stored is wrong.

    Attributes:
        problems: `(field path, reason)` pairs, at least one.
    """

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in problems))
        self.problems = problems


class NotFoundError(NotifyError):
    """The tenant has no such row."""


class ConflictError(NotifyError):
    """The row changed since the caller read it; read again and decide again."""


class ExistsError(ConflictError):
    """The row was to be made, and is there already; replace it with the version that was read."""


class RenderError(NotifyError):
    """A template could not be rendered."""


class BrokerError(NotifyError):
    """Root of what a broker raises."""


class UnroutableError(BrokerError):
    """No queue takes messages of this topic."""


class BrokerUnavailableError(BrokerError):
    """The broker did not confirm in time; the message may or may not be queued."""


class LeaseLostError(BrokerError):
    """The delivery was given back to its queue meanwhile; another consumer may hold it."""


class ProviderError(NotifyError):
    """Root of what a provider raises; `code` is short, stable and free of personal data."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail


class TemporaryProviderError(ProviderError):
    """The provider did not accept the message now.

    Attributes:
        retry_after_seconds: What the provider asked for, else None; it is obeyed.
    """

    def __init__(
        self, code: str, detail: str = "", *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(code, detail)
        self.retry_after_seconds = retry_after_seconds


class PermanentProviderError(ProviderError):
    """The provider will never accept this message for this contact."""


class UnknownOutcomeError(ProviderError):
    """The call ended without an answer after the message could have been accepted.

    Attributes:
        reference: What the provider would know the message by (a Message-ID).
    """

    def __init__(self, code: str, detail: str = "", *, reference: str) -> None:
        super().__init__(code, detail)
        self.reference = reference
