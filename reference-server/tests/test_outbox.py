"""Which outbox a server has, what its settings reach, and what an earlier one in a file held."""

import uuid
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from ah_server.errors import SettingsError
from ah_server.settings import settings_from
from ah_server.wiring import Seams
from ah_server.wiring._outbox import outbox_of
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import DiscardOutbox, FileOutbox, LocalLease, MemoryOutbox
from ahwire import Event, EventType

pytestmark = pytest.mark.anyio


def event(number):
    return Event(
        event_id=f"018bcfe5-6800-7000-8000-{number:012x}",
        type=EventType.AGENT_DOWN,
        seq=number,
        occurred_at=datetime(2026, 11, 30, tzinfo=UTC),
        company_id="acme",
        server_id="web1",
        agent_id="ag1",
        suppressed=False,
    )


async def opened(stack, settings, redis=None):
    return await outbox_of(settings, Seams(), PrometheusMetrics(), redis, stack)


def settings_of(tmp_path, **sections):
    return settings_from({"state_dir": str(tmp_path), **sections}, {})


@pytest.mark.parametrize(
    ("outbox", "kind", "place"),
    [
        ({}, FileOutbox, "outbox"),
        ({"backend": "file"}, FileOutbox, "outbox"),
        ({"dir": "ELSEWHERE"}, FileOutbox, "elsewhere"),
        ({"backend": "memory"}, MemoryOutbox, None),
        ({"backend": "discard"}, DiscardOutbox, None),
    ],
)
async def test_without_redis_it_is_a_file_unless_another_is_named(tmp_path, outbox, kind, place):
    if "dir" in outbox:
        outbox = {"dir": str(tmp_path / "elsewhere")}
    settings = settings_of(tmp_path, outbox={**outbox, "dead_max": 2})
    async with AsyncExitStack() as stack:
        made = await opened(stack, settings)
        assert isinstance(made.outbox, kind)
        assert (made.lease is None) == (kind is DiscardOutbox)
        assert made.lease is None or isinstance(made.lease, LocalLease)
        assert [path.name for path in tmp_path.iterdir()] == ([place] if place else [])
        if kind is not DiscardOutbox:
            await made.outbox.append([event(number) for number in range(5)], 0.0)
            ids = [event(number).event_id for number in range(5)]
            await made.outbox.dead(ids, "rejected", 0.0, None)
            assert (await made.outbox.stats(0.0)).dead == 2


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"outbox": {"backend": "redis"}}, "outbox.backend: redis needs redis.addr"),
        (
            {"redis": {"addr": "127.0.0.1:1"}, "hub": {"timeout_seconds": 12}},
            "outbox.lease_seconds: 15 is under one and a half times hub.timeout_seconds (12)",
        ),
        ({"outbox": {"backend": "paper"}}, "outbox.backend"),
    ],
)
async def test_what_cannot_work_is_refused_with_the_way_out(tmp_path, sections, told):
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, **sections)
    assert told in str(caught.value)


async def test_a_slow_hub_is_no_contradiction_where_nobody_shares_the_outbox(tmp_path):
    settings = settings_of(tmp_path, hub={"timeout_seconds": 60})
    assert settings.outbox_backend == "file"


@pytest.mark.service
async def test_with_redis_it_is_shared_and_takes_what_a_file_held(tmp_path, redis_server, caplog):
    """A server that is given a Redis delivers what it had not yet, and says what stays behind."""
    from ahcollector.outbox.redis import RedisLease, RedisOutbox
    from ahcollector.redis import RedisClient, RedisConfig

    prefix = f"{uuid.uuid4().hex}:"
    alone = settings_of(tmp_path)
    async with AsyncExitStack() as stack:
        file = (await opened(stack, alone)).outbox
        await file.append([event(number) for number in range(500)], 0.0)
        await file.dead([event(0).event_id], "rejected", 0.0, None)
    shared = settings_of(
        tmp_path,
        redis={"addr": f"127.0.0.1:{redis_server.port}", "prefix": prefix},
        outbox={"lease_seconds": 20},
    )
    client = RedisClient(config=RedisConfig(port=redis_server.port, prefix=prefix))
    for turn in range(2):
        async with AsyncExitStack() as stack:
            made = await opened(stack, shared, client)
            assert isinstance(made.outbox, RedisOutbox)
            assert isinstance(made.lease, RedisLease)
            found = [entry.event.seq for entry in await made.outbox.peek(1_000)]
            assert found == list(range(1, 500))
            if turn == 0:
                assert await made.lease.hold() is not None
                left = await client.call("PTTL", client.key("outbox", "sender"))
                assert 15_000 < left <= 20_000
    assert "still has dead letters" in caplog.text
    async with AsyncExitStack() as stack:
        file = (await opened(stack, settings_of(tmp_path, outbox={"backend": "file"}))).outbox
        assert await file.peek(10) == []
        assert len(await file.dead_letters()) == 1
    await client.aclose()
