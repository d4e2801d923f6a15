"""What buckets are, by example: the field faults, the days on which clocks change, the edges."""

import contextlib
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from ahrules import (
    InstantError,
    Schedule,
    Unit,
    batch_key,
    bucket,
    load_zone,
    next_buckets,
)

TICK = timedelta(microseconds=1)


def at(text):
    return datetime.fromisoformat(text)


def edges(schedule, start, n):
    found = next_buckets(schedule, at(start), n)
    local = load_zone(schedule.timezone)
    return [each.start.astimezone(local).strftime("%d %H:%M%z") for each in found]


def test_n5_the_end_of_a_bucket_belongs_to_the_next():
    schedule = Schedule(1, "hours", "UTC")
    first, second = at("2026-06-15T10:00:00Z"), at("2026-06-15T11:00:00Z")
    assert bucket(second - TICK, schedule).start == first
    assert bucket(second, schedule).start == second


@pytest.mark.parametrize("unit", list(Unit))
def test_n5_a_naive_datetime_is_refused(unit):
    with pytest.raises(InstantError, match="no time zone"):
        bucket(datetime(2026, 6, 15, 10), Schedule(1, unit, "UTC"))


@pytest.mark.parametrize(
    ("zone", "noon", "start", "hours"),
    [
        ("Africa/Cairo", "2026-04-24T10:00Z", "2026-04-24T01:00+03:00", 23),
        ("America/Santiago", "2026-09-06T15:00Z", "2026-09-06T01:00-03:00", 23),
        ("Asia/Beirut", "2026-03-29T09:00Z", "2026-03-29T01:00+03:00", 23),
        ("Australia/Lord_Howe", "2026-04-05T01:00Z", "2026-04-05T00:00+11:00", 24.5),
    ],
)
def test_n6_a_day_begins_at_its_first_existing_instant(zone, noon, start, hours):
    found = bucket(at(noon), Schedule(1, "days", zone))
    assert found.start == at(start)
    assert found.end - found.start == timedelta(hours=hours)


def test_n6_a_day_that_was_skipped_has_no_bucket():
    found = next_buckets(Schedule(1, "days", "Pacific/Apia"), at("2011-12-29T12:00-10:00"), 3)
    assert [(each.start, each.end - each.start) for each in found] == [
        (at("2011-12-29T00:00-10:00"), timedelta(days=1)),
        (at("2011-12-31T00:00+14:00"), timedelta(days=1)),
        (at("2012-01-01T00:00+14:00"), timedelta(days=1)),
    ]


def test_n7_the_hour_that_happens_twice_has_two_keys():
    schedule = Schedule(1, "hours", "Europe/Berlin")
    keys = [
        batch_key("rule-1", "soc", "email", bucket(at(text), schedule).start)
        for text in ("2026-10-25T00:30Z", "2026-10-25T01:30Z")
    ]
    assert keys == [
        "rule-1:soc:email:2026-10-25T00:00:00Z",
        "rule-1:soc:email:2026-10-25T01:00:00Z",
    ]


