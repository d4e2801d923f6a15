"""Agents are revoked and deleted while they send without pause: nobody is left and told as down."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.clock import SystemClock
from ahcollector.metrics import PRESENCE_LATE_CONTACTS, PrometheusMetrics
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.presence._gone import Gone
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry import Directory, NegativeCache
from ahcollector.registry.redis import RedisRegistry
from ahwire import AgentRecord
from ahwire.hub import AgentState

SCRIPT = Path(__file__).with_name("sender_process.py")
T0 = 1_700_000_000.0
A = AgentRef(agent_id="agent-a", company_id="acme", server_id="web-1")
COUNT = 30


def record(number):
    return AgentRecord(
        agent_id=f"agent-{number:02}",
        company_id="gone" if number % 3 == 0 else "acme",
        server_id="gone" if number % 3 == 1 else "s",
        state=AgentState.ACTIVE,
        token_hash=f"{number:064x}",
        version=1,
    )


@pytest.mark.anyio
@pytest.mark.service
async def test_revoked_while_they_send_without_pause_nobody_is_left_and_told_as_down(
    shared, redis_server
):
    """Another process goes on letting them in for a second; each way to remove one is taken."""
    presence = shared(name="admin", default_interval_seconds=1.0, down_min_seconds=5.0)
    prefix = shared.client(presence).prefix
    client = RedisClient(
        config=RedisConfig(port=redis_server.port, prefix=prefix, timeout_seconds=10)
    )
    directory = Directory(
        registry=RedisRegistry(client=client),
        presence=presence,
        negative=NegativeCache(),
        clock=SystemClock(),
    )
    for number in range(COUNT):
        await directory.put(record(number))
    command = [sys.executable, str(SCRIPT), str(redis_server.port), prefix, str(COUNT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as door:
        try:
            with anyio.fail_after(60):
                assert await anyio.to_thread.run_sync(door.stdout.readline) == "on\n"
                await directory.delete_company("gone")
                await directory.delete_server("acme", "gone")
                for number in range(2, COUNT, 3):
                    await directory.revoke(f"agent-{number:02}")
                late = int(await anyio.to_thread.run_sync(door.stdout.readline))
        finally:
            door.kill()
            await client.aclose()
    assert await presence.agents() == []
    assert await presence.expire(SystemClock().time() + 10_000, 500) == []
    assert late > COUNT, "else nothing was shown"


@pytest.mark.anyio
async def test_contacts_that_came_too_late_are_counted():
    metrics = PrometheusMetrics()
    presence = MemoryPresence(event_ids=str, metrics=metrics)
    await presence.touch(A, T0, None)
    await presence.remove(A.agent_id, T0, "removed")
    for second in range(3):
        await presence.touch(A, T0 + second, None)
    assert f"{PRESENCE_LATE_CONTACTS.name} 3.0".encode() in metrics.exposition()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_quiet_that_is_no_length_is_refused(seconds):
    with pytest.raises(ValueError, match="removed_quiet_seconds is"):
        MemoryPresence(event_ids=str, removed_quiet_seconds=seconds)


@pytest.mark.anyio
async def test_without_a_quiet_the_next_contact_makes_an_agent_known():
    presence = MemoryPresence(event_ids=str, removed_quiet_seconds=0.0)
    await presence.touch(A, T0, None)
    await presence.remove(A.agent_id, T0, "removed")
    await presence.touch(A, T0, None)
    assert (await presence.counts()).agents == 1


@given(step=st.integers(-2_000, 2_000), quiet=st.integers(1, 1_000))
def test_wherever_the_clock_steps_nobody_is_deaf_for_more_than_twice_the_quiet(step, quiet):
    """C17. Whoever is deaf after a step hears again after that time, else after the quiet."""
    gone = Gone(quiet_seconds=quiet)
    gone.add("a", seq=1, now=T0)
    deaf = gone.is_quiet("a", T0 + step)
    assert deaf is (abs(step) < quiet)
    assert not (deaf and gone.is_quiet("a", T0 + step + 2 * quiet))
    assert not gone.is_quiet("a", T0 + quiet)


def test_removals_of_ids_that_nobody_knew_are_bounded_and_not_saved():
    gone = Gone(quiet_seconds=60.0)
    for number in range(10_001):
        gone.add_again(f"a{number}", T0)
    assert not gone.is_quiet("a0", T0)
    assert gone.is_quiet("a1", T0)
    assert gone.is_quiet("a10000", T0)
    assert gone.all() == ()
    assert gone.take("a1") == 0
    assert not gone.is_quiet("a1", T0)
