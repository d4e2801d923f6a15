"""The queue between collecting and sending: its protocol, and one that lives in memory."""

from ahwal.queue.base import DropReason, Entry, Queue, Stats
from ahwal.queue.memory import MemoryQueue

__all__ = ["DropReason", "Entry", "MemoryQueue", "Queue", "Stats"]
