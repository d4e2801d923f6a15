"""Networks are read as ipaddress reads them, whichever way is taken."""

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahrules._networks import (
    NetworkTextError,
    canonical_network,
    network_key,
    plain_network,
    read_address,
)

groups = st.sampled_from(["0", "1", "db8", "2001", "ffff", "0db8", "DB8", "", "g", "10000", "+1"])
odd = st.tuples(
    st.lists(groups, max_size=9), st.lists(groups, max_size=5), st.sampled_from(["", "::", ":"])
).map(lambda parts: ":".join(parts[0]) + parts[2] + ":".join(parts[1]))
numbers = st.integers(0, (1 << 128) - 1) | st.lists(
    st.sampled_from([0, 0, 0, 1, 0xDB8, 0xFFFF]), min_size=8, max_size=8
).map(lambda found: sum(group << 16 * place for place, group in enumerate(found)))
addresses = numbers.map(lambda number: str(ipaddress.IPv6Address(number))) | odd
prefixes = st.sampled_from(
    ["", "/128", "/0", "/48", "/127", "/16", "/129", "/048", "/-1", "/", "/x"]
)
inside = st.tuples(numbers, st.integers(0, 128)).map(
    lambda pair: str(ipaddress.IPv6Network((pair[0] >> pair[1] << pair[1], 128 - pair[1])))
)


def slowly(text):
    """Number, length of the prefix and spelling, as ipaddress has them; None: refused."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return None
    if "%" in text:
        return None
    inner = network.network_address.ipv4_mapped
    if inner is not None and network.prefixlen >= 96:
        network = ipaddress.IPv4Network((int(inner), network.prefixlen - 96))
    alone = network.prefixlen == network.max_prefixlen
    shift = network.max_prefixlen - network.prefixlen
    key = (network.version == 6, shift), int(network.network_address) >> shift
    return str(network.network_address if alone else network), key


@given(st.tuples(addresses, prefixes).map("".join) | inside)
@example("2001:db8::/32")
@example("2001:db8::/128")
@example("1:2:3:4:5:6:7:8")
@example("1::3:4:5:6:7:8")
@example("1:0:0:2::")
@example("1::/16")
@example("::ffff:a01:203")
@example("a::b::c")
def test_a_network_of_ipv6_is_spelled_and_kept_as_ipaddress_would(text):
    expected = slowly(text)
    try:
        spelled = canonical_network(text)
    except NetworkTextError:
        spelled = None
    assert spelled == (None if expected is None else expected[0])
    if expected is not None:
        assert network_key(spelled) == expected[1]
        assert network_key(text) == expected[1]
    plain = plain_network(text)
    assert plain in (None, spelled)


@given(addresses | inside)
@example("2001:db8::1")
def test_an_address_is_the_one_that_ipaddress_reads(text):
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        assert read_address(text) is None
        return
    inner = address.ipv4_mapped
    expected = (True, int(address)) if inner is None else (False, int(inner))
    assert read_address(text) == expected


@pytest.mark.parametrize("text", ["2001:db8::/32", "2001:db8::1", "1:2:3:4:5:6:7:8", "10.1.2.3"])
def test_what_is_usual_takes_the_short_way(text):
    assert plain_network(text) == text
