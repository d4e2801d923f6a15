from collections.abc import Iterator

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from ahwal import AgentConfig, enroll
from ahwal.testing import ScriptedCollector


class Sdk:
    """A real meter provider whose data a test takes by hand."""

    def __init__(self, *, views=(), resource=None, **reader) -> None:
        self.reader = InMemoryMetricReader(**reader)
        self.provider = MeterProvider(
            metric_readers=[self.reader],
            views=views,
            resource=Resource({"service.name": "shop", **(resource or {})}),
            shutdown_on_exit=False,
        )
        self.meter = self.provider.get_meter("tests")

    def data(self):
        return self.reader.get_metrics_data()


@pytest.fixture
def make_sdk() -> Iterator[type[Sdk]]:
    made = []

    def make(**options):
        made.append(Sdk(**options))
        return made[-1]

    yield make
    for sdk in made:
        sdk.provider.shutdown()


@pytest.fixture
def sdk(make_sdk) -> Sdk:
    return make_sdk()


@pytest.fixture
def collector() -> Iterator[ScriptedCollector]:
    with ScriptedCollector() as running:
        yield running


@pytest.fixture
def config(collector, tmp_path) -> AgentConfig:
    made = AgentConfig(
        collector_url=collector.url,
        state_dir=tmp_path / "state",
        shutdown_flush_seconds=1,
        # The pace allows two requests a second then, so that no flush has to wait for it.
        interval_seconds=1,
        allow_short_interval=True,
    )
    anyio.run(enroll, made, "a license")
    return made
