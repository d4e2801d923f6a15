"""What the sender needs of a transport, and the values that cross it.

`ahwal.transport.Client` speaks HTTP; a test or another protocol may put its own in its place.
"""

from typing import Protocol

from attrs import frozen

from ahwire.agent_pb2 import AgentConfig, MetricsAck


@frozen(kw_only=True)
class Reply:
    """An answer to `POST /metrics` that was read to its end.

    Attributes:
        status: HTTP status.
        code: The protocol's error code, from the header or the body; None when there is neither.
        message: What the server says about an error, at most 200 characters.
        ack: The body as an acknowledgement; None when it is not one.
        retry_after_seconds: 0 to 3,600; None when the server did not say.
        request_id: The id under which both sides log this request.
    """

    status: int
    code: str | None = None
    message: str = ""
    ack: MetricsAck | None = None
    retry_after_seconds: float | None = None
    request_id: str = ""


@frozen(kw_only=True)
class ConfigReply:
    """An answer to `GET /config`.

    Attributes:
        status: HTTP status; 304 means that the known configuration is still right.
        code: The protocol's error code, if any.
        config: The configuration with its etag; only with status 200.
        retry_after_seconds: 0 to 3,600; None when the server did not say.
        request_id: The id under which both sides log this request.
    """

    status: int
    code: str | None = None
    config: AgentConfig | None = None
    retry_after_seconds: float | None = None
    request_id: str = ""


class MetricsTransport(Protocol):
    """What a `Sender` sends through.

    No method is retried by the transport. All can be cancelled at any await; whether the server got
    the request is then unknown, and sending it again must be safe.
    """

    async def post_metrics(self, body: bytes, *, coding: str) -> Reply:
        """Post one compressed `MetricsBatch`.

        Args:
            body: The serialized batch, compressed.
            coding: How: `gzip` or `zstd`.

        Raises:
            TransportError: No whole answer came: name look-up, connection, TLS, time limit, cut
                body.
        """
        ...

    async def get_config(self, etag: str = "") -> ConfigReply:
        """Ask for the configuration, unless it still has the etag.

        Raises:
            TransportError: No whole answer came.
        """
        ...

    def clear_token(self) -> None:
        """Forget the token; no later request carries one."""
        ...
