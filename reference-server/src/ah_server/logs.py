"""The server's log lines: one handler on standard error, as text or JSON, secrets masked."""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

from ah_server.settings import LogSettings

_SECRET_WORDS = ("token", "authorization", "password", "secret", "license")
_HASH_CHARS = 8
_LIBRARIES_TOO_LOUD = (
    "aiosqlite",
    "alembic",
    "asyncio",
    "httpcore",
    "httpx",
    "mail.log",
    "uvicorn.access",
    "uvicorn.error",
)


def mask_secrets(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replaces values of fields whose names tell a secret; hashes keep their first 8 characters."""
    for name, value in line.items():
        line[name] = _masked(name, value)
    return line


def _masked(name: str, value: Any) -> Any:
    lowered = name.lower()
    if any(word in lowered for word in _SECRET_WORDS):
        return str(value)[:_HASH_CHARS] if lowered.endswith("hash") else "***"
    if isinstance(value, Mapping):
        return {key: _masked(str(key), inner) for key, inner in value.items()}
    return value


def configure_logs(settings: LogSettings, *, collector_id: str) -> None:
    """Sends all log lines of this process to standard error, warnings of libraries too.

    As JSON a line is one object with `time`, `level`, `logger`, `msg`, `collector_id`, and what
    else its event has, `request_id` above all.
    """
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        mask_secrets,
    ]
    if settings.format == "json":

        def add_collector(
            _logger: Any, _method: str, line: MutableMapping[str, Any]
        ) -> MutableMapping[str, Any]:
            line["collector_id"] = collector_id
            return line

        last: list[Any] = [
            add_collector,
            structlog.processors.ExceptionRenderer(),
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(),
        ]
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            timestamp_key="time",
            # The other formatters print local variables, and with them secrets.
            exception_formatter=structlog.dev.plain_traceback,
        )
        last = [renderer]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.captureWarnings(capture=True)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for name in _LIBRARIES_TOO_LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
