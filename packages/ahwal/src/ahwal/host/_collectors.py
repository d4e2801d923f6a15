"""The collectors of the host, one a subject.

Rates are left to the server: counters are sent as they are. The only exception is the processor's
use in percent, a difference of two readings, because that is what people look for first; its first
cycle has none until `prime` was called.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from ahwal._sample import Sample
from ahwal.host._psutil import psutil

# File systems that are views of memory or of the kernel, and fill no disk.
_UNREAL_FILE_SYSTEMS = frozenset(
    {
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
        "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "overlay", "proc",
        "pstore", "ramfs", "rpc_pipefs", "securityfs", "squashfs", "sysfs", "tmpfs", "tracefs",
    }
)  # fmt: skip
MOUNTS_MAX = 64
DEVICES_MAX = 64


def collectors(*, mounts: Callable[[], list[str]] | None = None) -> list["HostCollector"]:
    """Return all host collectors.

    Their names are cpu, memory, swap, load, disks, disk_io, network, uptime, processes and self.

    Args:
        mounts: Where file systems are mounted; default: the real disks of this machine, and `/`.
    """
    list_mounts = mounts if mounts is not None else real_mounts
    process = psutil.Process()
    return [
        HostCollector("cpu", _cpu, lambda: psutil.cpu_times_percent(interval=None)),
        HostCollector("memory", _memory),
        HostCollector("swap", _swap),
        HostCollector("load", _load),
        HostCollector("disks", lambda: _disks(list_mounts())),
        HostCollector("disk_io", _disk_io),
        HostCollector("network", _network),
        HostCollector("uptime", _uptime),
        HostCollector("processes", _processes),
        HostCollector("self", lambda: _self(process), lambda: process.cpu_percent(interval=None)),
    ]


def real_mounts() -> list[str]:
    """Return the mount points of real disks, and `/` in any case."""
    found = {
        part.mountpoint
        for part in psutil.disk_partitions(all=False)
        if part.fstype not in _UNREAL_FILE_SYSTEMS
        # A container's bind mounts of single files would each repeat the disk below.
        and os.path.isdir(part.mountpoint)  # noqa: PTH112 - a Path would resolve nothing more
    }
    root = os.path.abspath(os.sep)  # noqa: PTH100 - the drive's root on Windows
    return sorted(found | {root})[:MOUNTS_MAX]


def _nothing() -> None:
    return None


@frozen
class HostCollector:
    """One subject of the host; a `Collector`."""

    name: str
    read: Callable[[], Iterable[Sample]]
    first_reading: Callable[[], object] = _nothing

    def prime(self) -> None:
        """Take the first reading of a difference."""
        self.first_reading()

    def collect(self) -> Iterable[Sample]:
        """Read the samples now."""
        return self.read()


def _cpu() -> Iterator[Sample]:
    modes = psutil.cpu_times_percent(interval=None)._asdict()
    yield Sample("cpu_usage_percent", max(0.0, 100.0 - modes["idle"] - modes.get("iowait", 0.0)))
    for mode in ("user", "system", "iowait", "steal"):
        if mode in modes:
            yield Sample("cpu_mode_percent", modes[mode], {"mode": mode})
    yield Sample("cpu_count", psutil.cpu_count() or 1)


def _memory() -> Iterator[Sample]:
    memory = psutil.virtual_memory()
    yield Sample("memory_total_bytes", memory.total)
    yield Sample("memory_available_bytes", memory.available)
    yield Sample("memory_used_bytes", memory.used)
    yield Sample("memory_used_percent", memory.percent)


def _swap() -> Iterator[Sample]:
    swap = psutil.swap_memory()
    yield Sample("swap_total_bytes", swap.total)
    yield Sample("swap_used_bytes", swap.used)
    yield Sample("swap_used_percent", swap.percent)


def _load() -> Iterator[Sample]:
    for minutes, value in zip((1, 5, 15), psutil.getloadavg(), strict=True):
        yield Sample(f"load_{minutes}m", value)


def _disks(mounts: list[str]) -> Iterator[Sample]:
    for mount in mounts:
        try:
            usage = psutil.disk_usage(mount)
        except OSError:
            # It was unmounted meanwhile, or we may not look at it.
            continue
        labels = {"mount": mount}
        yield Sample("disk_total_bytes", usage.total, labels)
        yield Sample("disk_used_bytes", usage.used, labels)
        yield Sample("disk_free_bytes", usage.free, labels)
        yield Sample("disk_used_percent", usage.percent, labels)


def _disk_io() -> Iterator[Sample]:
    counters = psutil.disk_io_counters(perdisk=True) or {}
    for device, io in sorted(counters.items())[:DEVICES_MAX]:
        if device.startswith(("loop", "ram")):
            continue
        labels = {"device": device}
        yield Sample("disk_read_bytes_total", io.read_bytes, labels)
        yield Sample("disk_written_bytes_total", io.write_bytes, labels)
        yield Sample("disk_reads_total", io.read_count, labels)
        yield Sample("disk_writes_total", io.write_count, labels)


def _network() -> Iterator[Sample]:
    counters = psutil.net_io_counters(pernic=True) or {}
    for interface, io in sorted(counters.items())[:DEVICES_MAX]:
        labels = {"interface": interface}
        yield Sample("network_received_bytes_total", io.bytes_recv, labels)
        yield Sample("network_sent_bytes_total", io.bytes_sent, labels)
        yield Sample("network_receive_errors_total", io.errin, labels)
        yield Sample("network_send_errors_total", io.errout, labels)
        yield Sample("network_receive_drops_total", io.dropin, labels)
        yield Sample("network_send_drops_total", io.dropout, labels)


def _uptime() -> Iterator[Sample]:
    yield Sample("uptime_seconds", max(0.0, time.time() - psutil.boot_time()))


def _processes() -> Iterator[Sample]:
    yield Sample("processes_count", len(psutil.pids()))


def _self(process: psutil.Process) -> Iterator[Sample]:
    with process.oneshot():
        yield Sample("agent_cpu_percent", process.cpu_percent(interval=None))
        yield Sample("agent_rss_bytes", process.memory_info().rss)
        yield Sample("agent_threads", process.num_threads())
        yield Sample("agent_uptime_seconds", max(0.0, time.time() - process.create_time()))
        if hasattr(process, "num_fds"):
            yield Sample("agent_open_files", process.num_fds())
