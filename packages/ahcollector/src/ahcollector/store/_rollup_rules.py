"""The recording rules that make rollups, as a rule file of vmalert.

A rule has one fixed name, so each metric has rules of its own: sum, count, minimum and maximum of
5 minutes and of an hour. The average is sum over count, which stays right over any longer step;
an average of averages would not. Rules keep all labels, and so the tenant. Both windows are taken
from the samples, so that neither waits for the other.

Windows must follow one another without a gap and without an overlap, or sums count samples twice.
A replay asks every rule in steps of its own choice (five minutes by default, for hours too), and so
a rule has a value at the ends of its windows only. vmalert evaluates at multiples of the interval;
without ``nocache`` the store would move the time when it is in the last half minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ahcollector.store._range_plan import ROLLUP_AGGREGATES, WINDOW_MS, Source, rollup_name
from ahwire.names import metric_name

__all__ = ["rollup_rules"]


def rollup_rules(metrics: Iterable[str]) -> str:
    """Return a rule file (YAML) for vmalert that records the rollups of metrics.

    Args:
        metrics: Their names, with or without ``ah_``; each has eight rules.

    Raises:
        ValueError: There are none, or one has no name.
    """
    names = sorted({metric_name(metric) for metric in metrics})
    if not names or "" in names:
        raise ValueError("rollup rules need the names of metrics, none of them empty")
    return "\n".join(["groups:", *_group(names, Source.FIVE_MINUTES), *_group(names, Source.HOUR)])


def _group(names: list[str], source: Source) -> Iterator[str]:
    yield f"  - name: ah_rollups_{source}"
    yield f"    interval: {source}"
    yield '    params: {nocache: ["1"]}'
    yield "    rules:"
    for name in names:
        for aggregate in ROLLUP_AGGREGATES:
            at_its_end = f"time() % {WINDOW_MS[source] // 1000} == 0"
            expression = f"{aggregate}_over_time({name}[{source}]) and on() ({at_its_end})"
            # Strings of JSON are strings of YAML.
            yield f"      - record: {json.dumps(rollup_name(name, source, aggregate))}"
            yield f"        expr: {json.dumps(expression)}"
