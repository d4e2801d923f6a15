"""The way to the collector: what the sender needs of it, and the client that speaks HTTP."""

from typing import TYPE_CHECKING

from ahwal.transport.base import ConfigReply, MetricsTransport, Reply

if TYPE_CHECKING:
    from ahwal.transport._http import Client

__all__ = ["Client", "ConfigReply", "MetricsTransport", "Reply"]


def __getattr__(name: str) -> object:
    """Load the client when it is first asked for: its HTTP library is slow to import."""
    if name == "Client":
        from ahwal.transport._http import Client  # noqa: PLC0415 - see the docstring

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
