"""What kind of machine this is."""

import os
import platform
import socket
import sys

from ahwal.host._psutil import psutil
from ahwire.agent_pb2 import Inventory


def inventory(*, now_ms: int) -> Inventory:
    """Return a description of this machine.

    Args:
        now_ms: Time of the report, Unix milliseconds.
    """
    return Inventory(
        collected_at_ms=now_ms,
        hostname=socket.gethostname(),
        os=sys.platform,
        kernel=platform.release(),
        arch=platform.machine(),
        cpus=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
    )
