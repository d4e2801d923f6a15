"""Decisions to digests."""

from ahnotify.scheduling._scheduling import Scheduling

__all__ = ["Scheduling"]
