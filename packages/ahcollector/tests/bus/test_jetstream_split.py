"""Batches larger than a message of NATS may be, and how much two hours of them are."""

import random

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ahcollector.bus import StoredSeries, _jetstream_split
from ahcollector.bus._entries import decode, encode
from ahcollector.bus._jetstream_split import split
from ahcollector.bus.jetstream import buffer_bytes
from ahcollector.errors import BusError
from ahcollector.testing._contracts.bus import batch_of


def noisy(seed, *lengths):
    """A batch of series of so many points that no compression makes small."""
    rng = random.Random(seed)
    series = [
        StoredSeries(
            labels=(("__name__", f"n{rng.random()}"),),
            points=tuple((rng.getrandbits(60), rng.random()) for _ in range(length)),
        )
        for length in lengths
    ]
    return attrs.evolve(batch_of(seed), series=tuple(series))


def points_of(batches):
    found = {}
    for batch in batches:
        for one in batch.series:
            found.setdefault(one.labels, []).extend(one.points)
    return found


@given(seed=st.integers(0, 99), lengths=st.lists(st.integers(0, 900), max_size=12))
@settings(max_examples=100, deadline=None)
def test_parts_are_small_and_together_they_are_the_batch_in_its_order(seed, lengths):
    batch = noisy(seed, *lengths)
    parts = split(batch, entry_bytes_max=5_000)
    assert all(len(part) <= 5_000 for part in parts)
    batches = [decode(part) for part in parts]
    assert points_of(batches) == points_of([batch])
    for one in batches:
        assert attrs.evolve(one, series=()) == attrs.evolve(batch, series=())


def test_a_batch_that_fits_is_one_entry():
    [part] = split(batch_of(7), entry_bytes_max=900_000)
    assert part == encode(batch_of(7))


def test_labels_that_alone_are_too_large_are_refused():
    labels = tuple(
        (f"n{n}", "".join(random.Random(n).choices("abcdefghij", k=300))) for n in range(40)
    )
    batch = attrs.evolve(batch_of(1), series=(StoredSeries(labels=labels, points=((1, 1.0),)),))
    with pytest.raises(BusError, match=r"labels alone are more .* 4096 bytes"):
        split(batch, entry_bytes_max=4_096)


def test_a_batch_too_large_to_be_compressed_at_once_is_cut_first(monkeypatch):
    # The bound is 64 MiB; a batch of that takes a quarter of a minute.
    monkeypatch.setattr(_jetstream_split, "PLAIN_BYTES_MAX", 50_000)
    points = tuple((n, 1.0) for n in range(5_000))
    batch = attrs.evolve(batch_of(1), series=(StoredSeries(labels=(), points=points),))
    parts = split(batch, entry_bytes_max=900_000)
    assert len(parts) == 2
    assert [point for part in parts for point in decode(part).series[0].points] == [*points]


def test_the_arithmetic_of_two_hours():
    # 1,000 agents with 300 series each, every 30 s: 10,000 points a second.
    assert buffer_bytes(points_per_second=10_000) == 1_008_000_000
    assert buffer_bytes(points_per_second=1, bytes_per_point=2.0, seconds=10) == 20
