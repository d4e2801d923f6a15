"""Texts of messages."""
