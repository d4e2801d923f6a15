"""What the headers of a request say: pure functions over their text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import Enum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers

from ahcollector.errors import RequestRefusedError
from ahwire.limits import PROTOCOL_VERSION
from ahwire.status import Code

__all__ = [
    "Format",
    "IPNetwork",
    "ambiguity",
    "answer_format",
    "body_format",
    "check_protocol",
    "client_ip",
    "content_coding",
    "declared_bytes",
    "etag_matches",
    "ip_key",
    "token_hash",
]

IPNetwork = IPv4Network | IPv6Network

_TOKEN_CHARS_MAX = 1024
# Of two of them, two readers could take different ones.
_ONCE = ("Authorization", "Content-Length")
_IPV6_CLIENT_BITS = 64
# More than any limit, and few enough to be a number.
_LENGTH_DIGITS_MAX = 20


class Format(Enum):
    """How messages are written; the value is the media type."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


def token_hash(authorization: str | None) -> str:
    """Return the SHA-256 of a bearer token, 64 lower hex.

    Raises:
        RequestRefusedError: There is no bearer token.
    """
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _TOKEN_CHARS_MAX:
        raise RequestRefusedError(
            Code.UNAUTHORIZED, "no bearer token: send Authorization: Bearer <agent token>"
        )
    # Header bytes reach us as latin-1 text, so this gives back the bytes that were sent.
    return hashlib.sha256(token.encode("latin-1", "replace")).hexdigest()


def ambiguity(headers: Headers) -> str:
    """Return why two readers could take a request for two different ones; empty: they could not.

    A proxy before us may believe the other length or the other token, and what it lets pass is
    then not what we take.
    """
    for name in _ONCE:
        count = len(headers.getlist(name))
        if count > 1:
            return f"{count} headers {name}: send one"
    if "content-length" in headers and "transfer-encoding" in headers:
        return "both Content-Length and Transfer-Encoding: send one of the two"
    return ""


def check_protocol(version: str | None) -> None:
    """Refuse an agent that speaks another version of the protocol, or none."""
    if version != PROTOCOL_VERSION:
        raise RequestRefusedError(
            Code.UPGRADE_REQUIRED, f"X-AH-Proto must be {PROTOCOL_VERSION}: upgrade the agent"
        )


def body_format(content_type: str | None) -> Format:
    """Return the format of a body; without a type it is the protocol's own.

    Raises:
        RequestRefusedError: Neither of the two formats.
    """
    media = (content_type or Format.PROTOBUF.value).partition(";")[0].strip().lower()
    try:
        return Format(media)
    except ValueError:
        raise RequestRefusedError(
            Code.UNSUPPORTED_ENCODING,
            f"content type {media[:60]!r} is not read: send {Format.PROTOBUF.value} or "
            f"{Format.JSON.value}",
        ) from None


def content_coding(headers: Headers) -> str | None:
    """Return all codings that a body has, joined by commas; None: none is named."""
    return ", ".join(headers.getlist("content-encoding")) or None


def declared_bytes(headers: Headers) -> int | None:
    """Return how long a body is said to be; None: it is not said, or not as a number."""
    text = headers.get("content-length", "")
    return int(text[:_LENGTH_DIGITS_MAX]) if text.isascii() and text.isdigit() else None


def answer_format(accept: str | None, content_type: str | None) -> Format:
    """Return the format that the caller reads best; in doubt the one it writes."""
    sent = (content_type or "").partition(";")[0].strip().lower()
    own = Format.JSON if sent == Format.JSON.value else Format.PROTOBUF
    weights = _accepted(accept or "*/*")
    if own is Format.JSON:
        return Format.PROTOBUF if weights[Format.PROTOBUF] > weights[Format.JSON] else own
    return Format.JSON if weights[Format.JSON] > weights[Format.PROTOBUF] else own


def _accepted(accept: str) -> dict[Format, float]:
    exact: dict[str, float] = {}
    for part in accept.split(",")[:20]:
        media, *params = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for param in params:
            if param.startswith("q="):
                try:
                    weight = float(param[2:])
                except ValueError:
                    weight = 0.0
        exact[media] = max(weight, exact.get(media, 0.0))
    anything = exact.get("application/*", exact.get("*/*", 0.0))
    return {form: exact.get(form.value, anything) for form in Format}


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether a caller's ``If-None-Match`` names this etag (given without quotes)."""
    if if_none_match is None:
        return False
    for part in if_none_match.split(","):
        tag = part.strip().removeprefix("W/").strip('"')
        if tag in {etag, "*"}:
            return True
    return False


def client_ip(peer: str | None, forwarded: str | None, trusted: Sequence[IPNetwork]) -> str:
    """Return the address a request came from, as far as it can be believed.

    ``X-Forwarded-For`` is read from its end as long as the speaker is a trusted proxy; what stands
    before the first stranger is what that stranger claims, and is not read.

    Args:
        peer: Address of the connection.
        forwarded: All ``X-Forwarded-For`` values, joined by commas.
        trusted: Networks of our own proxies.
    """
    speaker = peer or ""
    for claimed in reversed([part.strip() for part in (forwarded or "").split(",")]):
        if not claimed or not _within(speaker, trusted):
            break
        try:
            speaker = str(ip_address(claimed))
        except ValueError:
            break
    return speaker


def _within(address: str, networks: Iterable[IPNetwork]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)


def ip_key(address: str) -> str:
    """Return what counts as one client: an IPv4 address, an IPv6 /64, or whatever else it is."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, _IPV6_CLIENT_BITS), strict=False))
    return str(parsed)
