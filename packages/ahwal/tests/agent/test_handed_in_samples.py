"""Samples that the host's own threads hand to an agent that runs."""

import os
import signal
import threading
import time
import warnings

import anyio
import attrs
import pytest
from anyio import to_thread

from ahwal import Agent, AgentState, MemoryQueue, Sample, Sender, WALWriteError
from ahwal.agent._disk import open_wal
from ahwal.testing import refuse
from ahwire.agent_pb2 import MetricsBatch


def make_agent(config, **options):
    return Agent(config, [], read_machine_id=lambda: "machine-1", **options)


def points(collector):
    return [
        (series.name, point.ts_ms, point.value)
        for batch in collector.batches()
        for series in batch.series
        for point in series.points
    ]


def law(status):
    return status.produced + status.inherited == (
        status.delivered + sum(status.dropped.values()) + status.queued
    )


def now_ms():
    return round(time.time() * 1000) - 5000


def test_they_are_on_disk_when_the_call_returns_and_keep_their_time(config, collector):
    at = now_ms()
    with make_agent(config) as agent:
        enqueued = agent.enqueue([Sample("handed", 7)], collected_at_ms=at)
        assert (enqueued.points, enqueued.on_disk) == (1, True)
        assert agent.flush(5.0)
    assert ("handed", at, 7.0) in points(collector)
    assert law(agent.status().sender)


def test_they_are_sent_at_once_and_not_with_the_next_cycle(config, collector):
    with make_agent(attrs.evolve(config, interval_seconds=300)) as agent:
        agent.enqueue([Sample("handed", 7)])
        collector.wait_for(1)
        assert agent.status().cycles == 0


@pytest.mark.anyio
async def test_an_agent_in_an_event_loop_takes_them_from_threads_and_from_the_loop(
    config, collector
):
    agent = make_agent(config)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run)
        at = now_ms()
        first = await to_thread.run_sync(
            lambda: agent.enqueue([Sample("from_thread", 1)], collected_at_ms=at)
        )
        second = agent.enqueue([Sample("from_loop", 2)], collected_at_ms=at)
        assert first.on_disk
        assert second.on_disk
        assert await to_thread.run_sync(agent.flush, 5.0)
        agent.stop()
    assert {("from_thread", at, 1.0), ("from_loop", at, 2.0)} <= set(points(collector))


@pytest.mark.anyio
async def test_a_loop_that_is_busy_does_not_hold_the_thread_that_hands_them_in(config, collector):
    agent = make_agent(config)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run)
        await to_thread.run_sync(lambda: agent.enqueue([Sample("first", 1)]))
        done = threading.Event()
        thread = threading.Thread(target=lambda: (agent.enqueue([Sample("second", 2)]), done.set()))
        thread.start()
        assert done.wait(5)  # the loop does nothing else meanwhile
        thread.join()
        agent.stop()


def test_a_large_batch_is_not_overtaken_by_one_with_a_higher_number():
    """The newest entry has the largest number: the next process goes on from there."""
    queue = MemoryQueue(max_bytes=1 << 24)
    sender = Sender(queue=queue, transport=None)
    large = [Sample("large", n, {"n": str(n)}) for n in range(3000)]
    thread = threading.Thread(target=lambda: [sender.append(large) for _ in range(3)])
    thread.start()
    while thread.is_alive():
        sender.append([Sample("small", 1)])
    thread.join()
    numbers = [MetricsBatch.FromString(e.data).seq for e in queue.peek(100_000, 1 << 30)]
    assert numbers == sorted(set(numbers))


def test_many_threads_at_once_lose_nothing_and_use_no_number_twice(config, collector):
    threads_count, each = 8, 10
    collector.always(refuse(503, "unavailable"))
    with make_agent(config) as agent:

        def work(number):
            for turn in range(each):
                agent.enqueue([Sample("t", turn, {"thread": str(number)})])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        status = agent.status().sender
        assert status.produced == threads_count * each == status.queued
        assert law(status)
    with open_wal(config) as queue:
        numbers = [MetricsBatch.FromString(e.data).seq for e in queue.peek(1000, 1 << 30)]
    assert len(numbers) == threads_count * each
    assert numbers == sorted(set(numbers))


def test_what_the_disk_refuses_waits_in_memory_and_the_answer_says_so(config, collector):
    class Full:
        def __init__(self, queue):
            self._queue = queue

        def append(self, data):
            raise WALWriteError("no space left")

        def __getattr__(self, name):
            return getattr(self._queue, name)

    with make_agent(config, open_queue=lambda: Full(open_wal(config))) as agent:
        enqueued = agent.enqueue([Sample("handed", 7)])
        assert (enqueued.points, enqueued.on_disk) == (1, False)
        assert agent.flush(5.0)
    assert [name for name, _, _ in points(collector)] == ["handed"]


def test_what_cannot_be_sent_is_told_and_counted(config, collector):
    with make_agent(config) as agent:
        enqueued = agent.enqueue(
            [Sample("a", float("nan")), Sample("c", -(10**400)), Sample("", 1), Sample("b", 1)]
        )
        assert enqueued.points == 1
        assert {str(k): v for k, v in enqueued.dropped.items()} == {
            "not_finite": 2,
            "bad_sample": 1,
        }
        assert law(agent.status().sender)


def test_an_agent_that_does_not_run_takes_nothing_and_says_so_once(config, caplog):
    agent = make_agent(config)
    assert agent.enqueue([Sample("early", 1)], timeout_seconds=0.01).points == 0
    assert not agent.flush(0.01)
    with agent:
        assert agent.enqueue([Sample("in_time", 1)]).on_disk
    assert agent.status().state is AgentState.STOPPED
    for _ in range(3):
        late = agent.enqueue([Sample("late", 1)])
        assert (late.points, late.on_disk) == (0, False)
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == ["the agent did not take samples handed to it: it does not run"] * 2


def test_an_agent_on_another_machine_takes_nothing(config):
    with Agent(config, [], read_machine_id=lambda: "machine-2") as agent:
        assert agent.enqueue([Sample("lost", 1)], timeout_seconds=5.0).points == 0
        assert agent.status().state is AgentState.IDENTITY_MISMATCH


def test_a_revoked_agent_takes_nothing_and_does_not_wait_for_a_flush(config, collector):
    collector.always(refuse(403, "agent_revoked"))
    with make_agent(config) as agent:
        agent.enqueue([Sample("before", 1)])
        assert not agent.flush(5.0)
        assert agent.enqueue([Sample("after", 1)]).points == 0
        assert agent.status().sender.queued == 1


def test_a_forked_child_takes_nothing(config):
    """W17: the child has neither the agent's thread nor the queue's lock."""
    with make_agent(config) as agent:
        assert agent.enqueue([Sample("parent", 1)]).on_disk
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork
            child = os.fork()
        if child == 0:
            signal.alarm(5)  # a child that hangs ends here, and has then written nothing
            try:
                taken = agent.enqueue([Sample("child", 1)], timeout_seconds=0.1).points
                os.write(write, str(taken).encode())
            finally:
                os._exit(0)
        os.close(write)
        told = os.read(read, 10)
        os.close(read)
        os.waitpid(child, 0)
        assert told == b"0"
        assert agent.enqueue([Sample("parent", 2)]).on_disk
