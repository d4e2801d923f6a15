"""The promises of buckets, over all zones and the years 1970 to 2100.

`labels` is the law once more, as slowly and plainly as it can be said: a walk through time, minute
by minute, that reads a zone's clock and says in which bucket each minute lies.
"""

import importlib.resources
import math
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import groupby, pairwise

# The pure-Python half of the standard library, because it shows its table of changes.
from zoneinfo._zoneinfo import ZoneInfo as TransparentZone

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ahrules import Schedule, Unit, _buckets, _zones, bucket, load_zone, zone_names

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 12, 31, tzinfo=UTC)
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY_SECONDS = 86_400
ALL_ZONES = sorted(zone_names())
# Zones whose clocks did something unusual since 1970.
ODD_ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
]


@cache
def zone_data(name):
    resource = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with resource.open("rb") as file:
        return TransparentZone.from_file(file)


@cache
def changes(name):
    """The instants from 1970 to 2100 at which a zone's offset changes, by its own table."""
    zone = zone_data(name)
    found = list(zone._trans_utc)
    if zone._tz_after is not None and not zone._fixed_offset:
        after = zone._tz_after
        if hasattr(after, "transitions"):
            last_year = datetime.fromtimestamp(max([*found, 0]), UTC).year
            for year in range(last_year, 2101):
                start, end = after.transitions(year)
                found.append(start - int(after.std.utcoff.total_seconds()))
                found.append(end - int(after.dst.utcoff.total_seconds()))
    inside = (each for each in found if FIRST.timestamp() <= each < LAST.timestamp())
    return sorted(each for each in set(inside) if offset(name, each) != offset(name, each - 1))


def offset(name, second):
    moment = EPOCH + timedelta(seconds=second)
    return int(moment.astimezone(load_zone(name)).utcoffset().total_seconds())


CHANGING_ZONES = [name for name in ALL_ZONES if len(zone_data(name)._trans_utc) > 1]
zones = st.sampled_from(ODD_ZONES) | st.sampled_from(ALL_ZONES)
instants = st.datetimes(datetime(1970, 1, 1), datetime(2100, 12, 31), timezones=st.just(UTC))
units = st.sampled_from(list(Unit))
intervals = st.integers(1, 13) | st.sampled_from([15, 20, 30, 45, 90, 100]) | st.integers(1, 1_500)
schedules = st.builds(Schedule, intervals, units, zones)


@st.composite
def near_changes(draw):
    """Chance hits few changes of the clock: an instant near one, in a zone that has some."""
    zone = draw(st.sampled_from(ODD_ZONES) | st.sampled_from(CHANGING_ZONES))
    assume(changes(zone))
    change = EPOCH + timedelta(seconds=draw(st.sampled_from(changes(zone))))
    shift = draw(st.timedeltas(timedelta(hours=-30), timedelta(hours=30)))
    return change + shift, Schedule(draw(intervals), draw(units), zone)


cases = st.tuples(instants, schedules) | near_changes()


def examples(factor):
    """So many times the examples of the profile in force."""
    return settings(max_examples=factor * settings().max_examples, deadline=None)


def wall(instant, zone):
    """The wall clock without its zone, so that subtraction counts what the hands show."""
    return instant.astimezone(load_zone(zone)).replace(tzinfo=None)


@examples(4)
@given(cases)
def test_a_bucket_holds_its_instant_and_is_not_empty(case):
    instant, schedule = case
    found = bucket(instant, schedule)
    assert found.start <= instant < found.end
    assert found.start.tzinfo is UTC
    assert found.end.tzinfo is UTC


@examples(4)
@given(cases, st.floats(0, 1, exclude_max=True))
def test_every_instant_of_a_bucket_gives_the_same_bucket(case, share):
    instant, schedule = case
    found = bucket(instant, schedule)
    inside = min(found.start + (found.end - found.start) * share, found.end - TICK)
    for other in (found.start, found.end - TICK, inside):
        forget()
        assert bucket(other, schedule) == found


@examples(4)
@given(cases)
def test_buckets_leave_no_gap_and_do_not_overlap(case):
    instant, schedule = case
    found = bucket(instant, schedule)
    # Each neighbour is asked right after the bucket, which is remembered then.
    assert bucket(found.start - TICK, schedule).end == found.start
    assert bucket(instant, schedule) == found
    assert bucket(found.end, schedule).start == found.end


def forget():
    """Forget the answers given last; the zones' rules stay."""
    _buckets._plan.cache_clear()


