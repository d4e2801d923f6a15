"""Lets the tests of this folder share the reference that lies beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
