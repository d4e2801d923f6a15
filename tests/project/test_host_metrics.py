"""The table of the host's metrics is what the collectors yield on this machine."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from ah_server.cli import _rollups
from ahwal.host import _collectors, collectors

sys.path.insert(0, str(Path(__file__).parent))
from host_metrics import HOST_METRICS  # a script beside this file

KNOWN = {metric.name: metric for metric in HOST_METRICS}


@pytest.fixture(scope="module")
def yielded():
    """What each collector really yields here: (collector, name, labels)."""
    made = collectors()
    for collector in made:
        collector.prime()
    return {
        (each.name, sample.name, ",".join(sample.labels))
        for each in made
        for sample in each.collect()
    }


def test_every_sample_of_a_collector_has_its_line(yielded):
    told = {(metric.collector, metric.name, metric.label) for metric in HOST_METRICS}
    assert sorted(yielded - told) == []


def test_every_line_is_measured_where_the_system_tells_it(yielded):
    names = {name for _, name, _ in yielded}
    assert [name for name, metric in KNOWN.items() if metric.anywhere and name not in names] == []


def test_no_line_and_no_metric_is_one_of_another_system():
    """What this machine does not tell stands in the collectors all the same."""
    source = inspect.getsource(_collectors)
    named = set(re.findall(r'Sample\(f?"([^"]+)"', source)) - {"load_{minutes}m"}
    assert named == {name for name in KNOWN if not re.fullmatch(r"load_\d+m", name)}


def test_a_name_says_its_unit():
    wrong = [
        metric.name
        for metric in HOST_METRICS
        if metric.unit in {"bytes", "percent", "seconds"}
        and not metric.name.removesuffix("_total").endswith(f"_{metric.unit}")
    ]
    assert not wrong
    assert len(KNOWN) == len(HOST_METRICS)


def test_rollup_rules_are_printed_for_each_of_them():
    assert sorted(_rollups.HOST_METRICS) == sorted(KNOWN)
