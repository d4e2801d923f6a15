"""Log lines whose figures stand in the text, because most hosts show nothing else of a line."""

import logging
import os
from collections.abc import Mapping
from typing import Any

# A record's attribute: the names of the fields that its text shows already.
IN_TEXT = "_in_text"


class FiguresLogger(logging.Logger):
    """Writes through another logger, with the fields of `extra` behind the text, and in `extra`.

    It is in no registry: level, filters and handlers are the other one's, whatever becomes of them.

    Args:
        given: The host's logger.
        directory: The WAL's directory; a field of each line.
    """

    def __init__(self, given: logging.Logger, directory: str | os.PathLike[str]) -> None:
        super().__init__(given.name)
        self._given = given
        self._directory = os.fspath(directory)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the standard library's name
        """As the other logger says at this moment."""
        return self._given.isEnabledFor(level)

    def handle(self, record: logging.LogRecord) -> None:
        """Hand the line on, to filters and handlers."""
        self._given.handle(record)

    def makeRecord(  # noqa: N802 - the standard library's name
        self,
        name: str,
        level: int,
        fn: str,
        lno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        extra: Mapping[str, object] | None = None,
        sinfo: str | None = None,
    ) -> logging.LogRecord:
        """Make the line."""
        fields = {**(extra or {}), "directory": self._directory}
        shown = {key: f"{key}={_text(value)}" for key, value in fields.items() if value}
        text = (str(msg) % args if args else str(msg)) + f" ({' '.join(shown.values())})"
        fields[IN_TEXT] = frozenset(shown)
        return self._given.makeRecord(name, level, fn, lno, text, (), exc_info, func, fields, sinfo)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{count}" for key, count in value.items())
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return str(value)
