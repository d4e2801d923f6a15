"""Counters of a zone, by name: what it did, for metrics and tests."""

from __future__ import annotations

from collections import Counter


class Counters:
    """Numbers that only grow; a name that was never counted is 0."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count `name`."""
        self._counts[name] += count

    def __getitem__(self, name: str) -> int:
        return self._counts[name]
