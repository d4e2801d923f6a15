"""The collector's own metrics: what they are as data, and where they go.

A part is given a `Metrics` and counts with the constants below. `NullMetrics` forgets everything
and needs nothing; `PrometheusMetrics` (extra ``[metrics]``) keeps a registry of its own, so that a
host program's metrics and ours never meet. Durations are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ahcollector._extras import missing_extra
from ahcollector._metric import Kind, Metric
from ahcollector._metric import counter as _counter
from ahcollector._metric import gauge as _gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["ALL_METRICS", "Kind", "Metric", "Metrics", "NullMetrics", "PrometheusMetrics"]


INGEST_REQUESTS = _counter(
    "ahc_ingest_requests_total",
    "Requests to the agent doors by the code of the answer: ok, or the X-AH-Code of a refusal "
    "(unauthorized, rate_limited, unavailable …).",
    "code",
)
INGEST_POINTS = _counter("ahc_ingest_points_total", "Points accepted and put on the bus.")
INGEST_DROPPED_POINTS = _counter(
    "ahc_ingest_dropped_points_total",
    "Points that are not stored, by code: refused, which the sender is told, or passed over.",
    "code",
)
INGEST_SERIES_KNOWN = _gauge(
    "ahc_ingest_series_known", "Series that the budget of new series remembers, of all agents."
)
INGEST_SERIES_BEGUN = _counter(
    "ahc_ingest_series_begun_total", "Series that agents began within their budgets."
)
INGEST_SERIES_REFUSED = _counter(
    "ahc_ingest_series_refused_total", "Series refused in a batch: over the agent's budget."
)
INGEST_BUDGET_FAILURES = _counter(
    "ahc_ingest_budget_failures_total",
    "The store of known series gave no answer, by call: load, take or forget; or damaged (what it "
    "had could not be read), or forgotten (an agent went from memory before the store was told).",
    "call",
)
INGEST_ENROLL = _counter(
    "ahc_ingest_enroll_total",
    "Enrolments by result: ok, or the code of the refusal: license_invalid, token_used, "
    "already_enrolled, binding_failed, rate_limited or unavailable.",
    "result",
)
INGEST_BUS_DEPTH = _gauge(
    "ahc_ingest_bus_depth",
    "Batches that wait on the bus, all shards; held ones do not count. Of a bus that servers share "
    "each shows all: take the maximum.",
)
REGISTRY_LOOKUPS = _counter(
    "ahc_registry_lookups_total",
    "Token look-ups: cache, store, hub, negative, miss, limited or error.",
    "result",
)
REGISTRY_AGENTS = _gauge("ahc_registry_agents", "Agents that are active in the registry.")
REGISTRY_PUT_FAILURES = _counter(
    "ahc_registry_put_failures_total",
    "Answers of the hub to a look-up that the registry or presence did not take.",
)
REGISTRY_ORPHANS = _gauge(
    "ahc_registry_orphans", "Agents that the hub did not list at the last full sync."
)
REGISTRY_ORPHANS_REMOVED = _counter(
    "ahc_registry_orphans_removed_total", "Agents removed because the hub lists them no more."
)
LAST_FULL_SYNC = _gauge(
    "ahc_last_full_sync_timestamp_seconds", "When all agents of the hub were last read."
)
LAST_SYNC = _gauge(
    "ahc_last_sync_timestamp_seconds", "When the registry last followed the hub to the end."
)
BUS_DEPTH = _gauge(
    "ahc_bus_depth",
    "Batches that wait on one shard of the bus; held ones do not count. Of a bus that servers "
    "share each shows all: take the maximum of a shard.",
    "shard",
)
BUS_DEAD_LETTER = _counter(
    "ahc_bus_dead_letter_total",
    "Bus entries set aside, by reason: handler_failed (it raised five times), handler_died (the "
    "process died, or its lease ended, in each of five tries) or unreadable.",
    "reason",
)
BUS_DEAD_LETTERS_DROPPED = _counter(
    "ahc_bus_dead_letters_dropped_total", "Dead letters of the bus that made room for newer ones."
)
BUS_HELD = _gauge(
    "ahc_bus_held", "Bus entries handed over in this process and not acknowledged yet."
)
BUS_STRANGE = _counter(
    "ahc_bus_strange_total",
    "Times that a look at the bus's shared state found what no worker wrote there, by key: "
    "workers, wants, lease, fence, group, stream, table or tries.",
    "key",
)
BUS_OLDEST_AGE = _gauge(
    "ahc_bus_oldest_age_seconds",
    "Age of the oldest entry that a bus on NATS holds, as of the last sample; 0: it holds none. "
    "Held ones count: some 15 s (tsdb.durable_after_seconds) are normal. Another bus: always 0.",
)
BUS_OVERDUE = _counter(
    "ahc_bus_overdue_total",
    "Entries that waited on a bus on NATS for longer than it is sized for; none is dropped for it.",
)
TSDB_SAMPLES_WRITTEN = _counter("ahc_tsdb_samples_written_total", "Samples the store took.")
TSDB_SAMPLES_DROPPED = _counter(
    "ahc_tsdb_samples_dropped_total",
    "Samples left out of a write that the store took: non_finite, too_old, in_future, or over a "
    "bound of the memory store (points_max, series_max).",
    "reason",
)
TSDB_SILENT_DROPS = _counter(
    "ahc_tsdb_silent_drops_total",
    "Rows that the counters of VictoriaMetrics say it dropped or changed in silence, whoever wrote "
    "them, by reason; each process that watches it counts all.",
    "reason",
)
TSDB_WRITE_ERRORS = _counter(
    "ahc_tsdb_write_errors_total",
    "Failed writes by kind: temporary (they are repeated), permanent (the store refuses a batch) "
    "or unexpected.",
    "kind",
)
TSDB_REWRITTEN = _counter(
    "ahc_tsdb_rewritten_total",
    "Batches that were written and are written again, because the store may have lost them.",
)
TSDB_BATCHES_DROPPED = _counter(
    "ahc_tsdb_batches_dropped_total",
    "Batches that were not stored, by reason: refused (by the store, for good) or unexpected (the "
    "store raised five times), both set aside as dead; or deleted (their server was deleted since "
    "they came).",
    "reason",
)
DEPARTURES_DROPPED = _counter(
    "ahc_departures_dropped_total",
    "Deletions that are remembered no more because there are too many of them.",
)
WORKER_DEAD_BATCHES_DROPPED = _counter(
    "ahc_worker_dead_batches_dropped_total",
    "Refused batches that made room, by bound: count, bytes or age; or one that was too_large.",
    "reason",
)
WORKER_DEAD_BATCHES_DAMAGED = _counter(
    "ahc_worker_dead_batches_damaged_total",
    "Refused batches that were found damaged and set aside.",
)
WORKER_BATCHES = _counter("ahc_worker_batches_total", "Batches that workers took from the bus.")
TSDB_FLUSH_SECONDS = Metric(
    name="ahc_tsdb_flush_seconds", kind=Kind.HISTOGRAM, help="How long one write to the store took."
)
WORKER_PENDING_SAMPLES = _gauge(
    "ahc_worker_pending_samples", "Samples taken from the bus and not yet written."
)
WORKER_HELD_BATCHES = _gauge(
    "ahc_worker_held_batches",
    "Batches written and not acknowledged to the bus yet, because the store may still lose them.",
)
PRESENCE_LATE_CONTACTS = _counter(
    "ahc_presence_late_contacts_total",
    "Contacts of agents that had been removed a moment before: they make nobody watched again.",
)
PRESENCE_LOST = _counter(
    "ahc_presence_lost_total",
    "Redis forgot presence while this process ran: downs and untold transitions were lost.",
)
AGENTS_DOWN = _gauge("ahc_agents_down", "Agents that are down now.")
DETECTOR_BLIND = _gauge("ahc_detector_blind", "1 while the detector cannot judge silence, else 0.")
EVENTS_EMITTED = _counter("ahc_events_emitted_total", "Events put in the outbox, by type.", "type")
EVENTS_REPEATED = _counter(
    "ahc_events_repeated_total",
    "Events of agents told once more and put in the outbox, by reason: silence_ended or "
    "group_ended; they are not among the emitted.",
    "reason",
)
EVENTS_RETRY = _gauge(
    "ahc_events_retry",
    "Events of agents decided and not in the outbox: of transitions, groups and ended silences.",
)
DETECTOR_TURN = _gauge(
    "ahc_detector_turn", "1 while this process works the events of agents, else 0."
)
EVENTS_LOST = _counter("ahc_events_lost_total", "Events lost by type; must stay 0.", "type")
OUTBOX_EVENTS_SENT = _counter("ahc_outbox_events_sent_total", "Events the hub took.")
OUTBOX_SEND_FAILURES = _counter(
    "ahc_outbox_send_failures_total",
    "Failed deliveries to the hub by kind: temporary, permanent (the hub refuses a request), odd "
    "(a 4xx without the hub's code), incomplete (it did not tell of each event), fenced or "
    "lease_lost (another one sends), fence_senseless (the hub names a newest fence that none can "
    "be above), or outbox (which gave no answer).",
    "kind",
)
OUTBOX_DEAD_LETTER = _counter(
    "ahc_outbox_dead_letter_total",
    "Events set aside as dead letters, by reason: rejected, refused, expired or unreadable.",
    "reason",
)
OUTBOX_DEPTH = _gauge("ahc_outbox_depth", "Events the hub has not yet taken.")
OUTBOX_OLDEST_AGE = _gauge(
    "ahc_outbox_oldest_age_seconds", "Age of the oldest event the hub has not yet taken."
)
OUTBOX_DEAD_LETTERS_DROPPED = _counter(
    "ahc_outbox_dead_letters_dropped_total",
    "Dead letters of the outbox that the bounds (count, bytes, age) pushed out.",
)
OUTBOX_DISCARDED = _counter(
    "ahc_outbox_discarded_total", "Events discarded because there is no hub, by type.", "type"
)
LEASE_HELD = _gauge("ahc_lease_held", "1 while this process holds the sender's lease, else 0.")
LAST_SCAN = _gauge("ahc_last_scan_timestamp_seconds", "When the detector last scanned to the end.")
HUB_PULL_FAILURES = _counter(
    "ahc_hub_pull_failures_total",
    "Times that the hub gave no list, by list: rules or silences; the last one stays in force.",
    "list",
)
RULES_IN_FORCE = _gauge("ahc_rules_in_force", "Threshold rules of the hub that can be used.")
RULES_REFUSED = _gauge("ahc_rules_refused", "Threshold rules of the hub that cannot be used.")
LAST_RULES_SYNC = _gauge(
    "ahc_last_rules_sync_timestamp_seconds", "When the hub last answered for the threshold rules."
)
SILENCES_IN_FORCE = _gauge("ahc_silences_in_force", "Silences of the hub that can be used.")
SILENCES_REFUSED = _gauge("ahc_silences_refused", "Silences of the hub that cannot be used.")
LAST_SILENCES_SYNC = _gauge(
    "ahc_last_silences_sync_timestamp_seconds", "When the hub last answered for the silences."
)
RULES_EVENTS_RETRY = _gauge(
    "ahc_rules_events_retry", "Events of threshold rules decided and not in the outbox yet."
)
RULES_SERIES = _gauge(
    "ahc_rules_series", "Series that threshold rules are judged over in this process."
)
RULES_POINTS_DROPPED = _counter(
    "ahc_rules_points_dropped_total",
    "Points that no threshold rule judged, by reason: late, not_finite, rule_failed, a bound of "
    "the evaluator; rules_unknown, state_unavailable, departed (their server has left), or "
    "events_waiting.",
    "reason",
)
RULES_STATES_LOST = _counter(
    "ahc_rules_states_lost_total",
    "Redis forgot the states of alerts while this process ran.",
)
RULES_UNITS_FORGOTTEN = _counter(
    "ahc_rules_units_forgotten_total",
    "Units (a company in a shard) that their store had forgotten and this process had in memory, "
    "by outcome: given_back, or lost (another process began them anew: their open alerts open "
    "again).",
    "outcome",
)
RULES_LISTS_OLD = _counter(
    "ahc_rules_lists_old_total",
    "Units that are judged by older rules or silences than their last owner had, because newer "
    "ones did not come in time.",
)
RULES_STATE_FAILURES = _counter(
    "ahc_rules_state_failures_total",
    "The store of the states of alerts and agents gave no answer, by call: units, look, claim, "
    "commit, told, remove or turn; or damaged (what it had could not be read).",
    "call",
)

# Those defined above, in their order: a list beside them could forget one.
ALL_METRICS: tuple[Metric, ...] = tuple(
    one for one in tuple(globals().values()) if isinstance(one, Metric)
)
"""Every metric that some part of this package really moves."""


class Metrics(Protocol):
    """Where the parts count. Every method is cheap, never blocks and never fails."""

    def inc(self, metric: Metric, amount: float = 1.0, /, **labels: str) -> None:
        """Add `amount` (not negative) to a counter."""
        ...

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        ...

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Add one observation to a histogram."""
        ...

    def watch(self, metric: Metric, read: Callable[[], float], /, **labels: str) -> None:
        """Let a gauge ask `read` at each scrape; the newest reader wins."""
        ...


