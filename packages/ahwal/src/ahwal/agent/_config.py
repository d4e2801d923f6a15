"""The agent's configuration as one value that is either whole and valid, or not there."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from ahwal.agent._settings import SETTINGS, Kind, Setting, show_seconds
from ahwal.errors import ConfigError
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


def _path(value: str | os.PathLike[str]) -> str:
    return os.fspath(value)


def _optional_path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)


def _label_copy(labels: Mapping[str, str]) -> dict[str, str]:
    return dict(labels)


def _name_tuple(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen(kw_only=True)
class AgentConfig:
    """Settings of an agent. Every wrong value is named with its valid range.

    Attributes:
        collector_url: Address of the collector; None for the one that enrolment gave.
        state_dir: Directory for the identity (`credentials.json`) and the queue (`wal/`).
        interval_seconds: Time between collections, 10 to 300 (from 1 with `allow_short_interval`).
        send_timeout_seconds: Limit of one request, 1 to 60.
        buffer_bytes_max: Size of the queue on disk, 4 MiB to 1 GiB.
        buffer_age_seconds_max: Age at which batches are given up, 1 minute to 7 days.
        catch_up_batches: Requests that a cycle may make after its first, 1 to 10.
        shutdown_flush_seconds: Time to send what is queued at a stop, 0 to 10.
        memory_limit_bytes: Memory of the process above which buffers shrink, 16 MiB to 4 GiB.
        allow_remote_config: Apply what the collector configures, within the ranges.
        on_revoked: `wait` to be stopped, or `exit`.
        ca_file: PEM file of the only authorities to trust.
        proxy_url: Proxy on the way; None for the environment's. Not shown in the repr.
        insecure_skip_verify: Accept every certificate. For tests only.
        client_cert: PEM file with a certificate to present.
        client_key: PEM file with its key, if it is not in `client_cert`.
        allow_plain_http: Allow http:// to another machine, token in clear.
        http2: Speak HTTP/2 where the collector offers it, if `ahwal[http2]` is installed.
        allow_short_interval: Allow intervals from 1 s, for tests and the demo.
        labels: Added to every sample that has no label of the same name.
        disabled_collectors: Names of collectors that do not run.
        log_format: `text` or `json`; used by the command line only, as the other two.
        log_level: `debug`, `info`, `warning` or `error`.
        log_file: Log file; None for standard error.

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
            if self.collector_url is not None:
                check_collector_url(self.collector_url, allow_plain_http=self.allow_plain_http)
            if self.proxy_url is not None:
                check_proxy_url(Secret(self.proxy_url))
        except ConfigError as error:
            problems.extend(error.problems)
        if not self.state_dir:
            problems.append("state_dir is empty; give a directory")
        if problems:
            raise ConfigError(*problems)

    def _problem(self, setting: Setting) -> str | None:
        value = getattr(self, setting.field)
        if setting.choices:
            if value in setting.choices:
                return None
            return f"{setting.names} is {value!r}; valid is {setting.range}"
        if isinstance(value, str) and "\0" in value:
            return f"{setting.names} holds a NUL character, which no system takes; remove it"
        if setting.kind not in (Kind.SECONDS, Kind.BYTES, Kind.COUNT):
            return None
        low, valid = setting.low, setting.range
        if setting.field == "interval_seconds":
            if self.allow_short_interval:
                low = float(limits.MIN_SHORT_INTERVAL_SECONDS)
                valid = f"{show_seconds(low)} to {show_seconds(setting.high)}"
            else:
                valid += f" (from {limits.MIN_SHORT_INTERVAL_SECONDS} s with allow_short_interval)"
        # The comparison is written so that a NaN fails it.
        if isinstance(value, (int, float)) and low <= value <= setting.high:
            return None
        return f"{setting.names} is {value!r}; valid is {valid}"
