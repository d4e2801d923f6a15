"""One measured value."""

import math
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        # An integer beyond the largest float, as a counter of a host program may become.
        return math.inf if value > 0 else -math.inf
    except Exception:  # noqa: BLE001 - it may be anything, and converting it raise anything
        return value


def _copy_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return {name: _to_text(value) for name, value in labels.items()}
    except Exception:  # noqa: BLE001 - it may be anything, and looking into it raise anything
        return labels


def _to_text(value: Any) -> Any:
    # Of other objects the text is hardly what was meant: that of None, of bytes, of an address.
    return str(value) if isinstance(value, (int, float)) else value


@frozen
class Sample:
    """A value of one metric at the time of collection.

    The time is not part of it: the sender stamps all samples of a cycle with the time of that
    cycle. Nor is there a kind: a counter is a metric whose name ends in `_total` by custom.

    Making one never fails, whatever is in it, and it never costs more than itself: what cannot be
    sent is dropped before the queue, alone, counted in `SenderStatus.dropped`, and its metric is
    named in the log once. `Sample("", 1)` is dropped as `bad_sample`, and so are a name over 200
    bytes or that is no text, a value that is no number, more than 27 labels, and a label that is
    no text or has a value over 1024 bytes; `Sample("x", math.nan)` is dropped as `not_finite`, and
    so is an infinite value; `Sample("a b", 1)` is sent, and stored as `ah_a_b`.

    Attributes:
        name: Metric name, 1 to 200 bytes. The collector stores it normalised and with the prefix
            `ah_`: `jobs_waiting` as `ah_jobs_waiting`, `shop.orders` as `ah_shop_orders`.
        value: A finite number, or what `float()` makes one of, such as a Decimal.
        labels: Label names and values, at most 27, names up to 200 bytes and values up to 1024;
            copied, so the caller may reuse its mapping. A number or truth value becomes its text
            (`{"code": 200}`).
    """

    name: str
    value: float = field(converter=_to_float)
    labels: Mapping[str, str] = field(factory=dict, converter=_copy_labels)
