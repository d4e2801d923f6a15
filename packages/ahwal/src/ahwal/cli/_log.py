"""Log lines of the command. The library configures no logging; only the command does."""

import json
import logging
import logging.handlers
import sys
from datetime import UTC, datetime
from pathlib import Path

from ahwal.agent._config import AgentConfig
from ahwal.errors import ConfigError
from ahwal.transport._token import MASK, is_secret_name
from ahwal.wal._log import IN_TEXT

FILE_BYTES_MAX = 10 << 20
# Attributes that every record has; whatever else is there came with `extra`.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", IN_TEXT}


def configure_logging(config: AgentConfig) -> None:
    """Send the log lines of this process where the settings say.

    Raises:
        ConfigError: The log file cannot be opened.
    """
    handler: logging.Handler
    if config.log_file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            Path(config.log_file).parent.mkdir(parents=True, exist_ok=True)
            handler = logging.handlers.RotatingFileHandler(
                config.log_file, maxBytes=FILE_BYTES_MAX, backupCount=1, encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(
                f"log.file {config.log_file}: cannot be opened ({error.strerror})"
            ) from error
    handler.setFormatter(JsonFormatter() if config.log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(config.log_level.upper())
    # One line a request at info would drown what the agent says itself.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(
            logging.DEBUG if config.log_level == "debug" else logging.WARNING
        )


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return what came with `extra`; fields whose names speak of secrets are masked."""
    return {
        name: MASK if is_secret_name(name) else value
        for name, value in vars(record).items()
        if name not in _USUAL
    }


class TextFormatter(logging.Formatter):
    """`time level logger: message key=value …`, one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception's traceback follows on further lines."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = record.getMessage().replace("\n", "\\n")
        in_text = getattr(record, IN_TEXT, ())
        fields = "".join(
            f" {name}={value}"
            for name, value in extra_fields(record).items()
            if name not in in_text
        )
        line = f"{moment[:-6]}Z {record.levelname.lower()} {record.name}: {text}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        document: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extra_fields(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str, ensure_ascii=False)
