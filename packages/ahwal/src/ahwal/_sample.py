"""One measured value."""

from collections.abc import Mapping

from attrs import field, frozen


def _to_float(value: float) -> float:
    return float(value)


def _copy_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {str(name): str(value) for name, value in labels.items()}


@frozen
class Sample:
    """A value of one metric at the time of collection.

    The time is not part of it: the sender stamps all samples of a cycle with the time of that
    cycle.

    Attributes:
        name: Metric name. The collector stores it normalised and with the prefix `ah_`.
        value: A finite number. Others are dropped before the queue and counted as `not_finite`.
        labels: Label names and values; copied, so the caller may reuse its mapping.
    """

    name: str
    value: float = field(converter=_to_float)
    labels: Mapping[str, str] = field(factory=dict, converter=_copy_labels)
