"""How long does it take to say which bucket an event falls in?

- 200 schedules, as rules have them (5 minutes to 3 months), in 40 zones; events of the last ten
  minutes, and events spread over a year, whose bucket is hardly ever the one asked for before.
- Beside `Timestamp.floor` of pandas, which floors to minutes, hours and days only and says no end:
  it gets its instants in the zone already, as Timestamps. And beside croniter, which gets its
  instants in the zone and an iterator made before, and is asked for the start and the end.
- With all caches empty: the first answer for each schedule, which reads the zone's rules.

All are measured in processor time, for none of them waits for anything. The peers need not give the
same answer: on the days on which clocks change they do not.
"""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pandas as pd
from _harness import Options, Row, Times, cpu_seconds_of, in_turns, main
from croniter import croniter

from ahrules import Schedule, Unit, _buckets, _zones, bucket, load_zone, zone_names

ROUNDS = 60
EVENTS = 10_000
PEER_EVENTS = 100
SCHEDULES = 200
ZONES = 40
NOW = datetime(2026, 11, 30, 17, 55, tzinfo=UTC)
# How a rule's author writes it: the schedule, what pandas calls it, what cron calls it.
KINDS = [
    (5, Unit.MINUTES, "5min", "*/5 * * * *"),
    (15, Unit.MINUTES, "15min", "*/15 * * * *"),
    (1, Unit.HOURS, "1h", "0 * * * *"),
    (2, Unit.HOURS, "2h", "0 */2 * * *"),
    (6, Unit.HOURS, "6h", "0 */6 * * *"),
    (1, Unit.DAYS, "D", "0 0 * * *"),
    (1, Unit.WEEKS, None, "0 0 * * 1"),
    (1, Unit.MONTHS, None, "0 0 1 * *"),
    (3, Unit.MONTHS, None, "0 0 1 */3 *"),
]
Kind = tuple[int, Unit, str | None, str]
Case = tuple[datetime, Schedule, Kind]


def cases(rng: random.Random, ago: timedelta, kinds: Sequence[Kind] = KINDS) -> list[Case]:
    """Events of the time before now, each with a schedule of the mix."""
    zones = rng.sample(sorted(zone_names()), ZONES)
    mix = []
    for number in range(SCHEDULES):
        kind = kinds[number % len(kinds)]
        mix.append((Schedule(kind[0], kind[1], rng.choice(zones)), kind))
    return [(NOW - ago * rng.random(), *rng.choice(mix)) for _ in range(EVENTS)]


def ours(found: Sequence[Case]) -> Callable[[], float]:
    """Seconds of one bucket."""
    pairs = [(instant, schedule) for instant, schedule, _ in found]

    def all_of_them() -> None:
        for instant, schedule in pairs:
            bucket(instant, schedule)

    return lambda: cpu_seconds_of(all_of_them) / len(pairs)


def floors(found: Sequence[Case]) -> Callable[[], float]:
    """Seconds of one floor of pandas."""
    given = [
        (pd.Timestamp(instant).tz_convert(schedule.timezone), kind[2])
        for instant, schedule, kind in found[:PEER_EVENTS]
    ]

    def all_of_them() -> None:
        for instant, frequency in given:
            instant.floor(frequency, ambiguous=True, nonexistent="shift_forward")

    return lambda: cpu_seconds_of(all_of_them) / len(given)


def crons(found: Sequence[Case]) -> Callable[[], float]:
    """Seconds of one start and one end of croniter."""
    given = []
    for instant, schedule, kind in found[:PEER_EVENTS]:
        local = instant.astimezone(load_zone(schedule.timezone))
        given.append((croniter(kind[3], local), local))

    def all_of_them() -> None:
        for iterator, local in given:
            iterator.set_current(local, force=True)
            iterator.get_prev(datetime)
            iterator.set_current(local, force=True)
            iterator.get_next(datetime)

    return lambda: cpu_seconds_of(all_of_them) / len(given)


def first_answers(found: Sequence[Case]) -> float:
    """Seconds of the first answer for a schedule, of a process that has just started."""
    for module in (_buckets, _zones):
        for each in vars(module).values():
            # The list of names is read once by whoever makes the first schedule.
            if hasattr(each, "cache_clear") and each is not zone_names:
                each.cache_clear()
    firsts = {schedule: instant for instant, schedule, _ in found}

    def all_of_them() -> None:
        for schedule, instant in firsts.items():
            bucket(instant, schedule)

    return cpu_seconds_of(all_of_them) / len(firsts)


def rate_row(question: str, times: Times) -> Row:
    """Buckets a second."""
    rates = Times(values=[1 / value for value in times.values])
    return Row(
        question=question,
        measured=f"{rates.each()} a second",
        value=rates.median,
        limit=300_000,
        less_is_better=False,
        target="at least 300,000 a second",
        figures={"bucket_us": times.median * 1e6},
    )


def ratio_row(question: str, times: Times, peer: Times) -> Row:
    """How many times as fast as a peer."""
    ratio = peer.median / times.median
    return Row(
        question=question,
        measured=f"{ratio:,.0f} x: {times.median * 1e6:.2f} µs beside {peer.micros()}",
        value=ratio,
        limit=10,
        less_is_better=False,
        target="at least 10 x",
        figures={"ours_us": times.median * 1e6, "peer_us": peer.median * 1e6},
    )


def measure(options: Options) -> list[Row]:
    """All of it, in turns."""
    rng = random.Random(1)
    now, year = timedelta(minutes=10), timedelta(days=365)
    floored = [kind for kind in KINDS if kind[2]]
    recent, spread = cases(rng, now), cases(rng, year)
    recent_floored, spread_floored = cases(rng, now, floored), cases(rng, year, floored)
    found = in_turns(
        {
            "recent": ours(recent),
            "spread": ours(spread),
            "recent floored": ours(recent_floored),
            "spread floored": ours(spread_floored),
            "pandas recent": floors(recent_floored),
            "pandas spread": floors(spread_floored),
            "cron recent": crons(recent),
            "cron spread": crons(spread),
        },
        rounds=options.rounds(ROUNDS),
    )
    first = in_turns({"first": lambda: first_answers(recent)}, rounds=options.rounds(15))
    return [
        rate_row("buckets of events of the last ten minutes", found["recent"]),
        rate_row("buckets of events spread over a year", found["spread"]),
        ratio_row(
            "events of the last ten minutes, against pandas `Timestamp.floor`",
            found["recent floored"],
            found["pandas recent"],
        ),
        ratio_row(
            "events spread over a year, against pandas `Timestamp.floor`",
            found["spread floored"],
            found["pandas spread"],
        ),
        ratio_row(
            "events of the last ten minutes, against croniter",
            found["recent"],
            found["cron recent"],
        ),
        ratio_row(
            "events spread over a year, against croniter", found["spread"], found["cron spread"]
        ),
        Row(
            question="the first bucket of a schedule, all caches empty",
            measured=first["first"].micros(),
            value=first["first"].median * 1e6,
            limit=1_000,
            less_is_better=True,
            target="at most 1,000 µs",
            note="once a process, schedule and year; 200 schedules share 40 zones",
            figures={"first_us": first["first"].median * 1e6},
        ),
    ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahrules", "tzdata", "pandas", "croniter"])
