"""Which outbox a process gets, what is missing for it, and the one that keeps nothing."""

import logging

import pytest

from ahcollector.errors import OutboxError
from ahcollector.metrics import OUTBOX_DISCARDED, PrometheusMetrics
from ahcollector.outbox import (
    DiscardOutbox,
    FileOutbox,
    LocalLease,
    MemoryOutbox,
    OutboxBackend,
    choose_backend,
    open_outbox,
)
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.outbox import T0, event

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("hub", "redis", "directory", "expected"),
    [
        (False, True, True, "discard"),
        (True, True, True, "redis"),
        (True, True, False, "redis"),
        (True, False, True, "file"),
        (True, False, False, "memory"),
    ],
)
async def test_what_auto_means(hub, redis, directory, expected):
    assert choose_backend(hub=hub, redis=redis, directory=directory) == expected


async def test_without_a_hub_events_are_counted_and_gone():
    metrics = PrometheusMetrics()
    async with open_outbox(hub=False, clock=FakeClock(), metrics=metrics) as opened:
        assert opened.backend is OutboxBackend.DISCARD
        assert opened.lease is None
        outbox = opened.outbox
        assert isinstance(outbox, DiscardOutbox)
        assert await outbox.append([event(1), event(2)], T0) == 2
        assert await outbox.peek(10) == []
        assert (await outbox.stats(T0)).depth == 0
        assert await outbox.dead_letters() == []
        ids = [event(1).event_id]
        assert await outbox.ack(ids, 1) + await outbox.dead(ids, "refused", T0, 1) == 0
        assert await outbox.expire(T0, T0) + await outbox.replay(None, T0) == 0
        assert await outbox.purge(None) == 0
        await outbox.ping()
    labels = {"type": "agent.down"}
    assert metrics.registry.get_sample_value(OUTBOX_DISCARDED.name, labels) == 2


async def test_a_directory_makes_it_a_file_that_is_closed_at_the_end(tmp_path):
    async with open_outbox(hub=True, directory=tmp_path / "ob", clock=FakeClock()) as opened:
        assert isinstance(opened.outbox, FileOutbox)
        assert isinstance(opened.lease, LocalLease)
        await opened.outbox.append([event(1)], T0)
    async with open_outbox(hub=True, directory=tmp_path / "ob", clock=FakeClock()) as opened:
        assert len(await opened.outbox.peek(10)) == 1


@pytest.mark.parametrize("hub", [True, False])
async def test_discarding_beside_a_hub_warns(caplog, hub):
    with caplog.at_level(logging.WARNING):
        async with open_outbox(backend=OutboxBackend.DISCARD, hub=hub, clock=FakeClock()):
            pass
    assert ("nobody is told of what happens" in caplog.text) is hub


async def test_memory_warns_unless_it_was_asked_for(caplog):
    with caplog.at_level(logging.WARNING):
        async with open_outbox(backend=OutboxBackend.MEMORY, hub=True, clock=FakeClock()) as opened:
            assert isinstance(opened.outbox, MemoryOutbox)
        assert not caplog.records
        async with open_outbox(hub=True, clock=FakeClock()) as opened:
            assert opened.backend is OutboxBackend.MEMORY
    assert "lost with this process" in caplog.text


@pytest.mark.parametrize(
    ("backend", "missing"), [("file", "needs a directory"), ("redis", "needs a Redis")]
)
async def test_what_is_missing_is_named(backend, missing):
    with pytest.raises(OutboxError, match=missing):
        async with open_outbox(backend=OutboxBackend(backend), hub=True, clock=FakeClock()):
            pass


@pytest.mark.service
async def test_redis_is_taken_where_it_is(outboxes, tmp_path):
    from ahcollector.outbox.redis import RedisLease, RedisOutbox

    async with open_outbox(
        hub=True, client=outboxes.client(), directory=tmp_path, clock=FakeClock()
    ) as opened:
        assert isinstance(opened.outbox, RedisOutbox)
        assert isinstance(opened.lease, RedisLease)
        await opened.outbox.append([event(1)], T0)
    assert len(await outboxes().peek(10)) == 1
    assert list(tmp_path.iterdir()) == []
