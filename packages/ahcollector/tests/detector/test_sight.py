"""The rules of blindness, as a table of what is seen and what may be done."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.detector._sight import SightRules, observe, store_failed
from ahcollector.presence import IngestSight

RULES = SightRules(agent_interval_seconds=30, scan_interval_seconds=10, beacon_max_age_seconds=15)
T0 = 1_700_000_000.0


def beacons(at, since=T0 - 1_000, dark=None):
    return IngestSight(at=at, since=since, dark_seconds=dark)


def seeing(wall=T0, steady=0.0, since=T0 - 1_000):
    """A detector that has been looking on for long."""
    sight, _ = observe(
        None, wall=wall - 10, steady=steady - 1_000, beacons=beacons(wall - 10, since), rules=RULES
    )
    sight, _ = observe(sight, wall=wall, steady=steady, beacons=beacons(wall, since), rules=RULES)
    sight, judgement = observe(
        sight, wall=wall, steady=steady, beacons=beacons(wall, since), rules=RULES
    )
    assert judgement.grace is None
    assert judgement.may_declare
    return sight


def test_a_calm_scan_declares_without_a_grace():
    sight, judgement = observe(
        seeing(), wall=T0 + 10, steady=10.0, beacons=beacons(T0 + 8), rules=RULES
    )
    assert (judgement.may_declare, judgement.blind, judgement.grace) == (True, False, None)
    assert sight.blind_since is None


def test_nothing_is_declared_in_the_first_two_intervals():
    sight = None
    declared = []
    for second in range(0, 100, 10):
        sight, judgement = observe(
            sight, wall=T0 + second, steady=second, beacons=beacons(T0 + second), rules=RULES
        )
        declared.append(judgement.may_declare)
    assert declared == [False] * 6 + [True] * 4


@pytest.mark.parametrize(
    ("beacon", "blind"), [(None, True), (beacons(T0 - 5), False), (beacons(T0 - 5.01), True)]
)
def test_blind_without_a_fresh_beacon(beacon, blind):
    _, judgement = observe(seeing(), wall=T0 + 10, steady=10.0, beacons=beacon, rules=RULES)
    assert judgement.blind is blind
    assert judgement.may_declare is not blind


def test_a_blindness_ends_with_a_grace_for_its_length():
    sight = seeing()
    for second in (20, 30, 40):
        sight, _ = observe(sight, wall=T0 + second, steady=second, beacons=beacons(T0), rules=RULES)
    sight, judgement = observe(
        sight,
        wall=T0 + 50,
        steady=50.0,
        beacons=beacons(T0 + 48, since=T0 + 48, dark=48),
        rules=RULES,
    )
    assert judgement.grace is not None
    assert (judgement.grace.ended_at, judgement.grace.seconds) == (T0 + 50, 50)
    assert judgement.may_declare
    _, judgement = observe(
        sight, wall=T0 + 60, steady=60.0, beacons=beacons(T0 + 58, since=T0 + 48), rules=RULES
    )
    assert judgement.grace is None


def test_a_gap_of_beacons_between_two_scans_is_seen_afterwards():
    _, judgement = observe(
        seeing(),
        wall=T0 + 10,
        steady=10.0,
        beacons=beacons(T0 + 9, since=T0 + 4, dark=16),
        rules=RULES,
    )
    assert judgement.grace is not None
    assert (judgement.grace.ended_at, judgement.grace.seconds) == (T0 + 4, 16)


def test_a_collector_that_was_off_was_blind():
    """C14: the first observation pardons the time before the process."""
    _, judgement = observe(
        None, wall=T0, steady=0.0, beacons=beacons(T0 - 1, since=T0 - 1, dark=900), rules=RULES
    )
    assert judgement.grace is not None
    assert (judgement.grace.ended_at, judgement.grace.seconds) == (T0 - 1, 900)


def test_without_a_record_the_longest_blindness_is_assumed():
    _, judgement = observe(
        None, wall=T0, steady=0.0, beacons=beacons(T0, since=T0, dark=None), rules=RULES
    )
    assert judgement.grace is not None
    assert judgement.grace.seconds == math.inf


@pytest.mark.parametrize("step", [-3_600, 3_600, 13 * 3_600, -31, 31])
def test_a_step_of_the_wall_clock_is_a_blindness(step):
    """C17, with the beacons already on the new clock."""
    wall = T0 + 10 + step
    _, judgement = observe(seeing(), wall=wall, steady=10.0, beacons=beacons(wall), rules=RULES)
    assert judgement.grace is not None
    assert judgement.grace.ended_at == wall
    assert judgement.grace.seconds == max(10.0, 10.0 + step)


@pytest.mark.parametrize("step", [-3_600, 3_600, 13 * 3_600])
def test_after_a_step_beacons_of_the_old_clock_leave_it_blind(step):
    sight, judgement = observe(
        seeing(), wall=T0 + 10 + step, steady=10.0, beacons=beacons(T0 + 9), rules=RULES
    )
    assert judgement.blind
    _, judgement = observe(
        sight,
        wall=T0 + 20 + step,
        steady=20.0,
        beacons=beacons(T0 + 19 + step),
        rules=RULES,
    )
    assert judgement.grace is not None
    assert judgement.grace.ended_at == T0 + 20 + step
    assert judgement.grace.seconds >= 20


def test_a_detector_that_stood_still_was_blind():
    """SIGSTOP: the beacon may have been written again before the detector looks."""
    _, judgement = observe(
        seeing(), wall=T0 + 600, steady=600.0, beacons=beacons(T0 + 600), rules=RULES
    )
    assert judgement.grace is not None
    assert judgement.grace.seconds == 600


def test_a_store_that_failed_is_pardoned_when_it_answers():
    """C15."""
    sight = seeing()
    for second in range(10, 600, 10):
        sight = store_failed(sight, wall=T0 + second, steady=float(second))
    _, judgement = observe(
        sight, wall=T0 + 600, steady=600.0, beacons=beacons(T0 + 599), rules=RULES
    )
    assert judgement.grace is not None
    assert (judgement.grace.ended_at, judgement.grace.seconds) == (T0 + 600, 600)


def test_a_store_that_fails_from_the_start_is_pardoned_too():
    sight = store_failed(None, wall=T0, steady=0.0)
    _, judgement = observe(sight, wall=T0 + 10, steady=10.0, beacons=beacons(T0 + 10), rules=RULES)
    assert judgement.grace is not None


observations = st.lists(
    st.tuples(
        st.floats(0.1, 100),  # steady time that passes
        st.sampled_from([0.0, 0.0, 0.0, -3_600.0, 3_600.0, 20.0]),  # step of the wall clock
        st.sampled_from(["beacon", "beacon", "no beacon", "store fails", "grace fails"]),
    ),
    max_size=30,
)


@given(observations)
def test_between_a_blindness_and_the_next_declaration_there_is_a_grace(steps):
    """The law of the module, over everything that can be seen."""
    wall, steady = T0, 0.0
    sight, owed = None, True
    row, at = T0, T0
    for passed, step, what in steps:
        steady += passed
        wall += passed + step
        stood_still = passed > 25
        if abs(step) > 30 or stood_still or what in {"no beacon", "store fails"}:
            owed = True
        if what == "store fails":
            sight = store_failed(sight, wall=wall, steady=steady)
            continue
        if what != "no beacon":
            if not 0 <= wall - at <= 15:
                row = wall
                owed = True
            at = wall
        else:
            at = min(at, wall - 16)
        after, judgement = observe(
            sight,
            wall=wall,
            steady=steady,
            beacons=IngestSight(at=at, since=row, dark_seconds=16.0),
            rules=RULES,
        )
        if judgement.grace is not None:
            if what == "grace fails":
                owed = True
                continue
            owed = False
        sight = after
        assert not (judgement.blind and judgement.may_declare)
        assert not (judgement.may_declare and owed)
