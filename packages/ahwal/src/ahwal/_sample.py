"""One measured value."""

import math
from collections.abc import Mapping

from attrs import field, frozen


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        # An integer beyond the largest float, as a counter of a host program may become.
        return math.inf if value > 0 else -math.inf


def _copy_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {str(name): str(value) for name, value in labels.items()}


@frozen
class Sample:
    """A value of one metric at the time of collection.

    The time is not part of it: the sender stamps all samples of a cycle with the time of that
    cycle.

    Making one never fails because of what is in it; what cannot be sent is dropped before the
    queue, alone, and counted in `SenderStatus.dropped`. `Sample("", 1)` is dropped as `bad_sample`,
    and so is a name over 200 bytes; `Sample("x", math.nan)` is dropped as `not_finite`, and so is
    an infinite value; `Sample("a b", 1)` is sent, and stored as `ah_a_b`.

    Attributes:
        name: Metric name. The collector stores it normalised and with the prefix `ah_`:
            `jobs_waiting` as `ah_jobs_waiting`, `shop.orders` as `ah_shop_orders`.
        value: A finite number.
        labels: Label names and values; copied, so the caller may reuse its mapping.
    """

    name: str
    value: float = field(converter=_to_float)
    labels: Mapping[str, str] = field(factory=dict, converter=_copy_labels)
