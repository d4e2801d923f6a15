"""Time zones: names, and the instants at which their clocks change."""

import importlib.resources
from datetime import UTC, datetime, timedelta
from itertools import pairwise

# The pure-Python half of the standard library, because it shows its table of transitions.
from zoneinfo._zoneinfo import ZoneInfo as TransparentZone

import pytest

from ahrules import (
    Schedule,
    ScheduleError,
    Unit,
    UnknownZoneError,
    _zones,
    bucket,
    check_zone,
    load_zone,
    zone_names,
)
from ahrules._zones import pieces


@pytest.mark.parametrize("name", ["Europe", "", "../x", "europe/berlin", "Factory", "localtime"])
def test_n8_what_is_no_zone_is_refused(name):
    with pytest.raises(UnknownZoneError, match="not a time zone") as caught:
        Schedule(1, "days", name)
    assert repr(name) in str(caught.value)
    with pytest.raises(UnknownZoneError):
        check_zone(name)


def test_n8_a_zone_in_the_wrong_case_is_corrected():
    with pytest.raises(UnknownZoneError, match="Europe/Berlin"):
        check_zone("europe/berlin")


@pytest.mark.parametrize("area", ["Europe", "Asia", "america", "Europe/", "America/Argentina"])
def test_n8_an_area_alone_gets_cities_of_it(area):
    with pytest.raises(UnknownZoneError) as caught:
        check_zone(area)
    assert len(caught.value.near) == 3
    assert all(name.casefold().startswith(area.casefold()) for name in caught.value.near)


@pytest.mark.parametrize("name", ["", "../x", "/", "///"])
def test_n8_a_name_that_is_near_to_none_gets_an_example(name):
    with pytest.raises(UnknownZoneError, match="such as Europe/Berlin"):
        check_zone(name)


@pytest.mark.parametrize("name", [None, 1, True, b"UTC", ["UTC"]])
def test_what_is_no_text_is_no_zone(name):
    with pytest.raises(UnknownZoneError):
        check_zone(name)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("europe/berlin", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("berlin", "Europe/Berlin"),
        ("utc", "UTC"),
        (" Asia/Seoul ", "Asia/Seoul"),
        ("America/NewYork", "America/New_York"),
    ],
)
def test_near_names_are_suggested_nearest_first(written, meant):
    with pytest.raises(UnknownZoneError) as caught:
        check_zone(written)
    assert caught.value.near[0] == meant
    assert meant in str(caught.value)


def test_a_name_near_to_nothing_gets_an_example():
    with pytest.raises(UnknownZoneError, match="Europe/Berlin") as caught:
        check_zone("x" * 100_000)
    assert caught.value.near == ()


@pytest.mark.parametrize("unit", list(Unit))
def test_n8_a_city_s_two_spellings_agree(unit):
    for number in range(300):
        instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=159 * number, hours=number)
        assert bucket(instant, Schedule(1, unit, "Europe/Kiev")) == bucket(
            instant, Schedule(1, unit, "Europe/Kyiv")
        )


def test_every_name_can_be_loaded():
    for name in zone_names():
        assert load_zone(name).key == name


def test_the_installed_data_is_used_whatever_the_system_has(monkeypatch):
    monkeypatch.setenv("PYTHONTZPATH", "/nowhere")
    load_zone.cache_clear()
    assert load_zone("Asia/Tokyo").utcoffset(datetime(2026, 1, 1)).total_seconds() == 9 * 3600


def transitions(name):
    resource = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with resource.open("rb") as file:
        zone = TransparentZone.from_file(file)
    offsets = [zone._tti_before.utcoff, *(each.utcoff for each in zone._ttinfos)]
    return [
        instant
        for instant, before, after in zip(zone._trans_utc, offsets, offsets[1:], strict=False)
        if before != after
    ]


FROM = int(datetime(1970, 1, 1, tzinfo=UTC).timestamp())


def test_no_zone_changes_twice_within_four_days():
    # What the search for changes builds on: it looks every two days.
    for name in sorted(zone_names()):
        found = [each for each in transitions(name) if each >= FROM]
        assert all(right - left >= 4 * 86_400 for left, right in pairwise(found)), name


@pytest.mark.parametrize(
    "name",
    [
        "Africa/Casablanca",
        "Africa/Monrovia",
        "America/Sao_Paulo",
        "America/St_Johns",
        "Antarctica/Casey",
        "Asia/Pyongyang",
        "Australia/Lord_Howe",
        "Europe/Berlin",
        "Pacific/Apia",
        "UTC",
    ],
)
def test_every_change_since_1970_is_found_to_the_second(name):
    expected = [each for each in transitions(name) if each > FROM]
    # The table ends where a yearly rule takes over, which the bucket tests check.
    end = max([*expected, FROM]) + 1
    found = [piece.start for piece in pieces(name, FROM, end)][1:]
    assert found == expected


def test_pieces_adjoin_and_differ_over_new_year_as_within_a_year():
    start, end = (int(datetime(year, 7, 1, tzinfo=UTC).timestamp()) for year in (2025, 2028))
    found = pieces("Europe/Berlin", start, end)
    assert (found[0].start, found[-1].end) == (start, end)
    assert len(found) == 7
    for left, right in pairwise(found):
        assert left.end == right.start
        assert left.offset != right.offset


def test_a_zone_without_changes_is_one_piece():
    assert len(pieces("Asia/Tokyo", FROM, FROM + 50 * 366 * 86_400)) == 1


def test_two_changes_in_the_same_two_days_that_lead_on_are_both_found(monkeypatch):
    # No zone has done it since 1970; a country may any day.
    first, second = FROM + 100 * 86_400 + 1_000, FROM + 100 * 86_400 + 6_000

    def steps(_zone, instant):
        return 0 if instant < first else 3_600 if instant < second else 7_200

    monkeypatch.setattr(_zones, "offset_at", steps)
    _zones._pieces_of_year.cache_clear()
    try:
        found = pieces("Asia/Tokyo", FROM, FROM + 365 * 86_400)
    finally:
        _zones._pieces_of_year.cache_clear()
    assert [(each.end, each.offset) for each in found[:2]] == [(first, 0), (second, 3_600)]
    assert found[2].offset == 7_200


@pytest.mark.parametrize("interval", [0, -1, 10_001, 1.0, True, "1", None])
def test_an_interval_that_is_no_count_is_refused(interval):
    with pytest.raises(ScheduleError, match="no interval"):
        Schedule(interval, "hours", "UTC")


@pytest.mark.parametrize("unit", ["hour", "Hours", "", None, 1, "years"])
def test_a_unit_that_is_none_is_refused(unit):
    with pytest.raises(ScheduleError, match="no unit"):
        Schedule(1, unit, "UTC")


def test_a_schedule_s_zone_is_checked():
    with pytest.raises(UnknownZoneError):
        Schedule(1, "hours", "Europe")