class NullMetrics:
    """Counts nothing; what parts use when they are given no metrics."""

    def inc(self, metric: Metric, amount: float = 1.0, /, **labels: str) -> None:
        """Do nothing."""

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Do nothing."""

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Do nothing."""

    def watch(self, metric: Metric, read: Callable[[], float], /, **labels: str) -> None:
        """Do nothing."""


class PrometheusMetrics:
    """Keeps every metric of `ALL_METRICS` in one registry of prometheus_client.

    Args:
        registry: Where to register; a new registry by default.
        metrics: The metrics to register, each once.

    Raises:
        ImportError: The extra ``[metrics]`` is not installed.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry | None = None,
        metrics: tuple[Metric, ...] = ALL_METRICS,
    ) -> None:
        # Imported here, so that a program without the extra can import this module.
        try:
            import prometheus_client as prom  # noqa: PLC0415 - an optional extra
        except ModuleNotFoundError as error:
            raise missing_extra("PrometheusMetrics", "metrics", error) from error

        self.registry = registry if registry is not None else prom.CollectorRegistry()
        self.content_type: str = prom.CONTENT_TYPE_LATEST
        self._render = prom.generate_latest
        self._counters: dict[str, prom.Counter] = {}
        self._gauges: dict[str, prom.Gauge] = {}
        self._histograms: dict[str, prom.Histogram] = {}
        # Finding the child of a label set costs more than counting in it, and is done per request.
        self._children: dict[tuple[str, tuple[tuple[str, str], ...]], prom.Counter] = {}
        for metric in metrics:
            if metric.kind is Kind.COUNTER:
                self._counters[metric.name] = prom.Counter(
                    metric.name, metric.help, metric.labels, registry=self.registry
                )
            elif metric.kind is Kind.GAUGE:
                self._gauges[metric.name] = prom.Gauge(
                    metric.name, metric.help, metric.labels, registry=self.registry
                )
            else:
                self._histograms[metric.name] = prom.Histogram(
                    metric.name, metric.help, metric.labels, registry=self.registry
                )

    def inc(self, metric: Metric, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        key = metric.name, tuple(labels.items())
        child = self._children.get(key)
        if child is None:
            counter = self._counters[metric.name]
            child = self._children[key] = counter.labels(**labels) if labels else counter
        child.inc(amount)

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[metric.name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Observe in a histogram."""
        histogram = self._histograms[metric.name]
        (histogram.labels(**labels) if labels else histogram).observe(value)

    def watch(self, metric: Metric, read: Callable[[], float], /, **labels: str) -> None:
        """Let a gauge ask at each scrape."""
        gauge = self._gauges[metric.name]
        (gauge.labels(**labels) if labels else gauge).set_function(read)

    def exposition(self) -> bytes:
        """Return the text a scraper reads; serve it with `content_type`."""
        return self._render(self.registry)
