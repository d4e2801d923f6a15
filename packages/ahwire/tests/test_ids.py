import random
import re
import subprocess
import sys
import time
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire.clock import now_ms
from ahwire.ids import UUID7Generator, is_uuid7, next_seq


class Still:
    """A clock that stands where it is put."""

    def __init__(self, seconds=1_781_518_830.0):
        self.seconds = seconds

    def time(self):
        return self.seconds

    def monotonic(self):
        return self.seconds


class Most(random.Random):
    """A generator of chance that always gives the most: the counter is used up at once."""

    def getrandbits(self, k):
        return (1 << k) - 1


def rise_on_a_frozen_clock(count):
    clock = Still()
    generator = UUID7Generator(clock, random.Random(1))
    last = ""
    for number in range(count):
        if number == count - count // 100:
            clock.seconds -= 3600
        new = generator.next()
        assert new > last
        last = new
    assert int(last[:8] + last[9:13], 16) == 1_781_518_830_000


def test_ids_in_a_frozen_millisecond_then_a_clock_an_hour_back_still_rise():
    """C24, with fewer; the million is made each night."""
    rise_on_a_frozen_clock(50_000)


@pytest.mark.nightly
def test_a_million_ids_in_a_frozen_millisecond_then_a_clock_an_hour_back_still_rise():
    """C24."""
    rise_on_a_frozen_clock(1_000_000)


def test_generators_seeded_apart_share_no_id():
    """C24."""
    clock = Still()
    first, second = (UUID7Generator(clock, random.Random(seed)) for seed in (1, 2))
    ids = [generator.next() for generator in (first, second) for _ in range(10_000)]
    assert len(set(ids)) == len(ids)


PROCESS = """
import random
from ahwire import UUID7Generator

class Still:
    def time(self):
        return 1_781_518_830.0
    def monotonic(self):
        return 0.0

generator = UUID7Generator(Still(), random.Random())
print("\\n".join(generator.next() for _ in range(5_000)))
"""


def test_two_processes_share_no_id():
    """C24: both with a clock that stands in the same millisecond."""
    running = [
        subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    lists = [process.communicate(timeout=60)[0].split() for process in running]
    assert all(ids == sorted(set(ids)) and len(ids) == 5_000 for ids in lists)
    assert not set(lists[0]) & set(lists[1])


def test_id_is_a_uuid_of_version_7_that_holds_the_time():
    text = UUID7Generator(Still(), random.Random(1)).next()
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == 1_781_518_830_000
    assert is_uuid7(text)


def test_used_up_counter_steps_the_millisecond():
    clock = Still()
    generator = UUID7Generator(clock, Most())
    ids = [generator.next()]
    # Each step is 2**32, so the upper half of the counter is set by hand to be near its end.
    generator._counter = (1 << 74) - 1
    ids += [generator.next() for _ in range(3)]
    assert ids == sorted(set(ids))
    assert uuid.UUID(ids[1]).int >> 80 == now_ms(clock) + 1


def test_clock_outside_the_48_bits_is_clamped():
    assert UUID7Generator(Still(-1.0), random.Random(1)).next().startswith("00000000-0000-7")
    assert UUID7Generator(Still(1e15), random.Random(1)).next().startswith("ffffffff-ffff-7")


def test_clock_of_the_standard_library_serves():
    generator = UUID7Generator(time, random.Random())
    assert generator.next() < generator.next()


@settings(deadline=None)
@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=50), st.integers())
def test_ids_rise_on_any_clock(seconds, seed):
    clock = Still()
    generator = UUID7Generator(clock, random.Random(seed))
    ids = []
    for second in seconds:
        clock.seconds = second
        ids.append(generator.next())
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"[0-9a-f-]{36}", text) and is_uuid7(text) for text in ids)


def test_other_uuids_are_no_uuid7():
    assert not is_uuid7(str(uuid.UUID(int=0)))
    assert not is_uuid7("0190163D-8694-739B-AEA5-966C26F8AD90")
    assert not is_uuid7("0190163d-8694-739b-aea5-966c26f8ad90\n")
    assert not is_uuid7("0190163d-8694-739b-6ea5-966c26f8ad90")


@settings(deadline=None)
@given(st.integers(), st.integers())
def test_next_seq_rises_and_follows_the_clock(now, last):
    seq = next_seq(now, last)
    assert seq > last
    assert seq >= now
    assert seq in {now, last + 1}


def test_now_ms_is_rounded():
    assert now_ms(Still(1.0006)) == 1001
    assert now_ms(Still(0.29)) == 290
