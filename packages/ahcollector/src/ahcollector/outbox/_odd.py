"""Answers of which nobody knows whether the hub or something before it gave them."""

from __future__ import annotations

from typing import Final

from ahcollector.errors import TemporaryHubError

__all__ = ["is_odd"]

_CLIENT_FAULTS: Final = range(400, 500)
_RETRIED: Final = frozenset({401, 403, 408, 412, 429})


def is_odd(error: TemporaryHubError) -> bool:
    """Return whether it is a 4xx that says nothing of a retry, without the code of the hub."""
    return error.status in _CLIENT_FAULTS and error.status not in _RETRIED
