"""What is told to the client of Redis."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import attrs

__all__ = ["RedisConfig"]


@attrs.frozen(kw_only=True)
class RedisConfig:
    """Where Redis is, and how it is spoken to.

    Attributes:
        host: Its name or address, without the port; 127.0.0.1 unless given.
        port: Its port; 6379 unless given.
        username: ACL user; empty: the default one.
        password: Shown in no text and no log; empty: none.
        db: Number of the database; 0 unless given.
        prefix: Before every key and channel; ``ah:`` unless given. Two systems on one Redis
            need two prefixes.
        tls: Whether to speak TLS; the certificate is always checked. No TLS unless given.
        tls_ca_file: PEM bundle to trust instead of the system's; None: the system's.
        timeout_seconds: A connection, and the reply to a command, must be there by then; 0.5
            unless given.
        connections_max: Connections at most; further commands wait for a free one; 16 unless
            given.
    """

    host: str = attrs.field(default="127.0.0.1")
    port: int = 6379
    username: str = ""
    password: str = attrs.field(default="", repr=False)
    db: int = 0
    prefix: str = "ah:"
    tls: bool = False
    tls_ca_file: Path | None = None
    timeout_seconds: float = 0.5
    connections_max: int = 16

    @host.validator
    def _check_host(self, _: attrs.Attribute[str], value: str) -> None:
        if ":" in value and not _is_ipv6(value):
            # What stands there may be a URL with a password, so it is not shown.
            raise ValueError(
                "the host of Redis holds a colon and is no IPv6 address: give the name or address "
                "alone, without brackets, and the port as port"
            )


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
