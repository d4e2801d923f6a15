"""Batches as a host's agent makes them: what is appended in the benchmarks."""

import random

from ahwire.agent_pb2 import MetricsBatch

START_MS = 1_796_000_000_000
# The names and labels of the host collectors, with values of their kind.
_PER_DEVICE = (
    "disk_read_bytes_total",
    "disk_written_bytes_total",
    "disk_reads_total",
    "disk_writes_total",
)
_PER_MOUNT = ("disk_total_bytes", "disk_used_bytes", "disk_free_bytes", "disk_used_percent")
_PER_INTERFACE = (
    "network_received_bytes_total",
    "network_sent_bytes_total",
    "network_receive_errors_total",
    "network_send_errors_total",
)


def host_batch(series_count: int, *, number: int = 0) -> MetricsBatch:
    """A batch of one point a series.

    Args:
        series_count: How many series.
        number: Which cycle: it decides the time and the values.
    """
    rng = random.Random(number)
    now_ms = START_MS + number * 30_000
    message = MetricsBatch(seq=START_MS + number, collected_at_ms=now_ms)
    for index in range(series_count):
        subject, kind = divmod(index, 4)
        names, label, value = (
            (_PER_DEVICE, "device", f"nvme{subject}n1"),
            (_PER_MOUNT, "mount", f"/var/lib/volumes/{subject:03d}"),
            (_PER_INTERFACE, "interface", f"veth{subject:04x}"),
        )[subject % 3]
        series = message.series.add(name=names[kind])
        series.labels.add(name=label, value=value)
        series.points.add(ts_ms=now_ms, value=float(rng.randrange(10 ** rng.randint(1, 12))))
    return message


def batch_of_bytes(size_bytes: int) -> bytes:
    """A serialized batch of about this size."""
    count = 1
    while len(data := host_batch(count).SerializeToString()) < size_bytes:
        count += 1
    return data
