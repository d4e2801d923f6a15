"""How many events a second does a set of notification rules match?

The rules are those of `benchmarks/_rule_sets.py`: tenants of uneven size, some hundred rules a
tenant; 60 % of the rules name hosts (a third of these by a glob), 40 % networks, the rest a type
anywhere; 60 % name severities; 30 % have predicates. Every event's address is another one. The
peers have no index: they ask rule by rule, the tenant first, and so does a scan written by hand;
asked about the rules of the event's tenant only, they are as fast as the remark says. In the worst
case all rules are of one tenant and match every event. Times are those of the processor: nothing
here waits, and what else runs on the machine shall not count.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from _harness import Options, Row, Times, cpu_seconds_of, in_turns, main
from _match_peers import Matcher, by_json_logic, by_rule_engine, by_scan
from _rule_sets import Rule, Tenants, make_events, make_rules

from ahrules import NotificationRule, RuleSet, compile_rules
from ahwire import IncidentEvent

EVENTS = 4_000
# A peer takes some hundredths of a second an event, and with 100,000 rules ten times as long.
PEER_EVENTS = {100: 400, 10_000: 20, 100_000: 4}
PEER_ROUNDS = 5
ROUNDS = 15

Ours = Callable[[IncidentEvent], object]


def measure(options: Options) -> list[Row]:
    """Small, middle and large sets; the peers; changes; the worst case."""
    rounds = options.rounds(ROUNDS)
    rows = []
    sizes = ((100, 150_000, 50_000), (10_000, 150_000, 50_000), (100_000, 40_000, 25_000))
    for count, *limits in sizes[: 1 if options.quick else 3]:
        rows += [*throughput(count, limits, rounds), *peers(count, min(rounds, PEER_ROUNDS))]
    large = 2_000 if options.quick else 100_000
    return [*rows, *changes(large, rounds), worst(1_000 if options.quick else 10_000)]


def rate(match: Ours, events: Sequence[IncidentEvent]) -> float:
    """Events a second."""
    began = time.process_time()
    for event in events:
        match(event)
    return len(events) / (time.process_time() - began)


def rate_decoding(match: Ours, texts: Sequence[bytes]) -> float:
    """Events a second, each read from its JSON first."""
    began = time.process_time()
    for text in texts:
        match(IncidentEvent.from_json(text))
    return len(texts) / (time.process_time() - began)


def throughput(count: int, limits: Sequence[int], rounds: int) -> list[Row]:
    """Events that exist, and events that come as JSON."""
    tenants = Tenants(count)
    rule_set = compile_rules(make_rules(count, tenants))
    events = make_events(EVENTS, tenants)
    texts = [event.to_json() for event in events]
    found = sum(len(rule_set.match(event)) for event in events) / len(events)
    times = in_turns(
        {
            "decoded": lambda: rate(rule_set.match, events),
            "JSON": lambda: rate_decoding(rule_set.match, texts),
        },
        rounds=rounds,
    )
    rows = []
    for (name, values), limit in zip(times.items(), limits, strict=True):
        what = "events as JSON, decoding included" if name == "JSON" else "events decoded"
        rows.append(
            Row(
                question=f"match, {count:,} rules, {what}",
                measured=f"{values.each()} events/s",
                value=round(values.median),
                limit=limit,
                less_is_better=False,
                target=f"at least {limit:,} events/s",
                note=f"{found:.1f} matches an event; {len(tenants.names)} tenants. "
                f"Best round {max(values.values):,.0f} events/s",
                figures={
                    "events_a_second": round(values.median),
                    "best_events_a_second": round(max(values.values)),
                    "matches_an_event": round(found, 2),
                    "tenants": len(tenants.names),
                },
            )
        )
    return rows


def peers(count: int, rounds: int) -> list[Row]:
    """The same events by the peers, each checked to find as many matches as we do."""
    tenants = Tenants(count)
    rules = make_rules(count, tenants)
    events = make_events(EVENTS, tenants)
    rule_set = compile_rules(rules)
    few = events[: PEER_EVENTS[count]]
    own = [rule for rule in rules if rule["tenant_id"] == few[0].tenant_id]
    makers = {"json-logic": by_json_logic, "a scan by hand": by_scan}
    if count <= 10_000:
        # To compile an expression takes it half a millisecond.
        makers["rule-engine"] = by_rule_engine
    cases: dict[str, Callable[[], float]] = {"ours": lambda: rate(rule_set.match, events)}
    for name, maker in makers.items():
        match = maker(rules)
        for event in few:
            assert match(event) == len(rule_set.match(event)), (name, event)
        cases[name] = _rate_of(match, few)
        cases[f"{name}, own"] = _rate_of(maker(own), few[:1])
    times = in_turns(cases, rounds=rounds)
    return [peer_row(count, len(own), name, times) for name in makers]


def _rate_of(match: Matcher, events: Sequence[IncidentEvent]) -> Callable[[], float]:
    return lambda: rate(match, events)


def peer_row(count: int, own: int, name: str, times: Mapping[str, Times]) -> Row:
    """How many times as fast as a peer."""
    ours, peer = times["ours"].median, times[name].median
    is_asked = name != "a scan by hand" and count == 10_000
    limit = 5_000 if is_asked else 1
    alone = times[f"{name}, own"].median
    return Row(
        question=f"match, {count:,} rules, against {name}",
        measured=f"{ours / peer:,.0f} x: {ours:,.0f} against {times[name].each(1)} events/s",
        value=round(ours / peer, 1),
        limit=limit,
        less_is_better=False,
        target=f"at least {limit:,} x",
        note=f"given the {own:,} rules of the event's tenant alone it takes {alone:,.0f} events/s"
        + ("" if is_asked else "; the specification sets no figure here"),
        figures={
            "ours_events_a_second": round(ours),
            "peer_events_a_second": round(peer, 1),
            "peer_tenant_alone_events_a_second": round(alone, 1),
        },
    )


def changes(count: int, rounds: int) -> list[Row]:
    """Compiling, its memory, and replacing one rule."""
    rules = make_rules(count, Tenants(count))
    rounds = min(rounds, 5)
    compiling = Times(values=[cpu_seconds_of(lambda: compile_rules(rules)) for _ in range(rounds)])
    checked = [NotificationRule.from_dict(rule) for rule in rules]
    read = cpu_seconds_of(lambda: compile_rules(checked))
    before, peak, rule_set = memory(rules)
    replacing = [cpu_seconds_of(partial(replace, rule_set, rule)) * 1000 for rule in rules[:200]]
    taken = Times(values=replacing)
    return [
        Row(
            question=f"compile {count:,} rules from JSON values",
            measured=f"{compiling.each(2)} s",
            value=round(compiling.median, 2),
            limit=5,
            less_is_better=True,
            target="under 5 s",
            note=f"Rules that `from_dict` has read already take {read:.2f} s. The rules take "
            f"{before / 2**20:.0f} MiB once compiled, {peak / 2**20:.0f} MiB at most meanwhile",
            figures={
                "compile_seconds": round(compiling.median, 2),
                "compile_checked_seconds": round(read, 2),
                "memory_bytes": before,
                "memory_peak_bytes": peak,
            },
        ),
        Row(
            question=f"replace one rule in {count:,}",
            measured=f"{taken.each(2)} ms",
            value=round(taken.median, 2),
            limit=10,
            less_is_better=True,
            target="under 10 ms",
            note=f"the slowest of {len(replacing)}: {max(replacing):.1f} ms",
            figures={
                "replace_median_ms": round(taken.median, 2),
                "replace_max_ms": round(max(replacing), 2),
            },
        ),
    ]


def replace(rule_set: RuleSet, rule: Rule) -> RuleSet:
    """The set with other values in one rule."""
    filters = {"host": ["new-host"], "ip_address": ["203.0.113.0/24"], "event_type": ["new_*"]}
    return rule_set.replace([rule | {"enabled": True, "filters": filters}])


def memory(rules: Sequence[Rule]) -> tuple[int, int, RuleSet]:
    """Bytes that a rule set takes: its own and at most while it is made."""
    gc.collect()
    tracemalloc.start()
    rule_set = compile_rules(rules)
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held, peak, rule_set


def worst(count: int) -> Row:
    """All rules match all events, each after a look at the payload."""
    predicates = [{"field": "score", "op": "gte", "value": 0}]
    rules = [
        {"rule_id": f"r{number:06d}", "tenant_id": "t", "predicates": predicates}
        for number in range(count)
    ]
    rule_set = compile_rules(rules)
    tenants = Tenants(100)
    tenants.names = ["t" for _ in tenants.names]
    tenants.hosts = {"t": ["web-1"]}
    events = make_events(10, tenants)
    assert all(len(rule_set.match(event)) == count for event in events)
    began = time.process_time()
    for event in events:
        rule_set.match(event)
    each = (time.process_time() - began) / len(events) * 1000
    return Row(
        question=f"worst case: all of {count:,} rules, with a predicate each, match every event",
        measured=f"{each:.1f} ms an event, {each / count * 1e6:.0f} ns a match",
        value=round(each / count * 1e6),
        limit=5_000,
        less_is_better=True,
        target="under 5,000 ns a match",
        note="the limit is our own",
        figures={"event_ms": round(each, 2), "match_ns": round(each / count * 1e6)},
    )


if __name__ == "__main__":
    main(__file__, measure, packages=["ahrules", "google-re2", "rule-engine", "json-logic-qubit"])
