"""A metric as a value: its name, its kind, its labels."""

from __future__ import annotations

from enum import StrEnum

import attrs

__all__ = ["Kind", "Metric", "counter", "gauge"]


class Kind(StrEnum):
    """What may be done with a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@attrs.frozen(kw_only=True)
class Metric:
    """One metric as it is exported.

    Attributes:
        name: Full name; a counter's ends in ``_total``.
        kind: Counter, gauge or histogram.
        labels: Names of its labels, each given at every use.
        help: One sentence for the operator.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    help: str


def counter(name: str, text: str, *labels: str) -> Metric:
    """Return a counter."""
    return Metric(name=name, kind=Kind.COUNTER, labels=labels, help=text)


def gauge(name: str, text: str, *labels: str) -> Metric:
    """Return a gauge."""
    return Metric(name=name, kind=Kind.GAUGE, labels=labels, help=text)
