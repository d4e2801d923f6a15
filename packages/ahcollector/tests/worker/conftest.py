"""Lets the tests of this folder, and the processes they start, share `dead_stage`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
