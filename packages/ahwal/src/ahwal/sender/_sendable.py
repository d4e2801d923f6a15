"""What of the things that a host hands over can be sent, and what is said about the rest.

Law of this file: a host may hand over anything. Whatever it is, nothing here raises because of it,
and no mistake costs more than the sample, or the label for all samples, that it is in.
"""

import logging
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import frozen

from ahwal._sample import Sample
from ahwire import limits

NAMES_MAX = 100
_NAMES_A_LINE = 5
_SHOWN_CHARS = 60
# A batch whose samples have more than twice the labels that they may have is not judged at all.
_LABELS_JUDGED = 2 * limits.MAX_LABELS_PER_SERIES
_TIME_MS_MAX = 1 << 62


@frozen
class Remark:
    """What is wrong with something: `what`, fit for a log line, and `why`."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} ({self.why})"


def as_list(samples: Any) -> list[Any]:
    """Return what is in an iterable; what is none counts as one thing.

    Raises:
        Exception: What the iterable itself raises.
    """
    try:
        iterator = iter(samples)
    except Exception:  # noqa: BLE001 - it may be anything
        return [samples]
    return list(iterator)


def to_unix_ms(moment: Any) -> int | None:
    """Return a time as Unix milliseconds; None when it is none."""
    try:
        number = round(moment) if isinstance(moment, float) else operator.index(moment)
    except Exception:  # noqa: BLE001 - it may be anything
        return None
    return number if abs(number) <= _TIME_MS_MAX else None


def fault_of(sample: object) -> Remark | None:
    """Return why no series can be made of something; None when one can be.

    Whether a collector takes that series is another question, see `ahwire.batch.validate`.
    """
    if not isinstance(sample, Sample):
        return Remark(type(sample).__name__, "it is no ahwal.Sample")
    # Not what the types say: what stands in a sample was never checked.
    name: Any = sample.name
    value: Any = sample.value
    labels: Any = sample.labels
    if not isinstance(name, str):
        return Remark(shown(name), "its name is no text")
    if not isinstance(value, float):
        return Remark(shown(name), f"its value is {shown(value)}, not a number")
    # The sample copied into a dict what it could read.
    if type(labels) is not dict:
        return Remark(shown(name), "its labels are no mapping that can be read")
    if len(labels) > _LABELS_JUDGED:
        most = limits.MAX_LABELS_PER_SERIES
        return Remark(shown(name), f"it has {len(labels)} labels, at most {most} are taken")
    for label, text in labels.items():
        if not isinstance(label, str):
            return Remark(shown(name), f"its label name {shown(label)} is no text")
        if not isinstance(text, str):
            return Remark(shown(name), f"its label {shown(label)} is {shown(text)}, not a text")
    return None


def refused(name: str, code: str) -> Remark:
    """Return what is said of a series that every collector refuses with a code."""
    return Remark(shown(name), code)


def common_labels(labels: Mapping[Any, Any]) -> tuple[dict[str, str], list[Remark]]:
    """Return those labels for all samples that can be sent, and what is wrong with the others."""
    kept: dict[str, str] = {}
    faults = []
    for name, value in labels.items():
        fault = label_fault(name, value)
        if fault is None and len(kept) >= limits.MAX_LABELS_PER_SERIES:
            fault = f"only {limits.MAX_LABELS_PER_SERIES} labels are taken"
        if fault is None:
            kept[name] = value
        else:
            faults.append(Remark(f"label {shown(name)}", fault))
    return kept, faults


def label_fault(name: object, value: object) -> str | None:
    """Return why a label with this name and value cannot be sent; None when it can be."""
    if not isinstance(name, str) or not name.strip():
        return "its name is empty or no text"
    if not isinstance(value, str):
        return f"its value is {shown(value)}, not a text"
    if _size_bytes(name) > limits.MAX_NAME_BYTES:
        return f"its name is over {limits.MAX_NAME_BYTES} bytes"
    if _size_bytes(value) > limits.MAX_LABEL_VALUE_BYTES:
        return f"its value is over {limits.MAX_LABEL_VALUE_BYTES} bytes"
    if "\0" in value:
        return "its value holds a NUL character"
    return None


def with_common(sample: Sample, common: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the labels of a sample behind those for all, of which it takes what it has room for."""
    own = sample.labels
    room = max(0, limits.MAX_LABELS_PER_SERIES - len(own))
    yield from islice(((n, v) for n, v in common.items() if n not in own), room)
    yield from own.items()


class Complaints:
    """Says what is wrong, once for each metric or label, and for 100 of them at most.

    Args:
        logger: The sender's logger.
    """

    def __init__(self, *, logger: logging.Logger) -> None:
        self._log = logger
        self._named: set[str] = set()

    def left_out(self, samples: Sequence[Remark]) -> None:
        """Samples of one call that cannot be sent."""
        if samples:
            subject = "1 sample" if len(samples) == 1 else f"{len(samples)} samples"
            verb = "is" if len(samples) == 1 else "are"
            self._say(samples, f"{subject} cannot be sent and {verb} left out")

    def labels_left_out(self, labels: Sequence[Remark]) -> None:
        """Labels for all samples that cannot be sent."""
        if labels:
            self._say(labels, "what was set for all samples cannot be sent and is left out")

    def _say(self, remarks: Iterable[Remark], subject: str) -> None:
        new: dict[str, Remark] = {}
        for remark in remarks:
            if remark.what not in self._named and len(self._named) < NAMES_MAX:
                self._named.add(remark.what)
                new[remark.what] = remark
        text = ", ".join(map(str, islice(new.values(), _NAMES_A_LINE)))
        if len(new) > _NAMES_A_LINE:
            text += f", and {len(new) - _NAMES_A_LINE} more"
        if new and len(self._named) >= NAMES_MAX:
            text += "; further ones are not named"
        self._log.log(
            logging.WARNING if new else logging.DEBUG, "%s: %s", subject, text or "named before"
        )


def _size_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def shown(value: object) -> str:
    """Return what a value is, without asking an object of the host's anything."""
    if isinstance(value, (str, bytes)):
        return repr(value[:_SHOWN_CHARS])
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int and abs(value) < 1 << 64:
        return repr(value)
    return type(value).__name__
