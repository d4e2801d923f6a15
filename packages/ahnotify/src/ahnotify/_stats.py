"""Counters of a zone, by name: what it did, for metrics and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType


class Counters:
    """Numbers that only grow; a name that was never counted is 0."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count `name`."""
        self._counts[name] += count

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def as_mapping(self) -> Mapping[str, int]:
        """A live, read-only view."""
        return MappingProxyType(self._counts)
