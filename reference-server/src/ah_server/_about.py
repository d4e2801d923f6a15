"""Which version this is, and what this machine is called where an id is needed."""

import re
import socket
from importlib.metadata import version

VERSION = version("ah-reference-server")


def host_id() -> str:
    """This machine's name as an id: what no id may hold becomes a dash."""
    name = re.sub(r"[^A-Za-z0-9_.:-]", "-", socket.gethostname())[:128]
    return name if re.match(r"[A-Za-z0-9]", name) else "this-server"
