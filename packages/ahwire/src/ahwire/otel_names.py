"""Names of metrics and labels as OpenTelemetry's rules for Prometheus make them. Pure.

``http.server.duration`` with the unit ``s`` becomes ``http_server_duration_seconds``; a monotonic
sum gets ``_total`` at its end, a gauge with the unit ``1`` gets ``_ratio``. A unit or ``_total``
that the name ends with already is not repeated, and text in braces is no unit. The rules are those
of "Prometheus and OpenMetrics compatibility" in the OpenTelemetry specification. The agent's
exporter and the ingest door both name with these functions, so that a program may change from one
way to the other.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["label_name", "metric_name"]

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]+")
_ANNOTATION = re.compile(r"\{[^}]*\}")

# Codes of UCUM, and the words that Prometheus uses.
_UNITS: Mapping[str, str] = MappingProxyType({
    "d": "days", "h": "hours", "min": "minutes", "s": "seconds", "ms": "milliseconds",
    "us": "microseconds", "ns": "nanoseconds",
    "By": "bytes", "kBy": "kilobytes", "KBy": "kilobytes", "MBy": "megabytes",
    "GBy": "gigabytes", "TBy": "terabytes", "KiBy": "kibibytes", "MiBy": "mebibytes",
    "GiBy": "gibibytes", "TiBy": "tebibytes", "bit": "bits",
    "m": "meters", "km": "kilometers", "g": "grams", "kg": "kilograms", "l": "liters",
    "V": "volts", "A": "amperes", "J": "joules", "W": "watts", "Hz": "hertz", "Cel": "celsius",
    "K": "kelvin", "Pa": "pascals", "%": "percent",
})  # fmt: skip
_PER: Mapping[str, str] = MappingProxyType({
    "s": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week",
    "mo": "month", "y": "year",
})  # fmt: skip


def metric_name(name: str, unit: str, *, counter: bool = False, gauge: bool = False) -> str:
    """Return the name of a metric; empty when nothing of the name can stay.

    Args:
        name: Of the metric.
        unit: Of the metric, in UCUM; may be empty.
        counter: It is a monotonic sum.
        gauge: It is a gauge.
    """
    result = _NOT_IN_NAMES.sub("_", name).strip("_")
    if not result:
        return ""
    if counter:
        result = result.removesuffix("_total")
    suffix = _unit_suffix(unit, ratio=gauge)
    if suffix and result != suffix and not result.endswith(f"_{suffix}"):
        result = f"{result}_{suffix}"
    if counter and result != "total":
        result = f"{result}_total"
    return f"_{result}" if result[0].isdigit() else result


def _unit_suffix(unit: str, *, ratio: bool) -> str:
    if unit.strip() == "1":
        return "ratio" if ratio else ""
    main, _, per = _ANNOTATION.sub("", unit).strip().partition("/")
    words = [_word(_UNITS, main)]
    if per and (divisor := _word(_PER, per)):
        words += ["per", divisor]
    return "_".join(word for word in words if word)


def _word(words: Mapping[str, str], code: str) -> str:
    code = code.strip()
    if code == "1":  # the absence of a unit, as in 1/s
        return ""
    return words.get(code) or _NOT_IN_NAMES.sub("_", code).strip("_")


def label_name(key: str) -> str:
    """Return the label for an attribute's key; keys that differ may have the same label."""
    name = _NOT_IN_NAMES.sub("_", key)
    return f"key_{name}" if name[:1].isdigit() else name
