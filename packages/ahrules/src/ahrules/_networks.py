"""Addresses and networks as a person writes them, and tables of networks.

An IPv4 address inside IPv6 (`::ffff:10.1.2.3`) is that IPv4 address, everywhere. A network with
bits set behind its prefix (`10.1.2.3/8`) is refused, because it says two things: the one address,
or the whole network. So is an octet with leading zeros (`010.1.2.3`), which some programs read as
octal.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

from ahrules._reading import wrong

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

NetworkKey: TypeAlias = tuple[tuple[bool, int], int]
"""A network as tables keep it: whether it is one of IPv6, by how much its addresses' numbers are to
be shifted, and the number that all of them are then."""

_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_MAPPED_BITS: Final = 96
_TEXT_CHARS_MAX: Final = 128

# Each octet in the one spelling it has; looking four of them up is several times faster than
# ipaddress, and what is not found here is asked there.
_OCTETS: Final = {str(number): number for number in range(256)}
_PREFIXES: Final = {str(number): number for number in range(33)}
_PREFIXES_V6: Final = {str(number): number for number in range(129)}
_GROUPS_V6: Final = 8
_is_group: Final = re.compile("[1-9a-f][0-9a-f]{0,3}").fullmatch


class NetworkTextError(ValueError):
    """A text is no address or network; the message says why and what to write."""


def canonical_network(text: object) -> str:
    """Return the one spelling of the network that a text names; one address alone has no prefix.

    Raises:
        NetworkTextError: The text names none.
    """
    plain = plain_network(text)
    if plain is not None:
        return plain
    network = _read_network(text)
    alone = network.prefixlen == network.max_prefixlen
    return str(network.network_address if alone else network)


def plain_network(text: object) -> str | None:
    """Return the one spelling of a text that is plainly a network; else None."""
    if type(text) is not str:
        return None
    if _plain_ipv4(text) is not None:
        return text.removesuffix("/32")
    return None if _plain_ipv6(text) is None else text.removesuffix("/128")


def network_key(text: str) -> NetworkKey:
    """Return the network that a text of `canonical_network` names."""
    plain = _plain_ipv4(text)
    if plain is not None:
        number, shift = plain
        return (False, shift), number >> shift
    plain = _plain_ipv6(text)
    if plain is not None:
        number, shift = plain
        return (True, shift), number >> shift
    network = _read_network(text)
    shift = network.max_prefixlen - network.prefixlen
    return (network.version == 6, shift), int(network.network_address) >> shift


def ipv4_number(text: object) -> int | None:
    """Return an IPv4 address in its usual spelling as a number, or None for anything else."""
    if type(text) is not str:
        return None
    try:
        first, second, third, fourth = text.split(".")
        return _OCTETS[first] << 24 | _OCTETS[second] << 16 | _OCTETS[third] << 8 | _OCTETS[fourth]
    except (ValueError, KeyError):
        return None


def read_address(text: object) -> tuple[bool, int] | None:
    """Return whether a text names an IPv6 address, and the address's number; None if it is none."""
    number = ipv4_number(text)
    if number is not None:
        return False, number
    # The longest address with a scope is shorter; ipaddress would quote a long text in its error.
    if not isinstance(text, str) or len(text) > _TEXT_CHARS_MAX:
        return None
    plain = _plain_ipv6(text)
    if plain is not None and "/" not in text:
        return True, plain[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else address
    return (True, int(address)) if inner is None else (False, int(inner))


class Networks:
    """A set of networks; asking it takes one look-up for each length of prefix in it."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Keep networks, spelled as `canonical_network` does."""
        self._numbers: dict[tuple[bool, int], set[int]] = {}
        for text in texts:
            kind, number = network_key(text)
            self._numbers.setdefault(kind, set()).add(number)

    def hold(self, text: object) -> bool:
        """Tell whether one of the networks has the address that a text names, if it names one."""
        address = read_address(text)
        if address is None:
            return False
        is_v6, number = address
        return any(
            is_v6 is table_is_v6 and number >> shift in numbers
            for (table_is_v6, shift), numbers in self._numbers.items()
        )


@frozen(eq=False, kw_only=True)
class Spans:
    """Which lengths of prefix are worth a look-up for an address of one version.

    Networks that are no wider than some bound are known by the first bits of their addresses, so
    that an address far from all of them costs one look-up whatever lengths there are. One that was
    taken out again may leave its length behind: a look-up too many, and no more than that. For an
    address, `wide + narrow.get(number >> top_shift, ())` are the shifts to look it up with.

    Attributes:
        top_shift: An address's number shifted by this are its first bits.
        wide: The shifts of networks that are wider.
        narrow: The shifts of the others, by their first bits.
    """

    top_shift: int
    wide: tuple[int, ...] = ()
    narrow: Mapping[int, tuple[int, ...]] = field(factory=dict)

    def extended(self, shift: int, numbers: Iterable[int]) -> "Spans":
        """Return these with networks put in, given as `NetworkKey` has them."""
        if shift > self.top_shift:
            wide = tuple(sorted({*self.wide, shift}))
            return Spans(top_shift=self.top_shift, wide=wide, narrow=self.narrow)
        narrow = dict(self.narrow)
        for top in {number >> (self.top_shift - shift) for number in numbers}:
            shifts = narrow.get(top, ())
            if shift not in shifts:
                narrow[top] = (*shifts, shift)
        return Spans(top_shift=self.top_shift, wide=self.wide, narrow=narrow)


NO_SPANS: Final = (Spans(top_shift=16), Spans(top_shift=96))
"""Those of IPv4 and of IPv6, without a network."""


def _plain_ipv4(text: str) -> tuple[int, int] | None:
    """Return number and shift of an IPv4 network in its usual spelling and without fault."""
    address, slash, prefix = text.partition("/")
    number = ipv4_number(address)
    bits = _PREFIXES.get(prefix) if slash else 32
    if number is None or bits is None or number & ((1 << 32 - bits) - 1):
        return None
    return number, 32 - bits


def _plain_ipv6(text: str) -> tuple[int, int] | None:
    """Return number and shift of a network of IPv6 that is in its one spelling and without fault.

    Only of those that begin with a group and have no group that is 0 but where `::` stands for two
    or more of them: the others are asked of ipaddress, which takes ten times as long.
    """
    address, slash, prefix = text.partition("/")
    head, gap, tail = address.partition("::")
    heads, tails = head.split(":"), tail.split(":") if tail else []
    missing = _GROUPS_V6 - len(heads) - len(tails)
    bits = _PREFIXES_V6.get(prefix) if slash else 128
    if bits is None or (missing < 2 if gap else missing) or not all(map(_is_group, heads + tails)):
        return None
    number = 0
    for group in heads:
        number = number << 16 | int(group, 16)
    number <<= 16 * missing
    for group in tails:
        number = number << 16 | int(group, 16)
    return None if number & ((1 << 128 - bits) - 1) else (number, 128 - bits)


def _read_network(text: object) -> Network:
    # ipaddress takes numbers, and True for 0.0.0.1: only text can be meant.
    if not isinstance(text, str):
        way_out = "write an address such as '10.1.2.3'"
        raise NetworkTextError(wrong(text, "is not a text", way_out))
    if len(text) <= _TEXT_CHARS_MAX:
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
            pass
        else:
            raise NetworkTextError(
                f"{text[:64]!r} has bits behind its prefix;"
                f" write {loose} for the network or the bare address for the host"
            )
    raise NetworkTextError(
        f"{text[:64]!r} is no IP address or network;"
        " write it as 10.1.2.3, 10.1.0.0/16 or 2001:db8::/32"
    )


def _plain(network: Network) -> Network:
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        inner = int(network.network_address) & 0xFFFFFFFF
        return ipaddress.IPv4Network((inner, network.prefixlen - _MAPPED_BITS))
    return network
