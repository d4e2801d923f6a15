"""Texts of messages."""

__all__: list[str] = []
