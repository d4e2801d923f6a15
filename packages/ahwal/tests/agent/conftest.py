import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ahwal import AgentConfig
from ahwal.agent import Credentials, CredentialStore
from ahwal.testing import ScriptedCollector

# For `running.py`, which the test modules share.
sys.path.insert(0, str(Path(__file__).parent))

# phase_offset("agent-1", 10) is used by the schedule tests.
AGENT_ID = "agent-1"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def collector() -> Iterator[ScriptedCollector]:
    with ScriptedCollector() as running:
        yield running


def store_identity(state_dir: Path, collector_url: str = "", **changes: object) -> Credentials:
    now = datetime(2023, 11, 14, tzinfo=UTC)
    values = {
        "agent_id": AGENT_ID,
        "company_id": "company-1",
        "server_id": "server-1",
        "agent_token": "canary-agent-token",
        "token_issued_at": now,
        "collector_url": collector_url,
        "enrolled_at": now,
        "machine_id": "machine-1",
        **changes,
    }
    credentials = Credentials(**values)
    CredentialStore(state_dir=str(state_dir)).save(credentials)
    return credentials


@pytest.fixture
def identity():
    return store_identity


@pytest.fixture
def config(collector: ScriptedCollector, tmp_path: Path) -> AgentConfig:
    store_identity(tmp_path, collector.url)
    return AgentConfig(collector_url=collector.url, state_dir=tmp_path, interval_seconds=10)
