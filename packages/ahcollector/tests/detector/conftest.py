"""Makes the modules beside the tests importable, and those that others' tests share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "outbox"))
sys.path.append(str(Path(__file__).parent.parent / "alerts"))