@given(st.lists(cases, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_what_was_asked_before_changes_no_answer(asked, order):
    alone = []
    for instant, schedule in asked:
        forget()
        alone.append(bucket(instant, schedule))
    again = list(range(len(asked))) * 3
    order.shuffle(again)
    for place in again:
        instant, schedule = asked[place]
        equal = Schedule(schedule.interval, schedule.unit, schedule.timezone)
        assert bucket(instant, equal) == alone[place]


def test_threads_that_ask_at_once_get_their_own_answers():
    schedule = Schedule(5, "minutes", "Europe/Berlin")
    moments = [EPOCH + timedelta(days=20_000, minutes=number) for number in range(200)]
    expected = [bucket(moment, schedule) for moment in moments]

    def ask(seed):
        places = list(range(len(moments))) * 5
        random.Random(seed).shuffle(places)
        return all(bucket(moments[place], schedule) == expected[place] for place in places)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(ask, range(4)))
    finally:
        sys.setswitchinterval(switch)


def test_what_is_remembered_is_bounded():
    caches = [
        each
        for module in (_buckets, _zones)
        for each in vars(module).values()
        if hasattr(each, "cache_parameters")
    ]
    assert len(caches) >= 5
    assert all(each.cache_parameters()["maxsize"] <= 65_536 for each in caches)


@examples(2)
@given(cases, zones)
def test_the_zone_an_instant_is_written_in_does_not_matter(case, zone):
    instant, schedule = case
    expected = bucket(instant, schedule)
    forget()
    assert bucket(instant.astimezone(load_zone(zone)), schedule) == expected


@examples(2)
@given(near_changes(), st.sampled_from([0, 1]))
def test_times_that_came_twice_or_never_are_taken_as_the_instants_they_are(case, fold):
    instant, schedule = case
    # Around a change many of these are ambiguous, or skipped: Python gives each an offset.
    local = wall(instant, schedule.timezone).replace(tzinfo=load_zone(schedule.timezone), fold=fold)
    expected = bucket(local.astimezone(UTC), schedule)
    forget()
    assert bucket(local, schedule) == expected


def first_instant_of_day(day, zone):
    """The first second whose local date is `day` or later: each quarter of an hour is tried."""
    step = timedelta(minutes=15)
    instant = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=24)
    while wall(instant, zone).date() < day:
        instant += step
    low, high = instant - step, instant
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        low, high = (middle, high) if wall(middle, zone).date() < day else (low, middle)
    return high


@examples(3)
@given(cases.filter(lambda case: case[1].unit in (Unit.DAYS, Unit.WEEKS, Unit.MONTHS)))
def test_days_and_longer_begin_with_the_first_instant_of_a_day_that_counts(case):
    instant, schedule = case
    for edge in (bucket(instant, schedule).start, bucket(instant, schedule).end):
        day = wall(edge, schedule.timezone).date()
        # Where a whole day was skipped, the edge of that day is the first instant of the next.
        candidates = [day, day - timedelta(days=1)]
        begins = [each for each in candidates if counts(each, schedule)]
        assert begins
        assert edge == first_instant_of_day(begins[0], schedule.timezone)


def counts(day, schedule):
    """Whether a group of `schedule` begins with this day."""
    if schedule.unit is Unit.DAYS:
        return (day - date(1970, 1, 1)).days % schedule.interval == 0
    if schedule.unit is Unit.WEEKS:
        return (day - date(1970, 1, 5)).days % (7 * schedule.interval) == 0
    months = (day.year - 1970) * 12 + day.month - 1
    return day.day == 1 and months % schedule.interval == 0


def shown(zone, first, last, step):
    """What a clock shows at each step: (Unix second, the hands as seconds from 1970)."""
    rules, found = load_zone(zone), []
    for each in range(first, last, step):
        shift = datetime.fromtimestamp(each, rules).utcoffset()
        found.append((each, each + shift.days * DAY_SECONDS + shift.seconds))
    return found


def labels(hands, schedule):
    """The law, said slowly: in which bucket each moment lies. Equal neighbours share one."""
    step = hands[1][0] - hands[0][0]
    length = schedule.interval * {Unit.MINUTES: 60, Unit.HOURS: 3_600}.get(schedule.unit, 0)
    found, today, lap, slot, before = [], None, 0, None, None
    for _, now in hands:
        # A day has begun once its date, or a later one, was shown.
        if today is None or now // DAY_SECONDS > today:
            today, lap, slot = now // DAY_SECONDS, 0, None
        elif length and before + step - now >= length:
            lap, slot = lap + 1, None
        before = now
        if length:
            place = (now - today * DAY_SECONDS) // length
            slot = place if slot is None else max(slot, place)
            found.append((today, lap, slot))
        else:
            found.append(group_of(today, schedule))
    return found


def group_of(number, schedule):
    """Which group of days, weeks or months a day belongs to."""
    day = date(1970, 1, 1) + timedelta(days=number)
    if schedule.unit is Unit.DAYS:
        return number // schedule.interval
    if schedule.unit is Unit.WEEKS:
        return (day - date(1970, 1, 5)).days // 7 // schedule.interval
    return ((day.year - 1970) * 12 + day.month - 1) // schedule.interval


def check_against_the_walk(hands, schedule):
    """Compare each bucket of the walk with ours; the first and last one begin or end outside."""
    moments = iter(hands)
    groups = []
    for label, group in groupby(labels(hands, schedule)):
        groups.append((label, [next(moments)[0] for _ in group]))
    step = hands[1][0] - hands[0][0]
    for place, (label, seconds) in enumerate(groups):
        start = EPOCH + timedelta(seconds=seconds[0])
        end = EPOCH + timedelta(seconds=seconds[-1] + step)
        found = bucket(start, schedule)
        where = (schedule, label, start, end, found)
        assert found.start == start if place else found.start <= start, where
        assert found.end == end if place < len(groups) - 1 else found.end >= end, where
        assert bucket(end - TICK, schedule) == found, where


