"""What is told to the client of NATS, and what it tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

__all__ = ["NatsConfig", "NatsMessage"]

_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def _plain(servers: Iterable[str]) -> tuple[str, ...]:
    # A text is a sequence of texts too, of one character each.
    if isinstance(servers, str):
        raise ValueError(
            "servers of NatsConfig is a text; it takes a tuple of addresses, as in "
            'servers=("nats://127.0.0.1:4222",)'
        )
    given = tuple(servers)
    for server in given:
        if "@" in server:
            raise ValueError(
                "a NATS URL holds a user or a password, which would be in logs: name them in "
                "username and password, or token, or credentials_file"
            )
    return given


@attrs.frozen(kw_only=True)
class NatsConfig:
    """Where NATS is, and how it is spoken to.

    Attributes:
        servers: ``nats://host:port`` or ``tls://host:port``, those of one cluster, as a
            tuple; without user. ``nats://127.0.0.1:4222`` unless given.
        username: Empty: none.
        password: Shown in no text and no log; empty: none.
        token: In place of user and password; shown nowhere; empty: none.
        credentials_file: A ``.creds`` file (JWT and seed); needs the package ``nkeys``; None: none.
        prefix: Begins the names of streams, buckets and subjects: letters, digits, ``_`` and
            ``-``; ``ah`` unless given. Two systems on one account need two prefixes.
        tls: Whether to speak TLS; the certificate is always checked. A server that speaks none is
            then not spoken to. No TLS unless given.
        tls_ca_file: PEM bundle to trust instead of the system's; None: the system's.
        timeout_seconds: A connection, and the reply to a request, must be there by then; 2 unless
            given.
    """

    servers: tuple[str, ...] = attrs.field(default=("nats://127.0.0.1:4222",), converter=_plain)
    username: str = ""
    password: str = attrs.field(default="", repr=False)
    token: str = attrs.field(default="", repr=False)
    credentials_file: Path | None = None
    prefix: str = attrs.field(default="ah")
    tls: bool = False
    tls_ca_file: Path | None = None
    timeout_seconds: float = 2.0

    @prefix.validator
    def _check_prefix(self, _: attrs.Attribute[str], value: str) -> None:
        if not _PREFIX.fullmatch(value):
            raise ValueError(
                f"the prefix of NATS is {value!r}; it begins names of streams, which are letters, "
                "digits, _ and -, 64 at most"
            )


@attrs.frozen(kw_only=True)
class NatsMessage:
    """A message.

    Attributes:
        reply: Where an answer is expected; empty: nowhere.
        status: Of a message that is only about others, ``404`` and the like; empty: none.
    """

    subject: str
    reply: str
    data: bytes
    headers: Mapping[str, str]

    @property
    def status(self) -> str:
        """What the server says in place of a message; empty for a message."""
        return "" if self.data else self.headers.get("Status", "")
