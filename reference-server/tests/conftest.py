import sys
from pathlib import Path

import pytest

# Lets tests share what lies beside them.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def anyio_backend():
    return "asyncio"