def hands_around(zone, second):
    """The clock for thirty hours before and after; in whole steps of the zone's odd offsets."""
    first, last = second - 30 * 3_600, second + 30 * 3_600
    step = math.gcd(60, second, offset(zone, first), offset(zone, last))
    return shown(zone, first, last, step)


@given(cases)
def test_buckets_are_what_a_walk_through_the_hours_around_gives(case):
    instant, schedule = case
    # The walk goes by the minute, and offsets of odd seconds ended in 1972.
    assume(instant.year >= 1973)
    minute = int((instant - EPOCH).total_seconds()) // 60 * 60
    check_against_the_walk(hands_around(schedule.timezone, minute), schedule)


@pytest.mark.parametrize("zone", ODD_ZONES)
def test_a_day_of_hours_is_a_day_around_every_change(zone):
    # Wherever a change lies in the stretches of time that `bucket` takes for calm.
    hours, days = Schedule(24, Unit.HOURS, zone), Schedule(1, Unit.DAYS, zone)
    for second in changes(zone):
        for hour in (-20, -8, 4, 10, 16, 22, 28):
            instant = EPOCH + timedelta(seconds=second) + hour * HOUR
            assert bucket(instant, hours) == bucket(instant, days)


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(-180, 180)), min_size=1, max_size=4),
    st.integers(1, 400),
)
def test_a_day_may_change_its_clock_several_times(stretches, minutes):
    # No day has since 1970. The law has an answer all the same.
    length, start, found, hands = 60 * minutes, 0, [], []
    for number, (lasts, shift) in enumerate(stretches):
        piece = _zones.Piece(start, start + 60 * lasts, 60 * shift if number else 0)
        found.append(piece)
        hands += [(each, each + piece.offset) for each in range(piece.start, piece.end, 60)]
        start = piece.end
    day = _buckets._Day(0, 0, start, tuple(found))
    said = labels([*hands, (start, start)], Schedule(minutes, Unit.MINUTES))[:-1]
    borders = [0, *(hands[n][0] for n in range(1, len(said)) if said[n] != said[n - 1]), start]
    for low, high in pairwise(borders):
        assert _buckets._within_day(day, length, low) == (low, high)
        assert _buckets._within_day(day, length, high - 1) == (low, high)


SCHEDULES = [
    (1, Unit.MINUTES), (15, Unit.MINUTES), (20, Unit.MINUTES), (30, Unit.MINUTES),
    (45, Unit.MINUTES), (60, Unit.MINUTES), (90, Unit.MINUTES), (100, Unit.MINUTES),
    (1, Unit.HOURS), (2, Unit.HOURS), (3, Unit.HOURS), (5, Unit.HOURS), (7, Unit.HOURS),
    (12, Unit.HOURS), (24, Unit.HOURS), (36, Unit.HOURS),
    (1, Unit.DAYS), (2, Unit.DAYS), (1, Unit.WEEKS), (1, Unit.MONTHS), (3, Unit.MONTHS),
]  # fmt: skip


def check_change(zone, second, rng, schedules):
    hands = hands_around(zone, second)
    for interval, unit in rng.sample(SCHEDULES, schedules):
        check_against_the_walk(hands, Schedule(interval, unit, zone))


def test_buckets_are_what_a_walk_gives_at_changes_of_sixty_zones_and_the_odd_ones():
    rng = random.Random(20261130)
    for zone in dict.fromkeys([*ODD_ZONES, *rng.sample(CHANGING_ZONES, 60)]):
        found = changes(zone)
        if found:
            check_change(zone, rng.choice(found), rng, 2)


@cache
def zones_that_differ():
    same = {}
    for zone in ALL_ZONES:
        same.setdefault((tuple(changes(zone)), offset(zone, 0)), zone)
    return list(same.values())


# In parts, for a test that takes more than three minutes is taken for one that hangs.
@pytest.mark.nightly
@pytest.mark.parametrize("part", range(48))
def test_buckets_are_what_a_walk_gives_at_every_change_of_every_zone(part):
    rng = random.Random(part)
    for zone in zones_that_differ()[part::48]:
        for second in changes(zone):
            check_change(zone, second, rng, 2)


@pytest.mark.nightly
def test_every_change_is_a_lot_of_changes():
    assert sum(len(changes(zone)) for zone in zones_that_differ()) > 20_000


def test_every_zone_keeps_the_promises():
    for number, zone in enumerate(sorted(zone_names())):
        for unit in Unit:
            # Another instant for each zone, spread over the years.
            instant = EPOCH + timedelta(days=79 * number + 13, hours=number, microseconds=number)
            schedule = Schedule(1 + number % 7, unit, zone)
            found = bucket(instant, schedule)
            assert found.start <= instant < found.end
            assert bucket(found.end - TICK, schedule) == found
            assert bucket(found.end, schedule).start == found.end
