"""The collector's address: which are accepted, and why not the others."""

import ipaddress
from urllib.parse import urlsplit

from ahwal.errors import ConfigError
from ahwal.transport._token import Secret

API_PATH = "/agent/v1"


def check_collector_url(url: str, *, allow_plain_http: bool = False) -> str:
    """Return the address with the path of the agent API behind it, without a final slash.

    Raises:
        ConfigError: It is not an http(s) address, holds a user name or password, or is plain http
        to
            another machine without `allow_plain_http`.
    """
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
    try:
        parts = urlsplit(url.reveal().strip())
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