DST_TABLE = [
    # Berlin forward: 02-03 does not exist, so the two-hour bucket 02-04 is one hour long.
    (Schedule(1, "hours", "Europe/Berlin"), "2026-03-29T00:30+01:00",
     ["29 00:00+0100", "29 01:00+0100", "29 03:00+0200", "29 04:00+0200"]),
    (Schedule(2, "hours", "Europe/Berlin"), "2026-03-29T00:30+01:00",
     ["29 00:00+0100", "29 03:00+0200", "29 04:00+0200", "29 06:00+0200"]),
    (Schedule(30, "minutes", "Europe/Berlin"), "2026-03-29T01:15+01:00",
     ["29 01:00+0100", "29 01:30+0100", "29 03:00+0200", "29 03:30+0200"]),
    # Berlin back: 02-03 happens twice.
    (Schedule(1, "hours", "Europe/Berlin"), "2026-10-25T01:30+02:00",
     ["25 01:00+0200", "25 02:00+0200", "25 02:00+0100", "25 03:00+0100"]),
    (Schedule(2, "hours", "Europe/Berlin"), "2026-10-25T01:30+02:00",
     ["25 00:00+0200", "25 02:00+0200", "25 04:00+0100", "25 06:00+0100"]),
    (Schedule(90, "minutes", "Europe/Berlin"), "2026-10-25T01:00+02:00",
     ["25 00:00+0200", "25 01:30+0200", "25 03:00+0100", "25 04:30+0100"]),
    (Schedule(45, "minutes", "Europe/Berlin"), "2026-10-25T01:30+02:00",
     ["25 01:30+0200", "25 02:15+0200", "25 02:00+0100", "25 02:15+0100", "25 03:00+0100"]),
    # A two-and-a-half-hour bucket whose edge lies in the repeated hour: counting never goes back.
    (Schedule(150, "minutes", "Europe/Berlin"), "2026-10-25T01:30+02:00",
     ["25 00:00+0200", "25 02:30+0200", "25 05:00+0100", "25 07:30+0100"]),
    (Schedule(1, "days", "Europe/Berlin"), "2026-10-25T12:00+01:00",
     ["25 00:00+0200", "26 00:00+0100"]),
    # New York: 02-03 is skipped, 01-02 is repeated.
    (Schedule(1, "hours", "America/New_York"), "2026-03-08T01:30-05:00",
     ["08 01:00-0500", "08 03:00-0400", "08 04:00-0400"]),
    (Schedule(1, "hours", "America/New_York"), "2026-11-01T00:30-04:00",
     ["01 00:00-0400", "01 01:00-0400", "01 01:00-0500", "01 02:00-0500"]),
    # Tehran changed at midnight: the day began at 01:00, and ended with an hour that came twice.
    (Schedule(1, "days", "Asia/Tehran"), "2021-03-21T12:00+03:30",
     ["21 00:00+0330", "22 01:00+0430", "23 00:00+0430"]),
    (Schedule(2, "hours", "Asia/Tehran"), "2021-03-21T22:30+03:30",
     ["21 22:00+0330", "22 01:00+0430", "22 02:00+0430", "22 04:00+0430"]),
    (Schedule(1, "hours", "Asia/Tehran"), "2021-09-21T22:30+04:30",
     ["21 22:00+0430", "21 23:00+0430", "21 23:00+0330", "22 00:00+0330"]),
    # Lord Howe shifts by half an hour: 01:30-02:00 happens twice, 02:00-02:30 never.
    (Schedule(1, "hours", "Australia/Lord_Howe"), "2026-04-05T00:30+11:00",
     ["05 00:00+1100", "05 01:00+1100", "05 02:00+1030", "05 03:00+1030"]),
    (Schedule(30, "minutes", "Australia/Lord_Howe"), "2026-04-05T01:15+11:00",
     ["05 01:00+1100", "05 01:30+1100", "05 01:30+1030", "05 02:00+1030"]),
    (Schedule(1, "hours", "Australia/Lord_Howe"), "2026-10-04T01:30+10:30",
     ["04 01:00+1030", "04 02:30+1100", "04 03:00+1100"]),
    (Schedule(30, "minutes", "Australia/Lord_Howe"), "2026-10-04T01:30+10:30",
     ["04 01:30+1030", "04 02:30+1100", "04 03:00+1100"]),
    # Casablanca goes back for Ramadan and forward after it.
    (Schedule(1, "hours", "Africa/Casablanca"), "2026-02-15T01:30+01:00",
     ["15 01:00+0100", "15 02:00+0100", "15 02:00+0000", "15 03:00+0000"]),
    (Schedule(1, "hours", "Africa/Casablanca"), "2026-03-22T01:30+00:00",
     ["22 01:00+0000", "22 03:00+0100", "22 04:00+0100"]),
    # Apia had no 30 December 2011; groups of two days count on over it.
    (Schedule(1, "weeks", "Pacific/Apia"), "2011-12-30T09:00Z",
     ["26 00:00-1000", "02 00:00+1400", "09 00:00+1400"]),
    (Schedule(12, "hours", "Pacific/Apia"), "2011-12-29T13:00-10:00",
     ["29 12:00-1000", "31 00:00+1400", "31 12:00+1400"]),
    # Sao Paulo's 4 November 2018 began at 01:00; 17 February 2018 had 23-24 twice.
    (Schedule(1, "days", "America/Sao_Paulo"), "2018-11-03T12:00-03:00",
     ["03 00:00-0300", "04 01:00-0200", "05 00:00-0200"]),
    (Schedule(1, "hours", "America/Sao_Paulo"), "2018-02-17T23:30-02:00",
     ["17 23:00-0200", "17 23:00-0300", "18 00:00-0300"]),
    (Schedule(1, "months", "America/Sao_Paulo"), "2018-11-15T12:00Z",
     ["01 00:00-0300", "01 00:00-0200", "01 00:00-0200"]),
    # St. John's went back at 00:01: the day begins at its first midnight and is an hour longer.
    (Schedule(1, "days", "America/St_Johns"), "2006-10-28T12:00Z",
     ["28 00:00-0230", "29 00:00-0230", "30 00:00-0330"]),
    (Schedule(1, "hours", "America/St_Johns"), "2006-10-28T23:30-02:30",
     ["28 23:00-0230", "29 00:00-0230", "28 23:01-0330", "29 00:00-0330"]),
    # Casey went back by three hours over midnight.
    (Schedule(2, "hours", "Antarctica/Casey"), "2010-03-05T00:30+11:00",
     ["05 00:00+1100", "04 23:00+0800", "05 00:00+0800", "05 02:00+0800"]),
    (Schedule(4, "hours", "Antarctica/Casey"), "2010-03-05T00:30+11:00",
     ["05 00:00+1100", "05 04:00+0800", "05 08:00+0800"]),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "start", "expected"), DST_TABLE)
