"""From the families of a registry to samples, names and labels as a scrape would show them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from ahwal._sample import Sample
from ahwal.prometheus._client import prometheus_client

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# The kinds of which prometheus_client also tells when each series was made.
_DATED = frozenset({"counter", "gaugehistogram", "histogram", "summary"})


class Registry(Protocol):
    """What is read of a registry; `prometheus_client.CollectorRegistry` is one."""

    def collect(self) -> "Iterable[Metric]":
        """Return the families with their samples at this moment."""
        ...


@frozen(kw_only=True)
class RegistryCollector:
    """A registry as a `Collector` of the agent.

    Attributes:
        registry: Read in each cycle.
        name: The collector's name, by which it can be switched off.
        created: Whether the `_created` series are sent too.
    """

    registry: Registry
    name: str = "prometheus"
    created: bool = False

    def prime(self) -> None:
        """Nothing to do: counters are sent as they are."""

    def collect(self) -> Iterator[Sample]:
        """Read the registry.

        Raises:
            Exception: What a custom collector in the registry raises. As at a scrape, the whole
                registry then has no samples in this cycle; other collectors of the agent do.
        """
        for family in self.registry.collect():
            left_out = f"{family.name}_created" if family.type in _DATED else ""
            for sample in family.samples:
                if sample.name == left_out and not self.created:
                    continue
                if getattr(sample, "native_histogram", None) is not None:
                    # One structured value, which no point can carry; its classic series are
                    # samples of their own.
                    continue
                yield Sample(sample.name, sample.value, sample.labels)


def collector(
    registry: Registry | None = None, name: str = "prometheus", *, created: bool = False
) -> RegistryCollector:
    """Return a registry as a collector: `Agent(config, [ahwal.prometheus.collector()])`.

    Counters, gauges, histograms, summaries, infos and enums are sent under the names and labels of
    a scrape (`_total`, `_bucket` with `le`, `_sum`, `_count`, `_info`); the collector at the other
    end adds the prefix `ah_`. All get the time of the cycle: time stamps of custom collectors and
    exemplars are left out. A value that is not finite or no number is dropped alone and counted.

    Args:
        registry: Default: `prometheus_client.REGISTRY`, taken at this call. In multiprocess mode a
            registry with a `prometheus_client.multiprocess.MultiProcessCollector`.
        name: The collector's name; one agent may have several registries of different names.
        created: Send the `_created` series too, one more for each counter, histogram and summary.
    """
    chosen = prometheus_client.REGISTRY if registry is None else registry
    return RegistryCollector(registry=chosen, name=name, created=created)
