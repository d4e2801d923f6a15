"""`python -m testkit`: installs missing programs, says where each is, exits 1 if one is not."""

import sys

from testkit import SERVICES
from testkit.errors import MissingProgramError
from testkit.install import Installer, find


def main() -> int:
    """Print one line a service."""
    problem = ""
    try:
        Installer().require([service.program for service in SERVICES])
    except MissingProgramError as error:
        problem = str(error)
    for service in SERVICES:
        where = find(service.program)
        sys.stdout.write(f"testkit: {service.program.name:16} {where or 'MISSING'}\n")
    if problem:
        sys.stderr.write(problem + "\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
