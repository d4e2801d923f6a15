import logging
import sys
from pathlib import Path

import pytest

# Lets tests share what lies beside them.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def root_log(monkeypatch):
    """Let no test meet the log of another: what runs here sends it to its test's own output."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
