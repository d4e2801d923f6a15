"""Fixtures of all tests of this package."""

import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"
