"""What kind of machine this is, and when the collector should hear of it."""

import logging
import os
import platform
import socket
import sys
from collections.abc import Callable

import anyio

from ahwal._threads import DaemonCalls
from ahwal._version import package_version
from ahwal.clock import AsyncClock
from ahwire import now_ms
from ahwire.agent_pb2 import Inventory

CHECK_EVERY_SECONDS = 3600.0
REPEAT_EVERY_SECONDS = 86_400.0
READ_TIMEOUT_SECONDS = 10.0

# What an embedding program may pass; None as its result reports nothing.
ReadInventory = Callable[[], Inventory | None]


def basic_inventory() -> Inventory:
    """Return what the standard library knows of this machine; what it does not know is unset."""
    return Inventory(
        hostname=socket.gethostname(),
        os=sys.platform,
        kernel=platform.release(),
        arch=platform.machine(),
        cpus=os.cpu_count() or 0,
        memory_bytes=_memory_bytes(),
        facts={"agent_version": package_version(), "python_version": platform.python_version()},
    )


def _memory_bytes() -> int:
    try:
        return max(0, os.sysconf("SC_PHYS_PAGES")) * max(0, os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 0  # Windows has no sysconf, others not these names.


class InventoryReport:
    """Decides when the inventory goes out: at the start, on a change, and once a day.

    Once a day, because the collector passes it on and keeps nothing: whoever lost it has it again
    within a day. It is never buffered; one that could not be sent is read anew.

    Args:
        read: Describes the machine; may block, and runs in a daemon thread.
        clock: Stamps the report.
        logger: The agent's logger.
    """

    check_every_seconds = CHECK_EVERY_SECONDS

    def __init__(self, *, read: ReadInventory, clock: AsyncClock, logger: logging.Logger) -> None:
        self._read = read
        self._clock = clock
        self._log = logger
        self._calls = DaemonCalls(name="inventory", calls_max=1)
        self._sent = b""
        self._sent_at = 0.0
        self._failing = False

    async def next(self, now: float) -> Inventory | None:
        """Return what is to be sent at monotonic `now`; None when nothing is."""
        try:
            with anyio.fail_after(READ_TIMEOUT_SECONDS):
                report = await self._calls.run(self._read)
            if report is None:
                return None
            content = _content(report)
        except Exception as error:  # noqa: BLE001 - the function is the embedder's code
            # It may raise anything, and costs the report only.
            level = logging.DEBUG if self._failing else logging.WARNING
            self._failing = True
            self._log.log(
                level, "the inventory could not be read: %s: %s", type(error).__name__, error
            )
            return None
        self._failing = False
        if content == self._sent and now - self._sent_at < REPEAT_EVERY_SECONDS:
            return None
        stamped = Inventory()
        stamped.CopyFrom(report)
        stamped.collected_at_ms = now_ms(self._clock)
        return stamped

    def sent(self, report: Inventory, now: float) -> None:
        """Remember what the collector has since monotonic `now`."""
        self._sent, self._sent_at = _content(report), now


def _content(report: Inventory) -> bytes:
    """Return what counts as a change: all but the time of the report."""
    content = Inventory()
    content.CopyFrom(report)
    content.ClearField("collected_at_ms")
    return content.SerializeToString(deterministic=True)