def test_the_days_on_which_clocks_change(schedule, start, expected):
    assert edges(schedule, start, len(expected)) == expected


def test_an_interval_that_does_not_divide_the_day_ends_its_last_bucket_at_midnight():
    assert edges(Schedule(7, "hours", "Asia/Seoul"), "2026-06-15T21:30+09:00", 2) == [
        "15 21:00+0900",
        "16 00:00+0900",
    ]


def test_hours_never_reach_into_the_next_day():
    assert edges(Schedule(36, "hours", "Asia/Seoul"), "2026-06-15T21:30+09:00", 3) == [
        "15 00:00+0900",
        "16 00:00+0900",
        "17 00:00+0900",
    ]


@pytest.mark.parametrize(
    ("schedule", "start", "end"),
    [
        (Schedule(2, "hours", "UTC"), "2026-06-15T02:00Z", "2026-06-15T04:00Z"),
        (Schedule(30, "minutes", "UTC"), "2026-06-15T03:00Z", "2026-06-15T03:30Z"),
        (Schedule(1, "days", "UTC"), "2026-06-15T00:00Z", "2026-06-16T00:00Z"),
        (Schedule(3, "days", "UTC"), "2026-06-15T00:00Z", "2026-06-18T00:00Z"),
        (Schedule(1, "weeks", "UTC"), "2026-06-15T00:00Z", "2026-06-22T00:00Z"),
        (Schedule(2, "weeks", "UTC"), "2026-06-08T00:00Z", "2026-06-22T00:00Z"),
        (Schedule(1, "months", "UTC"), "2026-06-01T00:00Z", "2026-07-01T00:00Z"),
        (Schedule(5, "months", "UTC"), "2026-04-01T00:00Z", "2026-09-01T00:00Z"),
    ],
)
def test_what_schedules_mean_on_an_ordinary_day(schedule, start, end):
    found = bucket(at("2026-06-15T03:15Z"), schedule)
    assert (found.start, found.end) == (at(start), at(end))


@pytest.mark.parametrize("unit", list(Unit))
def test_instants_before_1970_have_buckets_too(unit):
    found = bucket(at("1969-12-31T23:59:59.999999Z"), Schedule(2, unit, "UTC"))
    assert found.start < at("1970-01-01T00:00Z") <= found.end


@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("instant", [datetime.min, datetime.max])
def test_the_ends_of_the_calendar_give_a_bucket_or_a_clear_error(unit, zone, instant):
    aware = instant.replace(tzinfo=UTC)
    with contextlib.suppress(InstantError):
        found = bucket(aware, Schedule(9_999, unit, zone))
        assert found.start <= aware < found.end


def test_a_bucket_that_leaves_the_calendar_says_so():
    with pytest.raises(InstantError, match="calendar"):
        bucket(datetime.max.replace(tzinfo=UTC), Schedule(1, "days", "UTC"))


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("instant", ["0001-06-01T12:00Z", "9999-06-01T12:00Z", "9999-12-28T12:00Z"])
def test_the_calendar_s_first_and_last_year_have_buckets(zone, instant):
    found = bucket(at(instant), Schedule(1, "days", zone))
    assert found.start <= at(instant) < found.end


def test_a_preview_is_made_of_adjoining_buckets():
    found = next_buckets(Schedule(1, "months", "Europe/Berlin"), at("2026-06-15T03:15Z"), 24)
    assert len(found) == 24
    assert all(left.end == right.start for left, right in pairwise(found))
    assert next_buckets(Schedule(1, "days", "UTC"), at("2026-06-15T03:15Z"), 0) == []


def test_a_preview_may_be_ten_thousand_buckets_long():
    assert len(next_buckets(Schedule(1, "hours", "UTC"), at("2026-06-15T03:15Z"), 10_000)) == 10_000


@pytest.mark.parametrize("n", [-1, 10_001])
def test_a_preview_is_bounded(n):
    with pytest.raises(ValueError, match="previewed"):
        next_buckets(Schedule(1, "days", "UTC"), at("2026-06-15T03:15Z"), n)


def test_a_batch_key_is_written_in_utc():
    start = at("2026-06-15T02:00+02:00")
    assert batch_key("rule-123", "soc-team", "email", start) == (
        "rule-123:soc-team:email:2026-06-15T00:00:00Z"
    )


def test_a_batch_key_of_a_naive_start_is_refused():
    with pytest.raises(InstantError):
        batch_key("rule-123", "soc-team", "email", datetime(2026, 6, 15))
