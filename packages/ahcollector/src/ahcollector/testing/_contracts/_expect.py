"""What the suites need of a test framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["expect"]


@contextmanager
def expect(error: type[Exception]) -> Iterator[None]:
    """Fail unless the block raises this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
