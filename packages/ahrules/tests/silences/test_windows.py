"""Recurring windows over all zones, against a model that walks the minutes of the wall clock."""

import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import InstantError, UnknownZoneError, load_zone, windows_between, zone_names
from ahrules.silences._window import WallWindow
from ahwire.hub import Recurrence, Weekday

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAYS = list(Weekday)
EVERY_DAY = tuple(Weekday)
# Changes of the clock, which are hardly hit by chance.
CHANGES = {
    "Europe/Berlin": [(2026, 3, 29, 1), (2026, 10, 25, 1)],
    "America/New_York": [(2026, 3, 8, 7), (2026, 11, 1, 6)],
    "Australia/Lord_Howe": [(2026, 4, 4, 15), (2026, 10, 3, 15)],
    "Asia/Tehran": [(2021, 3, 21, 20), (2021, 9, 21, 19)],
    "Africa/Casablanca": [(2026, 2, 15, 2), (2026, 3, 22, 2)],
    "Africa/Monrovia": [(1972, 1, 7, 0)],
    "Pacific/Apia": [(2011, 12, 30, 10), (2012, 3, 31, 14)],
    "America/Sao_Paulo": [(2018, 11, 4, 3), (2018, 2, 18, 2)],
    "Asia/Pyongyang": [(2015, 8, 14, 15), (2018, 5, 4, 15)],
}


def every(from_, to, zone="Europe/Berlin", days=EVERY_DAY):
    return Recurrence(weekdays=days, from_=from_, to=to, timezone=zone)


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def shown(recurrence, start, end):
    return [
        f"{each.start:%d %H:%M}-{each.end:%d %H:%M}"
        for each in windows_between(recurrence, start, end)
    ]


def is_inside(recurrence, instant):
    """What a person would answer who looks at a clock on the wall and at a calendar."""
    local = instant.astimezone(load_zone(recurrence.timezone))
    hands = f"{local:%H:%M}"
    today = DAYS[local.weekday()] in recurrence.weekdays
    yesterday = DAYS[local.weekday() - 1] in recurrence.weekdays
    if recurrence.from_ < recurrence.to:
        return today and recurrence.from_ <= hands < recurrence.to
    return (today and hands >= recurrence.from_) or (yesterday and hands < recurrence.to)


times = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59)) | st.sampled_from(
    ["00:00", "02:00", "02:30", "03:00", "03:30", "23:00", "23:59"]
)
zones = st.sampled_from(sorted(CHANGES)) | st.sampled_from(sorted(zone_names()))
weekdays = st.just(EVERY_DAY) | st.lists(
    st.sampled_from(DAYS), min_size=1, max_size=7, unique=True
).map(tuple)
recurrences = st.builds(Recurrence, weekdays=weekdays, from_=times, to=times, timezone=zones)
anywhen = st.datetimes(datetime(1970, 1, 2), datetime(2100, 12, 1), timezones=st.just(UTC))


@st.composite
def cases(draw):
    recurrence = draw(recurrences)
    changes = CHANGES.get(recurrence.timezone)
    if changes and draw(st.booleans()):
        shift = draw(st.timedeltas(timedelta(hours=-50), timedelta(hours=2)))
        return recurrence, utc(*draw(st.sampled_from(changes))) + shift
    return recurrence, draw(anywhen)


