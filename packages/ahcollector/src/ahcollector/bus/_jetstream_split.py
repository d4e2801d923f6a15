"""A batch as entries that are no larger than a message may be."""

from __future__ import annotations

import attrs

from ahcollector.bus._entries import PLAIN_BYTES_MAX, pack, seal
from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import BusError

__all__ = ["split"]


def split(batch: SampleBatch, *, entry_bytes_max: int) -> list[bytes]:
    """Return a batch as entries, each a batch of its own with the same ids, in the old order.

    It is cut between series, and where a series alone is too large between its points.

    Raises:
        BusError: It cannot be an entry: a stamp is no int64, a value no number, or the labels of
            one series alone are too large.
    """
    parts: list[bytes] = []
    waiting = [batch]
    while waiting:
        one = waiting.pop()
        plain = pack(one)
        if len(plain) <= PLAIN_BYTES_MAX:
            entry = seal(plain)
            if len(entry) <= entry_bytes_max:
                parts.append(entry)
                continue
        # The first half is looked at next.
        waiting += reversed(_halves(one, entry_bytes_max))
    return parts


def _halves(batch: SampleBatch, entry_bytes_max: int) -> tuple[SampleBatch, SampleBatch]:
    series = batch.series
    if len(series) > 1:
        middle = len(series) // 2
        first, second = series[:middle], series[middle:]
    else:
        points = series[0].points if series else ()
        if len(points) < 2:
            raise BusError(
                f"batch {batch.request_id} of server {batch.server_id} has a series whose labels "
                f"alone are more than an entry of the bus may be, {entry_bytes_max} bytes "
                "(entry_bytes_max): shorten its labels"
            )
        middle = len(points) // 2
        labels = series[0].labels
        first = (StoredSeries(labels=labels, points=points[:middle]),)
        second = (StoredSeries(labels=labels, points=points[middle:]),)
    return attrs.evolve(batch, series=first), attrs.evolve(batch, series=second)
