"""Every setting of the agent: its key, its range, and how text becomes its value.

The table is the only list of settings; the configuration file, the environment, the flags of the
command line and the checks in `AgentConfig` are all made from it.
"""

import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum

from attrs import frozen

from ahwal.errors import ConfigError

_UNITS_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS_BYTES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_COUNT_BEYOND = 10**15
_COUNT_CHARS_MAX = 16
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


class Kind(Enum):
    """What a setting holds."""

    SECONDS = "seconds"
    BYTES = "bytes"
    COUNT = "count"
    FLAG = "flag"
    TEXT = "text"
    NAMES = "names"
    PAIRS = "pairs"


@frozen(kw_only=True)
class Setting:
    """One line of the table.

    Attributes:
        key: Name in the configuration file; a dot leads into a section.
        field: Attribute of `AgentConfig`.
        kind: What it holds.
        low: Smallest valid number.
        high: Largest valid number.
        choices: Valid texts, when not every text is.
        help: What it is for.
    """

    key: str
    field: str
    kind: Kind
    help: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Name in the environment."""
        return "AH_" + self.key.upper().replace(".", "_")

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def names(self) -> str:
        """The key, and the attribute of `AgentConfig` in parentheses where that differs."""
        return self.key if self.key == self.field else f"{self.key} ({self.field})"

    @property
    def range(self) -> str:
        """The valid values in words."""
        if self.choices:
            return " or ".join(self.choices)
        match self.kind:
            case Kind.SECONDS:
                return f"{show_seconds(self.low)} to {show_seconds(self.high)}"
            case Kind.BYTES:
                return f"{show_bytes(self.low)} to {show_bytes(self.high)}"
            case Kind.COUNT:
                return f"{int(self.low)} to {int(self.high)}"
            case Kind.FLAG:
                return "true or false"
            case Kind.NAMES:
                return "a list of names"
            case Kind.PAIRS:
                return "names with text values"
            case Kind.TEXT:
                return "a text"


def _s(key: str, field: str, kind: Kind, help: str, **more: object) -> Setting:  # noqa: A002 - its name
    return Setting(key=key, field=field, kind=kind, help=help, **more)  # type: ignore[arg-type]  # rows


_MIB = float(1 << 20)
_K = Kind
SETTINGS: tuple[Setting, ...] = (
    _s("collector_url", "collector_url", _K.TEXT, "address of the collector"),
    _s("state_dir", "state_dir", _K.TEXT, "directory for identity and queue"),
    _s("interval", "interval_seconds", _K.SECONDS, "time between collections", low=10, high=300),
    _s("send_timeout", "send_timeout_seconds", _K.SECONDS, "limit of a request", low=1, high=60),
    _s(
        "buffer.max_bytes", "buffer_bytes_max", _K.BYTES, "size of the queue on disk",
        low=4 * _MIB, high=1024 * _MIB,
    ),
    _s(
        "buffer.max_age", "buffer_age_seconds_max", _K.SECONDS, "age at which batches are given up",
        low=60.0, high=7 * 86400.0,
    ),
    _s(
        "catch_up_batches", "catch_up_batches", _K.COUNT, "more requests a cycle after an outage",
        low=1, high=10,
    ),
    _s(
        "shutdown_flush", "shutdown_flush_seconds", _K.SECONDS, "time to send the rest at a stop",
        low=0, high=10,
    ),
    _s(
        "limits.memory_limit", "memory_limit_bytes", _K.BYTES, "memory above which buffers shrink",
        low=16 * _MIB, high=4096 * _MIB,
    ),
    _s("allow_remote_config", "allow_remote_config", _K.FLAG, "apply what the collector sets"),
    _s(
        "on_revoked", "on_revoked", _K.TEXT, "what to do when the agent is revoked",
        choices=("wait", "exit"),
    ),
    _s("ca_file", "ca_file", _K.TEXT, "PEM file of the only authorities to trust"),
    _s("proxy_url", "proxy_url", _K.TEXT, "proxy on the way to the collector"),
    _s("insecure_skip_verify", "insecure_skip_verify", _K.FLAG, "accept every certificate (tests)"),
    _s("client_cert", "client_cert", _K.TEXT, "PEM file with a certificate to present"),
    _s("client_key", "client_key", _K.TEXT, "PEM file with its key"),
    _s("allow_plain_http", "allow_plain_http", _K.FLAG, "allow http:// to another machine"),
    _s("http2", "http2", _K.FLAG, "speak HTTP/2 where offered, if ahwal[http2] is installed"),
    _s("allow_short_interval", "allow_short_interval", _K.FLAG, "allow intervals from 1 s (tests)"),
    _s("labels", "labels", _K.PAIRS, "labels added to every sample"),
    _s("disabled_collectors", "disabled_collectors", _K.NAMES, "collectors that do not run"),
    _s("log.format", "log_format", _K.TEXT, "form of log lines", choices=("text", "json")),
    _s(
        "log.level", "log_level", _K.TEXT, "least level that is logged",
        choices=("debug", "info", "warning", "error"),
    ),
    _s("log.file", "log_file", _K.TEXT, "log file (rotated at 10 MiB, one kept); absent: stderr"),
)  # fmt: skip


def parse(setting: Setting, value: object) -> object:
    """Turn a value from a file, a variable or a flag into what `AgentConfig` takes.

    Raises:
        ConfigError: It has the wrong form; ranges are checked by `AgentConfig`.
    """
    match setting.kind:
        case Kind.SECONDS:
            return _quantity(
                setting, value, _UNITS_SECONDS, "a duration like 30s, 5m, 24h, with one unit"
            )
        case Kind.BYTES:
            size = _quantity(
                setting,
                value,
                _UNITS_BYTES,
                "a size like 50MiB, 1GiB, with one unit: B, KiB, MiB or GiB",
            )
            if not math.isfinite(size):
                raise _wrong(setting, value, setting.range)
            return int(size)
        case Kind.COUNT:
            return _count(setting, value)
        case Kind.FLAG:
            return _flag(setting, value)
        case Kind.NAMES:
            return _names(setting, value)
        case Kind.PAIRS:
            return _pairs(setting, value)
        case Kind.TEXT:
            if not isinstance(value, str):
                raise _wrong(setting, value, setting.range)
            return value


def to_text(setting: Setting, value: object) -> str:
    """Return a value as `parse` takes it, and as people write it: `30s`, `24h`, `50MiB`."""
    if value is None:
        return ""
    match setting.kind, value:
        case Kind.SECONDS, int() | float():
            return _with_unit(value, (("h", 3600), ("m", 60), ("s", 1)))
        case Kind.BYTES, int() | float():
            return _with_unit(value, (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)))
        case Kind.FLAG, _:
            return "true" if value else "false"
        case Kind.NAMES, tuple():
            return ",".join(value)
        case Kind.PAIRS, Mapping():
            return ",".join(f"{name}={text}" for name, text in value.items())
        case _:
            return str(value)


def _with_unit(value: float, units: Iterable[tuple[str, int]]) -> str:
    for unit, factor in units:
        if value >= factor and value % factor == 0:
            return f"{value / factor:g}{unit}"
    # A number without a unit counts in seconds or bytes.
    return f"{value:.15g}"


def show_seconds(seconds: float) -> str:
    """Return a duration as people write it."""
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= factor and seconds % factor == 0:
            return f"{seconds / factor:g} {unit}"
    return f"{seconds:g} s"


def show_bytes(size: float) -> str:
    """Return a size as people write it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size / factor:g} {unit}"
    return f"{size:g} bytes"


