"""Answers of which nobody knows whether the hub or something before it gave them."""

from __future__ import annotations

from typing import Final

from ahcollector.errors import TemporaryHubError
from ahcollector.hub._answers import CLIENT_FAULTS, FENCED, TEMPORARY_FAULTS

__all__ = ["is_odd"]

_RETRIED: Final = TEMPORARY_FAULTS | {FENCED}


def is_odd(error: TemporaryHubError) -> bool:
    """Return whether it is a 4xx that says nothing of a retry, without the code of the hub."""
    return error.status in CLIENT_FAULTS and error.status not in _RETRIED
