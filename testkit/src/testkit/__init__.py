"""Starts private real services for tests on free loopback ports."""

__all__: list[str] = []
