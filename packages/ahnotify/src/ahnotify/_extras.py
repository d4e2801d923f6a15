"""What to say when a part is used whose extra was not installed."""

from __future__ import annotations


def missing_extra(part: str, extra: str, error: ModuleNotFoundError) -> ImportError:
    """The error to raise from `error`: which extra brings the module that is not there."""
    return ImportError(extra_text(part, extra, error), name=error.name)


def extra_text(part: str, extra: str, error: ModuleNotFoundError) -> str:
    """The same as a text."""
    return f"{part} needs {error.name}, which is not installed; install ahnotify[{extra}]"
