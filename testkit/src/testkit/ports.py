"""Loopback ports that stay ours while a service is down.

A restarted service must come back on its old port. Between kill and restart two things can take
it: another test run looking for a free port, and the kernel, which hands out ephemeral ports to
outgoing connections (a client that keeps dialling a dead ephemeral port can even connect to
itself). So ports are taken below the ephemeral range, and a reservation is held as a bound
abstract Unix socket, which the kernel releases however the process ends.
"""

import random
import socket
import sys
from pathlib import Path

__all__ = ["HOST", "Port", "free_port"]

HOST = "127.0.0.1"
_LOWEST = 10_000
_TRIES_MAX = 1_000


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        start = int(text.split()[0])
    except (OSError, ValueError, IndexError):
        start = 32_768
    # A machine may be set up with nearly all ports ephemeral; then no port is better than another.
    return start if start > _LOWEST + _TRIES_MAX else 60_000


def _is_free(number: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, number))
        except OSError:
            return False
    return True


def _reservation(number: int) -> socket.socket | None:
    """Take the machine-wide mark of a port, or return None when another process has it."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if sys.platform != "linux":
        return mark  # no abstract sockets: the port is only known to be free now
    try:
        mark.bind(f"\0testkit-port-{number}")
    except OSError:
        mark.close()
        return None
    return mark


class Port:
    """A loopback TCP port that no other testkit process will take until `release()`."""

    def __init__(self, *, rng: random.Random | None = None) -> None:
        chance = rng or random.Random()
        highest = _ephemeral_start() - 1
        for _ in range(_TRIES_MAX):
            number = chance.randint(_LOWEST, highest)
            mark = _reservation(number)
            if mark is None:
                continue
            if _is_free(number):
                self.number = number
                self._mark = mark
                return
            mark.close()
        raise OSError(f"no free loopback port between {_LOWEST} and {highest}: end what uses them")

    def release(self) -> None:
        """Give the port back; may be called twice."""
        self._mark.close()


def free_port() -> int:
    """Return a loopback port that is free now, below the ephemeral range, without reserving it."""
    port = Port()
    port.release()
    return port.number
