"""Headers are read by pure functions: formats, etags, addresses."""

import re
from ipaddress import ip_network
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector._request_ids import request_id
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._headers import (
    Format,
    answer_format,
    body_format,
    client_ip,
    etag_matches,
    ip_key,
    token_hash,
)

PROTO, JSON = Format.PROTOBUF, Format.JSON
TRUSTED = [ip_network("10.0.0.0/8"), ip_network("::1/128")]


@pytest.mark.parametrize(
    ("accept", "content_type", "form"),
    [
        (None, None, PROTO),
        (None, "application/json", JSON),
        ("*/*", "application/json; charset=utf-8", JSON),
        ("application/json", None, JSON),
        ("application/x-protobuf", "application/json", PROTO),
        ("application/json;q=0.5, application/x-protobuf", None, PROTO),
        ("application/json;q=x, */*;q=0.1", None, PROTO),
        ("text/html", "application/json", JSON),
        ("application/*", None, PROTO),
    ],
)
def test_the_answer_comes_in_what_the_caller_reads_best(accept, content_type, form):
    assert answer_format(accept, content_type) is form


@given(st.text(max_size=200), st.text(max_size=50))
def test_no_header_makes_an_exception(accept, other):
    assert answer_format(accept, other) in Format
    etag_matches(accept, "abc")
    client_ip(other, accept, TRUSTED)
    assert len(ip_key(other)) <= 64
    assert re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", request_id(accept, Random(1)))
    for read in (body_format, token_hash):
        try:
            read(accept)
        except RequestRefusedError:
            continue


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", "1.1.1.1", "192.0.2.1"),
        ("10.1.1.1", None, "10.1.1.1"),
        ("10.1.1.1", "1.1.1.1", "1.1.1.1"),
        ("10.1.1.1", "6.6.6.6, 1.1.1.1, 10.2.2.2", "1.1.1.1"),
        ("10.1.1.1", "evil, 10.2.2.2", "10.2.2.2"),
        ("10.1.1.1", "1.1.1.1,,10.2.2.2", "10.2.2.2"),
        ("::1", "2001:db8::5", "2001:db8::5"),
        (None, "1.1.1.1", ""),
    ],
)
def test_only_our_own_proxies_are_believed(peer, forwarded, address):
    assert client_ip(peer, forwarded, TRUSTED) == address


def test_an_ipv6_network_is_one_client():
    assert ip_key("2001:db8::1") == ip_key("2001:db8::ffff:1") != ip_key("2001:db8:0:1::1")
    assert ip_key("192.0.2.1") != ip_key("192.0.2.2")
    assert ip_key("unix:") == "unix:"
