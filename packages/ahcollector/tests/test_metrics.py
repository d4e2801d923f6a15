"""The table of metrics is what is exported, under those very names."""

import re
from pathlib import Path

import pytest

import ahcollector.metrics
from ahcollector.metrics import ALL_METRICS, Kind, NullMetrics, PrometheusMetrics


def use(metrics):
    for metric in ALL_METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind is Kind.COUNTER:
            metrics.inc(metric, 2, **labels)
        elif metric.kind is Kind.GAUGE:
            metrics.set(metric, 3, **labels)
        else:
            metrics.observe(metric, 0.1, **labels)


def test_every_metric_is_exported_under_its_name():
    metrics = PrometheusMetrics()
    use(metrics)
    text = metrics.exposition().decode()
    for metric in ALL_METRICS:
        assert f"# HELP {metric.name} {metric.help}" in text.replace("_total ", "_total ") or (
            f"# HELP {metric.name.removesuffix('_total')}" in text
        )
        assert f"\n{metric.name}" in text
    assert metrics.content_type.startswith("text/plain")


def test_names_and_labels_keep_the_rules():
    assert len({metric.name for metric in ALL_METRICS}) == len(ALL_METRICS)
    for metric in ALL_METRICS:
        assert metric.name.startswith("ahc_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.help.endswith(".")


def test_a_watched_gauge_is_read_at_each_scrape():
    from ahcollector.metrics import BUS_DEPTH, OUTBOX_DEPTH

    metrics = PrometheusMetrics()
    depth = [1.0]
    metrics.watch(OUTBOX_DEPTH, lambda: depth[0])
    metrics.watch(BUS_DEPTH, lambda: 9.0, shard="3")
    assert b"ahc_outbox_depth 1.0" in metrics.exposition()
    depth[0] = 5.0
    assert b"ahc_outbox_depth 5.0" in metrics.exposition()
    assert b'ahc_bus_depth{shard="3"} 9.0' in metrics.exposition()


def test_two_instances_never_meet():
    one, other = PrometheusMetrics(), PrometheusMetrics()
    use(one)
    assert b'ahc_ingest_requests_total{code="x"}' not in other.exposition()


def test_without_metrics_nothing_happens():
    metrics = NullMetrics()
    use(metrics)
    metrics.watch(ALL_METRICS[0], lambda: pytest.fail("never read"))


def test_every_metric_of_the_table_is_moved_by_some_part():
    """One that nothing moves is worse than none: it always says that all is well."""
    package = Path(ahcollector.metrics.__file__).parent
    parts = (path for path in package.rglob("*.py") if path.name != "metrics.py")
    source = "".join(path.read_text(encoding="utf-8") for path in parts)
    names = {
        name
        for name, value in vars(ahcollector.metrics).items()
        if value in ALL_METRICS and not name.startswith("_")
    }
    assert len(names) == len(ALL_METRICS)
    assert {name for name in names if not re.search(rf"\b{name}\b", source)} == set()
