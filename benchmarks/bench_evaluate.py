"""How many points a second do threshold rules judge, and how long does a tick or a snapshot take?

100,000 series on 1,000 servers of one company, 24 rules of which a series meets none, one or two:
half of them compare the last point, half the average of five minutes; a thousandth of the points
breaches. Beside it a bare loop that looks the series up in a dict and compares its point, which is
the least that anybody could do. Nothing here waits, so seconds are those of the processor.
"""

import gc
import json
import tracemalloc
from collections.abc import Callable

from _harness import Options, Row, Times, cpu_seconds_of, in_turns, main

from ahrules.threshold import Evaluator, Series
from ahwire.hub import ThresholdRule

SERVERS = 1_000
SERIES_EACH = 100
RULES = 24
METRICS = 20
ROUNDS = 9
BEGIN = 1_796_000_000
STEP_SECONDS = 15
COMPANY = "acme"
Sent = list[tuple[str, Series, float]]


def rules() -> list[ThresholdRule]:
    """One for each metric and four more; some over some servers only, some over some mounts."""
    found = []
    for number in range(RULES):
        rule = {
            "rule_id": f"rule-{number}",
            "version": 1,
            "metric": f"ah_metric_{number % METRICS}",
            "op": "gt",
            "threshold": 0.998,
            "resolve_threshold": 0.9,
            "for_seconds": 60,
            "severity": "warning",
            "no_data": ("ok", "keep", "alert")[number % 3],
            "reminder_seconds": 1200,
        }
        if number % 2:
            rule |= {"agg": "avg", "agg_seconds": 300}
        if number % 4 == 3:
            rule |= {"servers": ["server-1*", "server-7"]}
        if number % 5 == 4:
            rule |= {"matchers": [{"label": "mount", "op": "nre", "value": "/(dev|proc|sys).*"}]}
        found.append(ThresholdRule.from_json(json.dumps(rule).encode()))
    return found


def points() -> Sent:
    """One point of each series, in the order in which agents send them."""
    return [
        (
            f"server-{server}",
            Series(
                name=f"ah_metric_{number % METRICS}",
                labels={"device": f"sd{number}", "mount": f"/data/{number}", "fs": "ext4"},
            ),
            ((server * 7919 + number * 104_729) % 1_000) / 1_000,
        )
        for server in range(SERVERS)
        for number in range(SERIES_EACH)
    ]


class Stream:
    """Sends a cycle of points, each with a later time."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.now = float(BEGIN)

    def into(self, evaluator: Evaluator) -> int:
        """Judge one cycle; return how many transitions there were."""
        self.now += STEP_SECONDS
        now, observe, told = self.now, evaluator.observe, 0
        for server, series, value in self.sent:
            told += len(observe(server, series, now, value))
        return told

    def unmade(self, evaluator: Evaluator) -> None:
        """The same, with a Series made anew of each point's name and labels."""
        self.now += STEP_SECONDS
        now, observe = self.now, evaluator.observe
        for server, series, value in self.sent:
            made = Series(name=series.name, labels=series.labels)
            observe(server, made, now, value)

    def bare(self, thresholds: dict[tuple[str, str], float]) -> int:
        """Look up and compare."""
        over = 0
        for server, series, value in self.sent:
            over += value > thresholds[server, series.key]
        return over


def rate(count: int, action: Callable[[], object]) -> float:
    """Points a second."""
    gc.collect()
    return count / cpu_seconds_of(action)


def filled(sent: Sent, cycles: int) -> tuple[Evaluator, Stream]:
    """An evaluator whose windows are full."""
    evaluator = Evaluator(company_id=COMPANY)
    evaluator.set_rules(rules(), BEGIN)
    stream = Stream(sent)
    for _ in range(cycles):
        stream.into(evaluator)
        evaluator.tick(stream.now)
    return evaluator, stream


def throughput(options: Options, sent: Sent) -> list[Row]:
    """Points a second, beside the bare loop."""
    evaluator, stream = filled(sent, 3 if options.quick else 22)
    thresholds = {(server, series.key): 0.998 for server, series, _ in sent}
    found = in_turns(
        {
            "ours": lambda: rate(len(sent), lambda: stream.into(evaluator)),
            "unmade": lambda: rate(len(sent), lambda: stream.unmade(evaluator)),
            "bare": lambda: rate(len(sent), lambda: stream.bare(thresholds)),
        },
        rounds=options.rounds(ROUNDS),
    )
    bare = found["bare"]
    return [
        rate_row("points judged a second, 100,000 series", found["ours"], bare, limit=200_000),
        rate_row(
            "the same, with the Series made anew for each point",
            found["unmade"],
            bare,
            limit=100_000,
            note="keep the Series beside its source, and this is not paid",
        ),
    ]


