"""Makes the modules beside the tests importable, and the hub of the outbox's tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "outbox"))
