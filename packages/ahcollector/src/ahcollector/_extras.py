"""What is not installed is named with the extra that brings it."""

from __future__ import annotations

from typing import Final

__all__ = ["missing_extra"]

_OWN: Final = ("ahcollector", "ahwire", "ahrules")


def missing_extra(what: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error to raise: `what` needs a package, and `extra` brings it.

    A missing module of these libraries themselves is no missing extra, and comes back as it is.
    """
    package = (error.name or "").partition(".")[0]
    if package in _OWN:
        return error
    return ModuleNotFoundError(
        f"{what} needs the package {package}, which is not installed: "
        f"pip install 'ahcollector[{extra}]'",
        name=error.name,
    )
