"""What single values must look like beyond their type, and how a refused value is shown.

A check takes the text and raises ValueError with what was expected; the loader puts the setting's
name before it. `shown` is for values out of a settings file or the environment: bounded, on one
line, and without the password of a URL.
"""

import ipaddress
import re
from typing import Any
from urllib.parse import urlsplit

from ahwire.names import is_id

TOKEN_CHARS_MIN = 16
_SHOWN_CHARS_MAX = 80
_PREFIX_CHARS_MAX = 64
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,254}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_HASH_TAG = re.compile(r"[^{}]*(\{[^{}]+\}[^{}]*)?")
_NATS_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOGIN = re.compile(r"//[^/]*@")


def shown(value: Any) -> str:
    """The value for a sentence: text and numbers as they are but bounded, the rest by its kind."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_CHARS_MAX:
        # Python itself refuses to write out numbers of some thousand digits.
        return f"a number of over {_SHOWN_CHARS_MAX} digits"
    text = _LOGIN.sub("//***@", value) if isinstance(value, str) else value
    whole = ascii(text) if isinstance(value, str) and not value.isprintable() else repr(text)
    return whole if len(whole) <= _SHOWN_CHARS_MAX else whole[: _SHOWN_CHARS_MAX - 1] + "…"


def shown_name(name: Any) -> str:
    """A key or a variable's name for a sentence: as it is when that is short and printable."""
    plain = isinstance(name, str) and name.isprintable() and 0 < len(name) <= _SHOWN_CHARS_MAX
    return str(name) if plain else shown(name)


def range_text(between: tuple[float, float]) -> str:
    """A range for a sentence, whole numbers written out."""
    least, most = (str(int(end)) if end == int(end) else f"{end:g}" for end in between)
    return f"{least} to {most}"


def is_host(text: str) -> bool:
    """Whether the text is a host name or an IP address (IPv6 without brackets)."""
    if ":" in text:
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            return False
        return True
    return _HOST_NAME.fullmatch(text) is not None


def check_token(text: str) -> None:
    """A bearer token, as a header can carry it, or nothing."""
    if any(not "!" <= character <= "~" for character in text):
        raise ValueError("must be printable ASCII text without spaces and line breaks")


def check_admin_token(text: str) -> None:
    """A bearer token that cannot be guessed, or nothing."""
    check_token(text)
    if 0 < len(text) < TOKEN_CHARS_MIN:
        raise ValueError(
            f"has under {TOKEN_CHARS_MIN} characters; make a longer one, or leave it empty"
        )


def check_host(text: str) -> None:
    """A host name or an address, or nothing."""
    if text and not is_host(text):
        raise ValueError("expected a host name or an IP address, as in mail.example.com")


def check_id(text: str) -> None:
    """An id of the wire contract, or nothing."""
    if text and not is_id(text):
        raise ValueError(
            "expected letters, digits and _ . : - only, 128 at most, the first a letter or a digit"
        )


def check_company(text: object) -> None:
    """A company's id."""
    if not isinstance(text, str) or not is_id(text):
        raise ValueError(
            "expected a company's id: 1 to 128 letters, digits and _ . : - only, the first a letter"
            " or a digit"
        )


def check_changes(number: int) -> None:
    """How many changes are too many: none counts, or at least two."""
    if number == 1:
        raise ValueError("expected 0, or at least 2: each alert changes once")


def check_service_address(address: Any) -> None:
    """An address that one can connect to, which port 0 is not, or None."""
    if address is not None and address.port == 0:
        raise ValueError("expected host:port with a port from 1 to 65535, as in 127.0.0.1:6379")


def check_user_name(text: str) -> None:
    """A name that basic authentication can carry, or nothing."""
    if ":" in text:
        raise ValueError("expected no colon in it, which ends the name in basic authentication")


def check_key_prefix(text: str) -> None:
    """What keys in a store shared with others can begin with."""
    printable = all("!" <= character <= "~" for character in text)
    if not printable or not 0 < len(text) <= _PREFIX_CHARS_MAX:
        raise ValueError(
            f"expected 1 to {_PREFIX_CHARS_MAX} printable ASCII characters without spaces, as in"
            " ah:"
        )
    if any(character in text for character in "*?[]\\"):
        raise ValueError("expected none of * ? [ ] \\ in it, because keys are searched by pattern")
    if not _HASH_TAG.fullmatch(text):
        raise ValueError("expected braces as one hash tag only, as in {ah}:")


def check_nats_urls(text: str) -> None:
    """Addresses of NATS servers with commas between, or nothing."""
    expected = (
        "expected nats://host:port or tls://host:port, several with commas between, as in"
        " nats://10.0.0.6:4222"
    )
    if not text:
        return
    for one in text.split(","):
        try:
            parts = urlsplit(one)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise ValueError(expected) from None
        if "@" in parts.netloc:
            raise ValueError("expected no login in it; the parts of one are settings of their own")
        whole = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme not in ("nats", "tls") or not is_host(host) or one != whole or not port:
            raise ValueError(expected)


def check_nats_prefix(text: str) -> None:
    """What names of streams can begin with."""
    if not _NATS_PREFIX.fullmatch(text):
        raise ValueError("expected 1 to 64 letters, digits, _ and - only, as in ah")


def check_store_url(text: str) -> None:
    """The address of a VictoriaMetrics, or nothing."""
    check_http_url(text, example="http://127.0.0.1:8428")


def check_http_url(text: str, *, example: str = "https://hub.example.com") -> None:
    """An http or https address that paths can be put behind, or nothing."""
    if not text:
        return
    expected = f"expected http:// or https:// with a host, as in {example}"
    if not text.isascii() or " " in text or "\\" in text:
        raise ValueError(f"{expected}, in printable ASCII without spaces")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"{expected}, and a port from 1 to 65535 if any") from None
    if parts.scheme not in ("http", "https") or not is_host(host):
        raise ValueError(expected)
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError(f"{expected}, and a port from 1 to 65535 if any")
    if "@" in parts.netloc:
        raise ValueError("expected no login in it; the token is a setting of its own")
    if "?" in text or "#" in text:
        raise ValueError("expected no query and no fragment in it")
