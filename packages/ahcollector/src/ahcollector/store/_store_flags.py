"""What VictoriaMetrics' flags mean for samples: what it drops where no probe comes upon it.

It shows its flags on its metrics page. Those that are not there are of another version, or hidden,
and nothing is said of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["flag_warnings", "read_bytes", "read_retention_seconds"]

_SIZE_UNITS: Final = {
    "": 1,
    "KB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "TB": 1_000_000_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_HOUR: Final = 3_600.0
_RETENTION_UNITS: Final = {
    "": 31 * 24 * _HOUR,  # months
    "h": _HOUR,
    "d": 24 * _HOUR,
    "w": 7 * 24 * _HOUR,
    "y": 365 * 24 * _HOUR,
}
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]*)")


def read_bytes(text: str) -> int | None:
    """Return a size such as ``10MB`` in bytes; None when it is none."""
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in _SIZE_UNITS:
        return None
    return int(float(found[1]) * _SIZE_UNITS[found[2]])


def read_retention_seconds(text: str) -> float | None:
    """Return a retention such as ``90d`` in seconds; None when it is none of one number."""
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in _RETENTION_UNITS:
        return None
    return float(found[1]) * _RETENTION_UNITS[found[2]]


def flag_warnings(
    flags: Mapping[str, str],
    *,
    retention_seconds: float | None,
    line_bytes_max: int,
    body_bytes_max: int,
) -> Iterator[str]:
    """Return a warning for each flag that makes it drop or change samples in silence.

    Args:
        flags: By name, without the dash.
        retention_seconds: How long it is said to keep samples; None: not said.
        line_bytes_max: The longest line of an import that is sent; 0: none is.
        body_bytes_max: The longest body of a remote write that is sent; 0: none is.
    """
    for name, window in (
        ("storage.maxHourlySeries", "an hour"),
        ("storage.maxDailySeries", "a day"),
    ):
        most = flags.get(name, "0")
        if most not in {"0", ""}:
            yield (
                f"VictoriaMetrics drops in silence what is over {most} series in {window} "
                f"(-{name}): leave that to the door's budget of new series"
            )
    if flags.get("precisionBits", "64") != "64":
        yield (
            f"VictoriaMetrics rounds values (-precisionBits={flags['precisionBits']}), small ones "
            "beside large ones most of all: leave that flag out"
        )
    for name in ("relabelConfig", "streamAggr.config"):
        if flags.get(name, "") not in {"", "[]"}:
            yield (
                f"VictoriaMetrics changes or drops samples by -{name}: see that it leaves alone "
                "those whose names begin with ah_"
            )
    kept_seconds = read_retention_seconds(flags.get("retentionPeriod", "-"))
    if (
        kept_seconds is not None
        and retention_seconds is not None
        and retention_seconds > kept_seconds
    ):
        yield (
            f"VictoriaMetrics keeps samples for {kept_seconds / 86_400:g} days "
            f"(-retentionPeriod={flags['retentionPeriod']}) and tsdb.retention_days says "
            f"{retention_seconds / 86_400:g}: older ones are dropped in silence; make them equal"
        )
    for name, sent in (
        ("import.maxLineLen", line_bytes_max),
        ("maxInsertRequestSize", body_bytes_max),
    ):
        most_bytes = read_bytes(flags.get(name, "-"))
        if most_bytes is not None and most_bytes < sent:
            yield (
                f"VictoriaMetrics takes no more than {most_bytes} bytes at once (-{name}), and up "
                f"to {sent} are sent: leave that flag out"
            )
