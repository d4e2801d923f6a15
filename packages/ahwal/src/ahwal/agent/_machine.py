"""Which machine this is: an id that a copied disk does not have twice, and the usual names."""

import hashlib
import logging
import os
import platform
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from ahwal._threads import DaemonCalls
from ahwal._version import package_version
from ahwal.agent._files import read_small
from ahwal.errors import CredentialsError
from ahwire.agent_pb2 import EnrollRequest

_SYSTEM_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
FILE_NAME = "machine-id"
_BYTES_MAX = 4096


def machine_id(state_dir: str) -> str | None:
    """Return the id of this machine, or None when it cannot be read.

    It is derived from the system's own id, which is confidential, and from nothing that an update
    changes. Where the system has none, the one that `make_machine_id` stored is used.
    """
    for name in (*_SYSTEM_FILES, str(Path(state_dir) / FILE_NAME)):
        try:
            text = read_small(Path(name), _BYTES_MAX).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text and text != "uninitialized":
            return hashlib.sha256(b"ahwal machine id\0" + text.encode()).hexdigest()[:32]
    return None


async def is_same_machine(
    enrolled: str, read: Callable[[], str | None], logger: logging.Logger
) -> bool:
    """Return whether this is the machine with the id `enrolled`; what is not known is no other."""
    try:
        current = await DaemonCalls(name="machine id", calls_max=1).run(read)
    except Exception as error:  # noqa: BLE001 - the function may be the embedder's code
        # It may raise anything, which says nothing about the machine.
        logger.warning("the machine's id cannot be read: %s: %s", type(error).__name__, error)
        current = None
    if current is None or not enrolled:
        logger.warning("the machine's id cannot be read; it is not compared with enrolment")
        return True
    return current == enrolled


def make_machine_id(state_dir: str) -> str:
    """Return the id of this machine; invent and store one where the system has none.

    Raises:
        CredentialsError: It cannot be stored.
    """
    known = machine_id(state_dir)
    if known is not None:
        return known
    path = Path(state_dir) / FILE_NAME
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_hex(16) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise CredentialsError(f"{path} cannot be written ({error.strerror})") from error
    made = machine_id(state_dir)
    assert made is not None, "it was just written"
    return made


def enroll_request(license_text: str, *, machine: str, labels: dict[str, str]) -> EnrollRequest:
    """Build the request that describes this machine."""
    return EnrollRequest(
        license=license_text,
        machine_id=machine,
        hostname=socket.gethostname(),
        os=sys.platform,
        arch=platform.machine(),
        agent_version=package_version(),
        labels=labels,
    )
