"""The collector's address: which are accepted, and why not the others."""

import ipaddress
import re
from urllib.parse import urlsplit

from ahwal.errors import ConfigError
from ahwal.transport._token import Secret

API_PATH = "/agent/v1"
_HEADER_TEXT = re.compile(r"[\x20-\x7e]*")


def check_collector_url(url: str, *, allow_plain_http: bool = False) -> str:
    """Return the address with the path of the agent API behind it, without a final slash.

    Raises:
        ConfigError: It is not an http(s) address, holds a user name or password, or is plain http
            to another machine without `allow_plain_http`.
    """
    check_flag("allow_plain_http", allow_plain_http)
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            "collector_url must be an address like https://collector.example:8443 "
            f"(is {without_credentials(url)!r})"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError("collector_url must not hold a user name or password; remove them")
    if parts.query or parts.fragment:
        raise ConfigError("collector_url must not have a query or fragment; remove it")
    if parts.scheme == "http" and not allow_plain_http and not is_loopback(host):
        raise ConfigError(
            f"collector_url {url!r} would send the token in clear; use https://, or set "
            "allow_plain_http: true if the network in between is yours"
        )
    path = parts.path.rstrip("/")
    if not path.endswith(API_PATH):
        path += API_PATH
    return f"{parts.scheme}://{parts.netloc}{path}"


def check_proxy_url(url: Secret) -> str:
    """Return the proxy's address, which may hold a password.

    Raises:
        ConfigError: It is not an http(s) address. Neither the text nor the variables of the frames
            in its traceback show it.
    """
    if not _is_proxy_url(url):
        raise ConfigError("proxy_url must be an address like http://proxy.example:3128")
    return url.reveal().strip()


def check_flag(name: str, value: object) -> None:
    """Refuse what is no truth value: `"false"` would count as true.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; valid is True or False")


def check_arguments(
    collector_url: object,
    token: object,
    send_timeout_seconds: object,
    http2: object,
    user_agent: object,
) -> None:
    """Refuse arguments of a client that are of a wrong type.

    Raises:
        ConfigError: One is; secrets are not shown.
    """
    if not isinstance(collector_url, str):
        raise ConfigError(f"collector_url is {collector_url!r}; valid is a text like https://host")
    if token is not None and not isinstance(token, Secret):
        raise ConfigError(f"token is of the type {type(token).__name__}; valid is a text")
    number = isinstance(send_timeout_seconds, (int, float)) and send_timeout_seconds > 0
    if not number or isinstance(send_timeout_seconds, bool):
        raise ConfigError(
            f"send_timeout_seconds is {send_timeout_seconds!r}; valid is a number above 0"
        )
    check_flag("http2", http2)
    if user_agent is not None and (
        not isinstance(user_agent, str) or not _HEADER_TEXT.fullmatch(user_agent)
    ):
        raise ConfigError(f"user_agent is {user_agent!r}; valid is a text of visible ASCII")


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by its literal name or address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_credentials(url: str) -> str:
    """Return an address fit for a log line: the part before an `@` is masked."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{scheme}{separator}{'***@' if at else ''}{host}{slash}{path}"


def _is_proxy_url(url: Secret) -> bool:
    if not isinstance(url.reveal(), str):
        return False
    try:
        parts = urlsplit(url.reveal().strip())
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
