"""What the agent says about itself: its process, and its own metrics as samples."""

import importlib
import os
import sys
import time
from pathlib import Path

from attrs import frozen

from ahwal._sample import Sample
from ahwal.sender import SenderStatus


@frozen(kw_only=True)
class OwnMetric:
    """One of the agent's own metrics.

    Attributes:
        name: The series' name.
        label: Its label; empty for none.
        help: What it tells.
    """

    name: str
    label: str = ""
    help: str


OWN_METRICS = (
    OwnMetric(name="agent_wal_bytes", help="bytes that the queue takes"),
    OwnMetric(name="agent_wal_batches", help="batches that wait"),
    OwnMetric(
        name="agent_wal_dropped_batches_total",
        label="reason",
        help="batches that the queue gave up: age, size, damaged, quarantine",
    ),
    OwnMetric(name="agent_send_failures_total", help="requests that failed and are tried again"),
    OwnMetric(
        name="agent_dropped_samples_total",
        label="reason",
        help="samples that will never be delivered",
    ),
    OwnMetric(
        name="agent_state_transitions_total",
        label="state",
        help="how often each state of delivery was entered",
    ),
    OwnMetric(
        name="agent_clock_skew_seconds",
        help="the collector's clock minus the agent's, at the last acknowledgement",
    ),
    OwnMetric(name="agent_cycle_seconds", help="how long the last collection took"),
)


class ProcessFigures:
    """Processor use and memory of this process, without any library."""

    def __init__(self) -> None:
        self._cpu_seconds = time.process_time()
        self._at = time.monotonic()

    def cpu_percent(self) -> float:
        """Return the use of one core since the last call, in percent."""
        cpu_seconds, now = time.process_time(), time.monotonic()
        elapsed = now - self._at
        used = cpu_seconds - self._cpu_seconds
        self._cpu_seconds, self._at = cpu_seconds, now
        return 100.0 * used / elapsed if elapsed > 0 else 0.0

    def rss_bytes(self) -> int:
        """Return the resident memory now; its peak where the system tells only that."""
        try:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError, AttributeError):
            return _peak_bytes()


def _peak_bytes() -> int:
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return 0  # Windows has no such module.
    peak = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else peak * 1024


def own_samples(status: SenderStatus, *, cycle_seconds: float) -> list[Sample]:
    """Return the agent's own metrics, those of `OWN_METRICS`.

    Args:
        status: The sender's figures.
        cycle_seconds: How long the last collection took.
    """
    return [
        Sample("agent_wal_bytes", status.queue_bytes),
        Sample("agent_wal_batches", status.queued_batches),
        Sample("agent_send_failures_total", status.send_failures),
        Sample("agent_clock_skew_seconds", status.clock_skew_seconds),
        Sample("agent_cycle_seconds", cycle_seconds),
        *(
            Sample("agent_wal_dropped_batches_total", count, {"reason": str(reason)})
            for reason, count in status.evicted_batches_by_reason.items()
        ),
        *(
            Sample("agent_dropped_samples_total", count, {"reason": str(reason)})
            for reason, count in status.dropped.items()
        ),
        *(
            Sample("agent_state_transitions_total", count, {"state": str(state)})
            for state, count in status.transitions.items()
        ),
    ]
