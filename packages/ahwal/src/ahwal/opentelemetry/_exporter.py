"""The exporter: from the SDK's thread to the agent's queue on disk."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ahwal.agent import Agent, AgentConfig, Collect, Collector
from ahwal.errors import ConfigError
from ahwal.opentelemetry._convert import Converter, Refused
from ahwal.opentelemetry._sdk import INSTRUMENTS, Aggregation, data

# Series are told apart by server already; a random service.instance.id would make them all new at
# each start.
DEFAULT_RESOURCE_LABELS: Mapping[str, str] = {"service.name": "job"}


class AhwalMetricExporter(data.MetricExporter):
    """A metric exporter whose data survives restarts of the program and outages of the collector.

    `export` puts the data into an agent's queue on disk, at the time at which the SDK collected it,
    and returns; the agent delivers it beside that, for as long as it takes. Everything here may be
    called from any thread, and nothing raises but the constructor.

    Made with a configuration, the exporter has an agent of its own: it starts with the exporter,
    sends what an earlier process left within 2 seconds, and ends with `shutdown`. Made with an
    agent, it uses that one, which starts and ends as its owner likes.

    In a forked child nothing can be exported; make the exporter after the fork, with a state
    directory for each process.

    Args:
        agent: A configuration, or an agent that runs or is about to.
        collect: Further collectors of the own agent, such as `ahwal.host.collectors()`.
        resource_labels: Resource attributes to take, and the labels that they become; all others
            are left out.
        scope_labels: Add the name and version of the instrumentation scope as `otel_scope_name` and
            `otel_scope_version`. Without them instruments of one name in two scopes are one series,
            of which the second point is refused.
        preferred_aggregation: As in the SDK, by class of instrument.
        logger: Default: the logger `ahwal.opentelemetry`.

    Raises:
        ConfigError: A wrong setting, or collectors for an agent that is not the exporter's own.
        NotEnrolledError: The state directory holds no identity.
        CredentialsError: The identity cannot be read.
    """

    def __init__(
        self,
        agent: Agent | AgentConfig,
        collect: Collect | Collector | Sequence[Collector | Collect] = (),
        *,
        resource_labels: Mapping[str, str] = DEFAULT_RESOURCE_LABELS,
        scope_labels: bool = True,
        preferred_aggregation: Mapping[type, Aggregation] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        # Cumulative values are right whatever was lost or repeated before them.
        super().__init__(
            preferred_temporality=dict.fromkeys(
                INSTRUMENTS, data.AggregationTemporality.CUMULATIVE
            ),
            preferred_aggregation=dict(preferred_aggregation or {}),
        )
        self._log = logger if logger is not None else logging.getLogger("ahwal.opentelemetry")
        self._converter = Converter(
            resource_labels=dict(resource_labels), scope_labels=scope_labels
        )
        self._lock = threading.Lock()
        self._refused: dict[Refused, int] = dict.fromkeys(Refused, 0)
        self._shut_down = False
        self._owned = isinstance(agent, AgentConfig)
        if isinstance(agent, AgentConfig):
            self._agent = Agent(agent, collect)
            self._agent.__enter__()
        elif isinstance(collect, Sequence) and not collect:
            self._agent = agent
        else:
            raise ConfigError("collect is for the exporter's own agent; give it to yours")

    def __repr__(self) -> str:
        return f"<AhwalMetricExporter over {self._agent!r}>"

    @property
    def agent(self) -> Agent:
        """The agent that delivers; its status has the figures of the queue."""
        return self._agent

    @property
    def refused(self) -> Mapping[Refused, int]:
        """Data points that were not exported, by reason. A warning told of the first of each."""
        with self._lock:
            return dict(self._refused)

    def export(
        self,
        metrics_data: data.MetricsData,
        timeout_millis: float = 10_000,
        **kwargs: Any,  # noqa: ARG002 - part of the SDK's signature
    ) -> data.MetricExportResult:
        """Put the data on disk.

        Args:
            metrics_data: From the SDK.
            timeout_millis: How long to wait for an agent that starts, or for a disk that is busy
                with an earlier call; this call's own write takes the time that the disk takes.
            **kwargs: Ignored.

        Returns:
            SUCCESS: The disk has all of it that can be sent, and a crash loses nothing. What cannot
            be sent was counted: in `refused`, or as `not_finite` and `bad_sample` by the agent.
            FAILURE: Some of it is not on disk, or all of it was refused. What the disk refused
            waits in memory and may still arrive.
        """
        deadline = time.monotonic() + timeout_millis / 1000
        if self._shut_down:
            self._log.warning("metrics were exported after the shutdown; they are lost")
            return data.MetricExportResult.FAILURE
        converted = self._converter.convert(metrics_data, now_ms=time.time_ns() // 1_000_000)
        self._count(converted.refused)
        kept = bool(converted.samples) or not converted.refused
        for collected_at_ms, samples in converted.samples.items():
            enqueued = self._agent.enqueue(
                samples,
                collected_at_ms=collected_at_ms,
                timeout_seconds=max(0.0, deadline - time.monotonic()),
            )
            kept = kept and enqueued.on_disk
        return data.MetricExportResult.SUCCESS if kept else data.MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Wait until everything exported has been delivered, or dropped by the agent's rules.

        Returns:
            Whether that is so. After False the data still is on disk, and delivery goes on.
        """
        return self._agent.flush(timeout_millis / 1000)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Take no more data; end the own agent, which sends what it can and keeps the rest on disk.

        Args:
            timeout_millis: How long to wait for that end at most.
            **kwargs: `timeout`, under which the SDK's periodic reader passes its milliseconds.
        """
        timeout_millis = kwargs.get("timeout", timeout_millis)
        with self._lock:
            first, self._shut_down = not self._shut_down, True
        if not self._owned or not first:
            return
        self._agent.stop()
        if not self._agent.join(max(0.0, timeout_millis / 1000)):
            self._log.warning("the agent has not ended in time; what is queued is on disk")

    def _count(self, refused: Mapping[Refused, int]) -> None:
        for reason, points in refused.items():
            with self._lock:
                first = not self._refused[reason]
                self._refused[reason] += points
            if first:
                self._log.warning("data points are not exported: %s", _EXPLAINED[reason])


_EXPLAINED = {
    Refused.DELTA: "delta temporality cannot survive a repeated batch; use cumulative",
    Refused.DUPLICATE: "two points of one export have the same name, labels and time; "
    "rename an instrument, or keep scope_labels",
    Refused.UNKNOWN_KIND: "a kind of data that this version does not know",
}
