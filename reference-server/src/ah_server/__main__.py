"""`ah-server`, and `python -m ah_server`."""

import sys

from ah_server.cli import main

if __name__ == "__main__":
    sys.exit(main())