def rate_row(question: str, ours: Times, bare: Times, *, limit: float, note: str = "") -> Row:
    """A rate to reach, with the bare loop beside it."""
    ratio = bare.median / ours.median
    return Row(
        question=question,
        measured=f"{ours.each()}, {ratio:.1f} x the time of a bare loop ({bare.each()})",
        value=ours.median,
        limit=limit,
        less_is_better=False,
        target=f"at least {limit:,.0f}",
        note=note,
        figures={"ours_per_second": ours.median, "bare_per_second": bare.median},
    )


def pauses(options: Options, sent: Sent) -> list[Row]:
    """Ticks, snapshots and rules over all series."""
    evaluator, stream = filled(sent, 3 if options.quick else 22)
    rounds = options.rounds(ROUNDS)

    def tick(seconds: float) -> float:
        stream.into(evaluator)
        for server in range(SERVERS):
            evaluator.host_seen(f"server-{server}", stream.now)
        return cpu_seconds_of(lambda: evaluator.tick(stream.now + seconds))

    snapshot = evaluator.snapshot()

    def restore() -> float:
        other = Evaluator(company_id=COMPANY)
        return cpu_seconds_of(lambda: other.restore(snapshot))

    def longest_part() -> float:
        parts, longest = evaluator.snapshot_chunks(), 0.0
        ended = False

        def part() -> None:
            nonlocal ended
            ended = next(parts, None) is None

        while not ended:
            longest = max(longest, cpu_seconds_of(part))
        return longest

    changed = [rules()[1:], rules()]

    def change() -> float:
        changed.reverse()
        return cpu_seconds_of(lambda: evaluator.set_rules(changed[0], stream.now))

    def first_tick() -> float:
        # After a change of the rules all series are looked at, as after a start.
        change()
        return cpu_seconds_of(lambda: evaluator.tick(stream.now + 10))

    def change_and_tick() -> float:
        took = change()
        evaluator.tick(stream.now + 10)
        return took

    found = in_turns(
        {
            "tick": lambda: tick(10),
            "part": longest_part,
            "snapshot": lambda: cpu_seconds_of(evaluator.snapshot),
            "restore": restore,
            "rules": change_and_tick,
            "first tick": first_tick,
        },
        rounds=rounds,
    )
    return pause_rows(found, snapshot)


def pause_rows(found: dict[str, Times], snapshot: bytes) -> list[Row]:
    """The answers to `pauses`."""
    watches = sum(line.count(b'"rule-') for line in snapshot.split(b"\n")[1:])
    return [
        pause_row("a tick over 100,000 series", found["tick"], limit=0.1),
        pause_row("the first tick after a start or a change", found["first tick"], limit=0.5),
        pause_row(
            "the longest part of a snapshot of 100,000 series, 1,000 a part",
            found["part"],
            limit=0.05,
        ),
        pause_row(
            f"a whole snapshot ({len(snapshot) / 1e6:.1f} MB, {watches:,} rules over series)",
            found["snapshot"],
            limit=2.0,
        ),
        pause_row("restoring it", found["restore"], limit=5.0),
        pause_row("one rule put in or taken out", found["rules"], limit=0.5),
    ]


def pause_row(question: str, times: Times, *, limit: float) -> Row:
    """How long everything else waits."""
    low, high = times.quartiles
    return Row(
        question=question,
        measured=f"{times.median * 1e3:.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f})",
        value=times.median,
        limit=limit,
        less_is_better=True,
        target=f"at most {limit * 1e3:,.0f} ms",
        figures={"seconds": times.median},
    )


def memory(options: Options, sent: Sent) -> list[Row]:
    """What the evaluator holds, the Series themselves not counted."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    evaluator, _ = filled(sent, 2 if options.quick else 22)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    each = held / evaluator.series_count
    return [
        Row(
            question="memory for each series that a rule's metric names, windows of 5 minutes full",
            measured=f"{each:,.0f} bytes",
            value=each,
            limit=2_000,
            less_is_better=True,
            target="at most 2,000 bytes",
            figures={"bytes": held, "series": evaluator.series_count},
        )
    ]


def measure(options: Options) -> list[Row]:
    """All of it."""
    sent = points()
    return [*throughput(options, sent), *pauses(options, sent), *memory(options, sent)]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahrules", "ahwire"])
