"""The agent's configuration as one value that is either whole and valid, or not there."""

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, fields, frozen

from ahwal.agent._files import fixed_path
from ahwal.agent._settings import SETTINGS, Kind, Setting, show_seconds
from ahwal.errors import ConfigError
from ahwal.sender._sendable import label_fault, shown
from ahwal.transport._token import Secret
from ahwal.transport._url import check_collector_url, check_proxy_url
from ahwire import limits

_MIB = 1 << 20


def default_state_dir() -> str:
    """Return where this platform keeps the state of a service, or of a user's programs."""
    if sys.platform == "win32":
        return str(Path(os.environ.get("PROGRAMDATA", "C:/ProgramData")) / "ahwal")
    if sys.platform == "darwin":
        root = Path("/Library") if os.geteuid() == 0 else Path.home() / "Library"
        return str(root / "Application Support" / "ahwal")
    if os.geteuid() == 0:
        return "/var/lib/ahwal"
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(base) / "ahwal")


# What is not of its type goes through the converters as it is, to be named among all problems.


def _path(value: str | os.PathLike[str]) -> str:
    given: Any = value
    return fixed_path(given) if isinstance(given, (str, os.PathLike)) else given


def _optional_path(value: str | os.PathLike[str] | None) -> str | None:
    return value if value is None else _path(value)


def _label_copy(labels: Mapping[str, str]) -> dict[str, str]:
    given: Any = labels
    copied: dict[str, str] = dict(given) if isinstance(given, Mapping) else given
    return copied


def _name_tuple(names: Collection[str]) -> tuple[str, ...]:
    given: Any = names
    # A text is a collection too, of names of one letter: surely not what was meant.
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    copied: tuple[str, ...] = tuple(given) if several else given
    return copied


@frozen(kw_only=True)
class AgentConfig:
    """Settings of an agent. Every wrong value is named with its valid range.

    Types are not converted: `"false"` is no truth value and `"30"` no number. Paths may be
    `pathlib.Path` and are kept from the root; names may be any collection of texts but one text.

    Attributes:
        collector_url: Address of the collector; None (default) for the one that enrolment gave.
        state_dir: Directory for the identity (`credentials.json`) and the queue (`wal/`). Default:
            `/var/lib/ahwal` for root, `$XDG_STATE_HOME/ahwal` or `~/.local/state/ahwal` for others;
            on macOS `Library/Application Support/ahwal`, on Windows `%PROGRAMDATA%/ahwal`.
        interval_seconds: Time between collections, 10 to 300 (from 1 with `allow_short_interval`);
            default 30.
        send_timeout_seconds: Limit of one request, 1 to 60; default 15.
        buffer_bytes_max: Size of the queue on disk, 4 MiB to 1 GiB; default 50 MiB.
        buffer_age_seconds_max: Age at which batches are given up, 1 minute to 7 days; default a
            day.
        catch_up_batches: Requests that a cycle may make after its first, 1 to 10; default 2.
        shutdown_flush_seconds: Time to send what is queued at a stop, 0 to 10; default 5.
        memory_limit_bytes: Memory of the process above which buffers shrink, 16 MiB to 4 GiB;
            default 64 MiB.
        allow_remote_config: Apply what the collector configures, within the ranges; default True.
        on_revoked: `wait` (default) to be stopped, or `exit`.
        ca_file: PEM file of the only authorities to trust; None (default) for the system's.
        proxy_url: Proxy on the way; None (default) for the environment's. Not shown in the repr.
        insecure_skip_verify: Accept every certificate. For tests only; default False.
        client_cert: PEM file with a certificate to present; default None.
        client_key: PEM file with its key, if it is not in `client_cert`; default None.
        allow_plain_http: Allow http:// to another machine, token in clear; default False.
        http2: Speak HTTP/2 where the collector offers it, if `ahwal[http2]` is installed; default
            True.
        allow_short_interval: Allow intervals from 1 s, for tests and the demo; default False.
        labels: Added to every sample that has no label of the same name, as far as it has room for
            27 labels with its own. At most 27; names up to 200 bytes, values up to 1024.
        disabled_collectors: Names of collectors that do not run.
        log_format: `text` (default) or `json`; used by the command line only, as the other two.
        log_level: `debug`, `info` (default), `warning` or `error`.
        log_file: Log file; None (default) for standard error.

    Raises:
        ConfigError: One or more values are wrong; all of them are named.
    """

    collector_url: str | None = None
    state_dir: str = field(factory=default_state_dir, converter=_path)
    interval_seconds: float = 30.0
    send_timeout_seconds: float = 15.0
    buffer_bytes_max: int = 50 * _MIB
    buffer_age_seconds_max: float = 24 * 3600.0
    catch_up_batches: int = 2
    shutdown_flush_seconds: float = 5.0
    memory_limit_bytes: int = 64 * _MIB
    allow_remote_config: bool = True
    on_revoked: str = "wait"
    ca_file: str | None = field(default=None, converter=_optional_path)
    proxy_url: str | None = field(default=None, repr=False)
    insecure_skip_verify: bool = False
    client_cert: str | None = field(default=None, converter=_optional_path)
    client_key: str | None = field(default=None, converter=_optional_path)
    allow_plain_http: bool = False
    http2: bool = True
    allow_short_interval: bool = False
    labels: Mapping[str, str] = field(factory=dict, converter=_label_copy)
    disabled_collectors: tuple[str, ...] = field(default=(), converter=_name_tuple)
    log_format: str = "text"
    log_level: str = "info"
    log_file: str | None = field(default=None, converter=_optional_path)

    def __attrs_post_init__(self) -> None:
        problems = [problem for setting in SETTINGS if (problem := self._problem(setting))]
        try:
            if isinstance(self.collector_url, str):
                check_collector_url(
                    self.collector_url, allow_plain_http=self.allow_plain_http is True
                )
            if isinstance(self.proxy_url, str):
                check_proxy_url(Secret(self.proxy_url))
        except ConfigError as error:
            problems.extend(error.problems)
        if self.state_dir == "":
            problems.append("state_dir is empty; give a directory")
        if problems:
            raise ConfigError(*problems)

    def _problem(self, setting: Setting) -> str | None:
        value: object = getattr(self, setting.field)
        valid: str | None = setting.range
        match setting.kind:
            case Kind.TEXT:
                valid = _text_fault(self, setting, value)
            case Kind.FLAG:
                valid = None if isinstance(value, bool) else "True or False"
            case Kind.NAMES:
                texts = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
                valid = None if texts else "a sequence of names"
            case Kind.PAIRS:
                return _labels_fault(value)
            case Kind.SECONDS | Kind.BYTES | Kind.COUNT:
                valid = _number_fault(self, setting, value)
        if valid is None:
            return None
        # An address may hold a password.
        known = type(value).__name__ if setting.field == "proxy_url" else shown(value)
        return f"{setting.names} is {known}; valid is {valid}"