def _wrong(setting: Setting, value: object, valid: str) -> ConfigError:
    # An address may hold a password, wherever it stands in a list.
    hidden = setting.key == "proxy_url" and isinstance(value, (dict, list, set, tuple))
    shown = "..." if hidden else _shown(value)
    return ConfigError(f"{setting.key} is {shown}; valid is {valid}")


def _shown(value: object) -> str:
    try:
        return repr(value)[:80]
    except ValueError:
        return "a number of thousands of digits"  # Python refuses to write one out.


def _quantity(setting: Setting, value: object, units: Mapping[str, float], valid: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise _wrong(setting, "a number beyond all bounds", setting.range) from None
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    factor = units.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise _wrong(setting, value, f"{valid} ({setting.range})")
    return float(found[1]) * factor


def _count(setting: Setting, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _COUNT_BEYOND:
        return value
    if isinstance(value, str) and len(value) < _COUNT_CHARS_MAX and value.strip().isdecimal():
        return int(value)
    raise _wrong(setting, value, setting.range)


def _flag(setting: Setting, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "yes", "on", "1"):
        return True
    if isinstance(value, str) and value.strip().lower() in ("false", "no", "off", "0"):
        return False
    raise _wrong(setting, value, setting.range)


def _names(setting: Setting, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [name for name in (part.strip() for part in value.split(",")) if name]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _wrong(setting, value, setting.range)
    return tuple(value)


def _pairs(setting: Setting, value: object) -> dict[str, str]:
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(separator for _, separator, _ in parts):
            raise _wrong(setting, value, "name=value,name=value")
        return {name.strip(): text.strip() for name, _, text in parts}
    if not isinstance(value, dict):
        raise _wrong(setting, value, setting.range)
    if any(text is None or isinstance(text, (list, dict, set)) for text in value.values()):
        raise _wrong(setting, value, setting.range)
    try:
        return {str(name): str(text) for name, text in value.items()}
    except ValueError:
        raise _wrong(setting, value, setting.range) from None
