"""A trouble that lasts is told at its beginning, once a minute, and at its end."""

import logging
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ahcollector._trouble import Trouble

STEPS = st.lists(st.tuples(st.booleans(), st.floats(0, 90)), max_size=60)


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.told = []

    def emit(self, record):
        self.told.append((record.getMessage(), getattr(record, "times", None)))


def told_of(steps):
    """What is told of steps of (is it there, seconds until the next); and when."""
    lines = Lines()
    log = logging.Logger("trouble")  # noqa: LOG001  # one of its own, that nobody else hears
    log.addHandler(lines)
    trouble, now, at = Trouble(log, "begins", "ends"), 0.0, []
    for there, seconds in steps:
        before = len(lines.told)
        if there:
            assert trouble.goes_on(now, {"error": "x"}) is (len(lines.told) > before)
        else:
            trouble.is_over()
        at += [now] * (len(lines.told) - before)
        now += seconds
    return lines.told, at


@given(STEPS)
def test_it_is_told_once_a_minute_and_no_occurrence_is_left_out_of_the_numbers(steps):
    told, at = told_of([*steps, (False, 100), (True, 0), (False, 0)])
    begins = [moment for (what, _), moment in zip(told, at, strict=True) if what == "begins"]
    assert all(later - earlier >= 60 for earlier, later in pairwise(begins))
    counted = sum(
        (1 if what == "begins" else 0) if times is None else times for what, times in told
    )
    assert counted == sum(there for there, _ in steps) + 1
    assert told[-1][0] == "ends"
    kinds = [what for what, _ in told]
    assert ("ends", "ends") not in pairwise(kinds)


def test_a_line_for_many_says_how_many():
    told, _ = told_of([*[(True, 1)] * 100, (False, 0)])
    assert told == [("begins", None), ("begins", 60), ("ends", 39)]
