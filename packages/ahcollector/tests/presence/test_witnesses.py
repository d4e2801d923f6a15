"""What the beacons of several processes tell: dark is only when nobody was there."""

import itertools

import attrs
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.presence._beacons import after_beacon
from ahcollector.presence._witnesses import BeaconLedger, after_witness, decode, encode

T0 = 1_700_000_000.0
GOOD_FOR = 15.0


class Process:
    """One ingest process, through all its lives."""

    lives = itertools.count()

    def __init__(self, name):
        self.name = name
        self.start()

    def start(self, name=None):
        self.name = name if name is not None else self.name
        self.life = f"life-{next(self.lives)}"
        self.last = None

    def beacon(self, ledger, now):
        ledger = after_witness(
            ledger,
            life=self.life,
            name=self.name,
            now=now,
            last=self.last,
            max_age_seconds=GOOD_FOR,
        )
        self.last = now
        assert decode(encode(ledger)) == ledger
        return ledger


def row(ledger):
    return ledger.since - T0, ledger.dark_seconds


def two_processes():
    """Both wrote at second 10 and before; the row began at 0."""
    one, two = Process("one"), Process("two")
    ledger = None
    for second in (0, 5, 10):
        ledger = one.beacon(ledger, T0 + second)
        ledger = two.beacon(ledger, T0 + second)
    assert row(ledger) == (0, None)
    return one, two, ledger


def test_one_that_restarts_beside_another_makes_no_darkness():
    one, two, ledger = two_processes()
    one.start()
    ledger = one.beacon(ledger, T0 + 12)
    ledger = two.beacon(ledger, T0 + 15)
    ledger = one.beacon(ledger, T0 + 17)
    assert row(ledger) == (0, None)
    assert ledger.doubts == ()


def test_two_that_restart_together_do():
    one, two, ledger = two_processes()
    one.start()
    two.start()
    ledger = one.beacon(ledger, T0 + 12)
    ledger = two.beacon(ledger, T0 + 13)
    assert row(ledger) == (12, 2)


def test_two_that_restart_one_after_the_other_do_not():
    one, two, ledger = two_processes()
    one.start()
    ledger = one.beacon(ledger, T0 + 12)
    ledger = two.beacon(ledger, T0 + 15)
    two.start()
    ledger = two.beacon(ledger, T0 + 16)
    ledger = one.beacon(ledger, T0 + 17)
    assert row(ledger) == (0, None)


def test_a_process_under_a_new_name_is_dark_when_the_old_beacon_is_too_old():
    one = Process("one")
    ledger = one.beacon(None, T0)
    one.start("another")
    for second in (3, 8, 13):
        ledger = one.beacon(ledger, T0 + second)
    assert row(ledger) == (0, None)
    ledger = one.beacon(ledger, T0 + 18)
    assert row(ledger) == (3, 3)


def test_when_the_other_died_for_good_the_darkness_is_found_within_the_life_of_its_beacon():
    one, _, ledger = two_processes()
    one.start()
    for second in (12, 17, 22):
        ledger = one.beacon(ledger, T0 + second)
    assert row(ledger) == (0, None)
    ledger = one.beacon(ledger, T0 + 27)
    assert row(ledger) == (12, 2)


def test_a_newcomer_is_no_witness_of_what_was_before_it():
    one, two, ledger = two_processes()
    one.start()
    two.start()
    third = Process("three")
    ledger = third.beacon(ledger, T0 + 12)
    ledger = third.beacon(ledger, T0 + 17)
    ledger = one.beacon(ledger, T0 + 18)
    ledger = two.beacon(ledger, T0 + 19)
    assert row(ledger) == (12, 2)


def test_after_hours_without_anybody_the_length_is_told():
    one, two, ledger = two_processes()
    ledger = two.beacon(ledger, T0 + 3_610)
    assert row(ledger) == (3_610, 3_600)
    ledger = one.beacon(ledger, T0 + 3_611)
    assert row(ledger) == (3_610, 3_600)


def test_a_process_whose_clock_is_an_hour_ahead_neither_blinds_nor_flaps():
    """C17."""
    one, two, ledger = two_processes()
    rows = set()
    for second in range(15, 600, 5):
        ledger = one.beacon(ledger, T0 + second)
        ledger = two.beacon(ledger, T0 + second + 3_600)
        assert ledger.sight(T0 + second).at == T0 + second
        assert ledger.sight(T0 + second + 3_600).at == T0 + second + 3_600
        rows.add(ledger.since)
    assert len(rows) <= 3


def test_a_crash_loop_is_bounded():
    ledger = Process("steady").beacon(None, T0)
    for number in range(300):
        ledger = Process(f"p{number}").beacon(ledger, T0 + number / 100)
    assert len(ledger.doubts) <= 16
    assert len(ledger.witnesses) <= 129
    assert ledger.since > T0


def test_what_cannot_be_read_is_no_ledger():
    for damaged in (b"", b"17", b"{}", b"[1]", b'{"at": 1}', b"\xff", b"null"):
        assert decode(damaged) is None


@given(st.lists(st.tuples(st.sampled_from([0, 1, 5, 15, 15.5, 60, -3_600]), st.booleans())))
def test_of_one_process_they_tell_what_they_always_told(beacons):
    process, ledger, sight = Process("one"), None, None
    now = T0
    for seconds, restarts in beacons:
        now += seconds
        if restarts:
            process.start()
        first = process.last is None
        ledger = process.beacon(ledger, now)
        sight = after_beacon(sight, now, GOOD_FOR, first=first)
        assert ledger.sight(now) == sight


@attrs.frozen(kw_only=True)
class Was:
    """When a process lived: from its first beacon to its last."""

    name: str
    first: float
    last: float


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 12)),
        min_size=1,
        max_size=8,
    )
)
def test_a_row_is_as_long_as_somebody_was_always_there(lives):
    """Against a plain walk over the seconds, asked when all old beacons are too old."""
    beacons, was, busy = [], [], {}
    for name, begin, count in sorted(lives, key=lambda life: life[1]):
        begin = max(begin, busy.get(name, 0))
        seconds = [begin + 5 * number for number in range(count + 1)]
        busy[name] = seconds[-1] + 1
        was.append(Was(name=name, first=begin, last=seconds[-1]))
        process = Process(str(name))
        beacons += [(second, name, process) for second in seconds]
    end = max(second for second, _, _ in beacons)
    last = Process("last")
    # Four beacons: after them every other one is too old.
    tail = [(end + 2.5 + 5 * number, 9, last) for number in range(5)]
    ledger: BeaconLedger | None = None
    for second, _, process in sorted(beacons, key=lambda one: one[:2]) + tail:
        ledger = process.beacon(ledger, T0 + second)
    starts = sorted({one.first for one in was} | {tail[0][0]})
    reached, since = starts[0], starts[0]
    for start in starts:
        reached = max([reached] + [one.last for one in was if one.first < start])
        if not any(one.first < start <= one.last for one in was) and start > reached:
            since = start
    assert ledger.since == T0 + since
