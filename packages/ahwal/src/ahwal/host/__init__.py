"""This machine's metrics, read with psutil (extra `ahwal[host]`)."""

from ahwal.host._collectors import collectors
from ahwal.host._inventory import inventory

__all__ = ["collectors", "inventory"]
