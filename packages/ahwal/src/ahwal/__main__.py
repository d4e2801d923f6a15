"""`python -m ahwal` is the command `ahagent`."""

import sys

from ahwal.cli import main

if __name__ == "__main__":
    sys.exit(main())
