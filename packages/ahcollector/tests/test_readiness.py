"""What a process needs is asked at once and in bounded time, and each thing has its own answer."""

import anyio
import pytest

from ahcollector._readiness import dependencies
from ahcollector.errors import PresenceError

pytestmark = pytest.mark.anyio


async def test_each_dependency_has_its_own_answer():
    async def well():
        return None

    async def away():
        raise PresenceError("connection refused")

    async def silent():
        raise OSError

    checks = {"store": well, "hub": anyio.sleep_forever, "presence": away, "disk": silent}
    assert await dependencies(checks, timeout_seconds=0.01) == {
        "disk": "OSError",
        "hub": "no answer within 0.01 s",
        "presence": "connection refused",
        "store": "ok",
    }


async def test_they_are_asked_at_the_same_time():
    met = anyio.Event()

    async def waits():
        await met.wait()

    async def comes():
        met.set()

    checks = {"a": waits, "b": comes}
    assert set((await dependencies(checks)).values()) == {"ok"}
