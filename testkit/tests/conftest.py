import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the clients of these services are asyncio clients
