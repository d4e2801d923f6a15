"""Addresses and networks as a person writes them.

An IPv4 address inside IPv6 (`::ffff:10.1.2.3`) is that IPv4 address, everywhere. A network with
bits set behind its prefix (`10.1.2.3/8`) is refused, because it says two things: the one address,
or the whole network.
"""

import ipaddress
from functools import lru_cache
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_MAPPED_BITS: Final = 96


class NetworkTextError(ValueError):
    """A text is no address or network; the message says why and what to write."""


def read_network(text: object) -> Network:
    """Return the network that a text names; an address is the network of itself alone.

    Raises:
        NetworkTextError: The text names none.
    """
    # ipaddress takes numbers, and True for 0.0.0.1: only text can be meant.
    if not isinstance(text, str):
        raise NetworkTextError(f"{text!r} is not a text; write an address such as '10.1.2.3'")
    if "%" in text:
        raise NetworkTextError(
            f"{text!r} has a scope, which events of other hosts do not share; leave it out"
        )
    try:
        return _plain(ipaddress.ip_network(text))
    except ValueError:
        pass
    try:
        loose = _plain(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise NetworkTextError(
            f"{text[:64]!r} is no IP address or network;"
            " write it as 10.1.2.3, 10.1.0.0/16 or 2001:db8::/32"
        ) from None
    raise NetworkTextError(
        f"{text[:64]!r} has bits behind its prefix;"
        f" write {loose} for the network or the bare address for the host"
    )


def write_network(network: Network) -> str:
    """Return a network's one spelling; a network of one address is written as that address."""
    alone = network.prefixlen == network.max_prefixlen
    return str(network.network_address if alone else network)


@lru_cache(maxsize=4096)
def read_address(text: object) -> Address | None:
    """Return the address that an event's text names, or None if it names none."""
    if not isinstance(text, str):
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def _plain(network: Network) -> Network:
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        inner = int(network.network_address) & 0xFFFFFFFF
        return ipaddress.IPv4Network((inner, network.prefixlen - _MAPPED_BITS))
    return network