def _text_fault(config: AgentConfig, setting: Setting, value: object) -> str | None:
    """Return what is valid, when the value is not."""
    if setting.choices:
        return None if value in setting.choices else setting.range
    if value is None and getattr(fields(type(config)), setting.field).default is None:
        return None
    if not isinstance(value, str):
        return setting.range
    if "\0" in value:
        return "a text without a NUL character, which no system takes"
    converter = getattr(fields(type(config)), setting.field).converter
    return _path_fault(value) if value and converter in (_path, _optional_path) else None


def _path_fault(path: str) -> str | None:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return "a path that this system can write"
    if not Path(path).is_absolute():
        return "a path from the root, because the working directory is gone"
    return None


def _number_fault(config: AgentConfig, setting: Setting, value: object) -> str | None:
    """Return what is valid, when the value is not."""
    low, valid = setting.low, setting.range
    if setting.field == "interval_seconds":
        if config.allow_short_interval is True:
            low = float(limits.MIN_SHORT_INTERVAL_SECONDS)
            valid = f"{show_seconds(low)} to {show_seconds(setting.high)}"
        else:
            valid += f" (from {limits.MIN_SHORT_INTERVAL_SECONDS} s with allow_short_interval)"
    kinds = (int,) if setting.kind is Kind.COUNT else (int, float)
    # The comparison is written so that a NaN fails it.
    if isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= setting.high:
        return None
    return valid


def _labels_fault(labels: object) -> str | None:
    """Return what is wrong with labels, which every sample must be able to carry."""
    if not isinstance(labels, dict):
        return f"labels is {shown(labels)}; valid is names with text values"
    if len(labels) > limits.MAX_LABELS_PER_SERIES:
        most = limits.MAX_LABELS_PER_SERIES
        return f"labels holds {len(labels)} of them; at most {most} are taken, remove some"
    for name, value in labels.items():
        fault = label_fault(name, value)
        if fault is None and not _is_unicode(name + value):
            fault = "it holds half of a surrogate pair, which no text has"
        if fault is not None:
            return f"labels: {shown(name)}: {fault}; valid is names with text values"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
