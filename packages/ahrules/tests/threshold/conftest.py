"""A company of one server whose clock the test turns."""

import pytest

from ahrules.threshold import Evaluator, Series
from ahwire.hub import ThresholdRule

BEGIN = 1_796_000_000.0


def rule(**fields):
    """A rule of `cpu > 90` with these fields over it, checked as the hub's are."""
    given = {
        "rule_id": "r",
        "version": 1,
        "metric": "cpu",
        "op": "gt",
        "threshold": 90,
        "severity": "critical",
    } | fields
    import json

    return ThresholdRule.from_json(json.dumps(given).encode())


class Bench:
    """An evaluator with one series; times are seconds since the beginning."""

    def __init__(self, *rules, **options):
        self.options = {"company_id": "acme"} | options
        self.evaluator = Evaluator(**self.options)
        self.series = Series(name="cpu", labels={"core": "0"})
        self.told = []
        self.rules(*rules, at=0)

    def _keep(self, told):
        self.told += told
        return [(one.kind.value, one.reason.value) for one in told]

    def rules(self, *rules, at):
        return self._keep(self.evaluator.set_rules(rules, BEGIN + at))

    def point(self, at, value, *, series=None, server="web-1"):
        return self._keep(self.evaluator.observe(server, series or self.series, BEGIN + at, value))

    def points(self, values, *, every=10, begin=0):
        told = []
        for number, value in enumerate(values):
            told += self.point(begin + number * every, value)
        return told

    def tick(self, at):
        return self._keep(self.evaluator.tick(BEGIN + at))

    def ticks(self, begin, end, *, every=10, seen=True):
        """Tick from one time to another, the server seen before each."""
        told = []
        for at in range(begin, end + 1, every):
            if seen:
                self.seen(at)
            told += [(at, *one) for one in self.tick(at)]
        return told

    def seen(self, at):
        self.evaluator.host_seen("web-1", BEGIN + at)

    def restart(self):
        """Die, and begin anew from what was kept."""
        kept = self.evaluator.snapshot()
        self.evaluator = Evaluator(**self.options)
        self.evaluator.restore(kept)
        assert self.evaluator.snapshot() == kept

    @property
    def state(self):
        found = self.evaluator.state("r", "web-1", self.series.key)
        return None if found is None else found.name


@pytest.fixture(scope="session", name="rule")
def _rule():
    return rule


@pytest.fixture(scope="session", name="bench")
def _bench():
    """Make a `Bench` of these rules."""
    return Bench


@pytest.fixture(scope="session", name="begin")
def _begin():
    return BEGIN
