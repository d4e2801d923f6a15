"""Shards are part of the contract between processes, so their numbers are fixed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector import shard_for
from ahcollector.bus import SHARDS


@pytest.mark.parametrize(
    ("server_id", "digest"),
    # Published test vectors of FNV-1a 32.
    [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)],
)
def test_the_shard_is_fnv_1a_modulo_64(server_id, digest):
    assert shard_for(server_id) == digest % 64


@given(st.text())
def test_every_id_has_a_shard(server_id):
    if server_id.isprintable():
        assert 0 <= shard_for(server_id) < SHARDS


def test_servers_are_spread_evenly():
    counts = [0] * SHARDS
    for number in range(6_400):
        counts[shard_for(f"server-{number}")] += 1
    assert min(counts) > 50
    assert max(counts) < 200