@given(cases())
def test_windows_hold_exactly_the_minutes_that_the_wall_clock_says(case):
    recurrence, start = case
    start = start.replace(second=0, microsecond=0)
    end = start + timedelta(hours=25)
    windows = windows_between(recurrence, start, end)
    wall = WallWindow.of(recurrence)
    inside = {
        start + index * MINUTE
        for window in windows
        for index in range(-((start - window.start) // MINUTE), -((start - window.end) // MINUTE))
    }
    for index in range(25 * 60):
        minute = start + index * MINUTE
        expected = is_inside(recurrence, minute)
        assert (minute in inside) is expected, minute
        assert wall.holds((minute - EPOCH) // timedelta(seconds=1)) is expected, minute


@given(cases())
def test_windows_are_in_order_apart_and_never_empty_and_their_edges_are_exact(case):
    recurrence, start = case
    start = start.replace(microsecond=0)
    end = start + timedelta(days=15)
    windows = windows_between(recurrence, start, end)
    previous = None
    for window in windows:
        assert start <= window.start < window.end <= end
        assert previous is None or previous < window.start
        assert is_inside(recurrence, window.start)
        assert is_inside(recurrence, window.end - timedelta(seconds=1))
        assert window.end == end or not is_inside(recurrence, window.end)
        assert window.start == start or not is_inside(
            recurrence, window.start - timedelta(seconds=1)
        )
        previous = window.end


@given(cases(), st.integers(0, 86_400))
def test_the_next_edge_is_the_first_change_and_nothing_changes_before_it(case, shift):
    recurrence, start = case
    second = (start - EPOCH) // timedelta(seconds=1) + shift
    wall = WallWindow.of(recurrence)
    edge = wall.next_edge(second)
    if edge is None:
        assert len(recurrence.weekdays) == 7
        assert recurrence.from_ == recurrence.to
        return
    here = wall.holds(second)
    assert wall.holds(edge) is not here
    assert wall.holds(edge - 1) is here
    for part in range(1, 40):
        assert wall.holds(second + (edge - 1 - second) * part // 40) is here


def test_a7_a_window_in_the_hour_that_is_skipped_keeps_what_exists_of_it():
    # 2026-03-29: 02:00 to 03:00 does not exist in Berlin; 03:00 to 03:30 is 01:00Z to 01:30Z.
    day = utc(2026, 3, 28, 12), utc(2026, 3, 29, 12)
    assert shown(every("02:30", "03:30"), *day) == ["29 01:00-29 01:30"]
    assert shown(every("02:00", "03:00"), *day) == []
    assert shown(every("01:30", "02:30"), *day) == ["29 00:30-29 01:00"]
    assert shown(every("01:00", "04:00"), *day) == ["29 00:00-29 02:00"]


def test_a7_a_window_in_the_hour_that_comes_twice_holds_both_passes():
    # 2026-10-25: 02:00 to 03:00 comes twice in Berlin, from 00:00Z and from 01:00Z.
    day = utc(2026, 10, 24, 12), utc(2026, 10, 25, 12)
    assert shown(every("02:30", "03:30"), *day) == ["25 00:30-25 01:00", "25 01:30-25 02:30"]
    assert shown(every("02:00", "03:00"), *day) == ["25 00:00-25 02:00"]
    assert shown(every("01:30", "02:30"), *day) == ["24 23:30-25 00:30", "25 01:00-25 01:30"]
    assert shown(every("01:00", "04:00"), *day) == ["24 23:00-25 03:00"]


def test_a7_a_window_across_midnight_belongs_to_the_day_it_begins_on():
    saturday = every("23:00", "01:00", days=(Weekday.SAT,))
    # 2026-06-13 is a Saturday; Berlin is two hours ahead.
    assert shown(saturday, utc(2026, 6, 10), utc(2026, 6, 20)) == ["13 21:00-13 23:00"]
    # Over the nights in which clocks change: an hour less, an hour more.
    night = every("22:00", "04:00", days=(Weekday.SAT,))
    assert shown(night, utc(2026, 3, 28), utc(2026, 3, 30)) == ["28 21:00-29 02:00"]
    assert shown(night, utc(2026, 10, 24), utc(2026, 10, 26)) == ["24 20:00-25 03:00"]


def test_from_equal_to_is_a_whole_day_of_the_wall_clock():
    sunday = every("00:00", "00:00", days=(Weekday.SUN,))
    assert shown(sunday, utc(2026, 6, 12), utc(2026, 6, 20)) == ["13 22:00-14 22:00"]
    assert shown(sunday, utc(2026, 3, 27), utc(2026, 4, 1)) == ["28 23:00-29 22:00"]
    assert shown(sunday, utc(2026, 10, 23), utc(2026, 10, 28)) == ["24 22:00-25 23:00"]
    noon = every("12:00", "12:00", days=(Weekday.SUN,))
    assert shown(noon, utc(2026, 6, 12), utc(2026, 6, 20)) == ["14 10:00-15 10:00"]


def test_windows_that_touch_are_one_and_those_of_every_whole_day_never_end():
    assert shown(every("00:00", "00:00"), utc(2026, 6, 1), utc(2026, 6, 9)) == ["01 00:00-09 00:00"]
    assert WallWindow.of(every("00:00", "00:00")).next_edge(0) is None


def test_a_day_that_was_skipped_has_no_window_but_its_night_has_an_end():
    # Apia had no Friday 2011-12-30; its Saturday began at 10:00Z of that day.
    week = utc(2011, 12, 27), utc(2012, 1, 2)
    noon = every("12:00", "13:00", "Pacific/Apia", (Weekday.FRI,))
    night = every("22:00", "02:00", "Pacific/Apia", (Weekday.FRI,))
    assert shown(noon, *week) == []
    assert shown(night, *week) == ["30 10:00-30 12:00"]
    start = (utc(2011, 12, 24) - EPOCH) // timedelta(seconds=1)
    assert WallWindow.of(noon).next_edge(start) == (utc(2012, 1, 5, 22) - EPOCH).total_seconds()


def test_a7_the_server_s_own_zone_does_not_matter(monkeypatch):
    day = utc(2026, 3, 28, 12), utc(2026, 3, 29, 12)
    found = []
    before = os.environ.get("TZ")
    try:
        for zone in ("Asia/Seoul", "UTC", "Europe/Berlin"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            found.append(shown(every("02:30", "03:30"), *day))
    finally:
        if before is None:
            monkeypatch.delenv("TZ")
        else:
            monkeypatch.setenv("TZ", before)
        time.tzset()
    assert found == [["29 01:00-29 01:30"]] * 3


def test_what_cannot_be_asked_is_refused_with_its_reason():
    day = utc(2026, 3, 28, 12), utc(2026, 3, 29, 12)
    with pytest.raises(UnknownZoneError, match="Europe/Berlin"):
        windows_between(every("02:30", "03:30", "europe/berlin"), *day)
    with pytest.raises(InstantError, match="no time zone"):
        windows_between(every("02:30", "03:30"), datetime(2026, 3, 28), day[1])
    with pytest.raises(ValueError, match="3660 at most"):
        windows_between(every("02:30", "03:30"), utc(1990, 1, 1), utc(2026, 1, 1))
    last = (utc(9999, 12, 31, 12) - EPOCH) // timedelta(seconds=1)
    with pytest.raises(InstantError, match="end of the calendar"):
        WallWindow.of(every("02:30", "03:30")).next_edge(last)
    assert windows_between(every("02:30", "03:30"), day[1], day[0]) == []


@pytest.mark.nightly
def test_windows_over_every_zone_and_all_its_changes():
    """Each zone's changes of 1970 to 2100, a day around each, minute by minute."""
    from ahrules._zones import pieces

    night = every("22:00", "04:00", days=(Weekday.SAT, Weekday.SUN, Weekday.WED))
    low, high = 0, (utc(2100, 1, 1) - EPOCH).days * 86_400
    for zone in sorted(zone_names()):
        recurrence = every(night.from_, night.to, zone, night.weekdays)
        wall = WallWindow.of(recurrence)
        for piece in pieces(zone, low, high)[1:]:
            for second in range(piece.start - 14_400, piece.start + 14_400, 600):
                instant = EPOCH + timedelta(seconds=second)
                assert wall.holds(second) is is_inside(recurrence, instant), (zone, instant)


def test_the_model_reads_seconds_as_minutes():
    # What makes hands of HH:MM enough for windows that begin and end on whole minutes.
    assert is_inside(every("02:30", "03:30", "UTC"), utc(2026, 1, 1, 3, 29, 59))
    assert not is_inside(every("02:30", "03:30", "UTC"), utc(2026, 1, 1, 3, 30))
