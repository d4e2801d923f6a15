"""What kind of machine this is, with what psutil adds to it."""

import platform

from ahwal.agent._inventory import basic_inventory
from ahwal.host._psutil import psutil
from ahwire.agent_pb2 import Inventory


def inventory(*, now_ms: int = 0) -> Inventory:
    """Return a description of this machine; `Agent(read_inventory=inventory)` reports it.

    `facts` holds `agent_version`, `python_version`, `swap_bytes`, and where they are known
    `os_release` and `cpus_physical`.

    Args:
        now_ms: Time of the report, Unix milliseconds; an agent sets it when it sends.
    """
    report = basic_inventory()
    report.collected_at_ms = now_ms
    report.memory_bytes = psutil.virtual_memory().total
    physical = psutil.cpu_count(logical=False)
    if physical:
        report.facts["cpus_physical"] = str(physical)
    report.facts["swap_bytes"] = str(psutil.swap_memory().total)
    release = _os_release()
    if release:
        report.facts["os_release"] = release
    return report


def _os_release() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")[:200]
    except OSError:
        return ""  # Only Linux has the file, and not every container does.
