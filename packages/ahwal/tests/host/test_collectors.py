"""This machine's metrics, really read."""

import math
import subprocess
import sys

import pytest

from ahwal.agent import Collector
from ahwal.host import collectors, inventory

NAMES = [
    "cpu", "memory", "swap", "load", "disks", "disk_io", "network", "uptime", "processes", "self",
]  # fmt: skip


@pytest.fixture(scope="module")
def samples():
    found = {}
    for collector in collectors():
        collector.prime()
        found[collector.name] = list(collector.collect())
    return found


def test_the_collectors_are_those_that_are_documented():
    made = collectors()
    assert [collector.name for collector in made] == NAMES
    assert all(isinstance(collector, Collector) for collector in made)


def test_every_value_is_finite_and_every_series_there_once(samples):
    everything = [sample for part in samples.values() for sample in part]
    assert all(math.isfinite(sample.value) for sample in everything)
    keys = [(sample.name, *sorted(sample.labels.items())) for sample in everything]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("collector", "name", "low", "high"),
    [
        ("cpu", "cpu_usage_percent", 0, 100),
        ("cpu", "cpu_count", 1, 10_000),
        ("memory", "memory_used_percent", 0, 100),
        ("memory", "memory_total_bytes", 1 << 20, 1 << 60),
        ("load", "load_1m", 0, 1e6),
        ("disks", "disk_used_percent", 0, 100),
        ("uptime", "uptime_seconds", 0, 1e10),
        ("processes", "processes_count", 1, 1e7),
        ("self", "agent_rss_bytes", 1 << 20, 1 << 40),
    ],
)
def test_what_people_look_for_is_there_and_plausible(samples, collector, name, low, high):
    values = [sample.value for sample in samples[collector] if sample.name == name]
    assert values
    assert all(low <= value <= high for value in values)


def test_the_root_is_among_the_mounts(samples):
    assert "/" in {sample.labels["mount"] for sample in samples["disks"]}


def test_a_mount_that_is_gone_costs_no_other(tmp_path):
    disks = next(
        c for c in collectors(mounts=lambda: [str(tmp_path / "gone"), "/"]) if c.name == "disks"
    )
    assert {sample.labels["mount"] for sample in disks.collect()} == {"/"}


def test_the_inventory_describes_this_machine():
    report = inventory(now_ms=5)
    assert report.collected_at_ms == 5
    assert report.hostname
    assert report.cpus >= 1
    assert report.memory_bytes > 0


def test_without_psutil_the_import_says_what_to_install():
    code = (
        "import sys; sys.modules['psutil'] = None\n"
        "import ahwal\n"
        "try:\n    import ahwal.host\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install ahwal[host]" in done.stdout
