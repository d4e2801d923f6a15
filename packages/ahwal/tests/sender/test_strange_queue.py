"""What stands in the queue, or comes out of it, is nothing that this sender made."""

import pytest

from ahwal import WAL, Sample, Sender
from ahwal.queue import MemoryQueue
from ahwal.sender._batch import SEQ_MAX
from ahwal.testing import FakeClock
from ahwire.agent_pb2 import MetricsBatch
from ahwire.ids import now_ms

pytestmark = pytest.mark.anyio


class NoTransport:
    async def post_metrics(self, body, *, coding="gzip"):
        raise AssertionError("nothing is sent here")


class Mistaken(MemoryQueue):
    """A queue with a mistake: it raises what no queue should."""

    def __init__(self, **options):
        super().__init__(1 << 20, **options)
        self.error = None

    def append(self, data):
        if self.error is not None:
            raise self.error
        return super().append(data)


def numbers(queue):
    return [MetricsBatch.FromString(entry.data).seq for entry in queue.peek(99, 1 << 30)]


@pytest.mark.parametrize("seq", [SEQ_MAX + 1, 2**63 - 1, 2**64 - 1])
async def test_a_number_that_nobody_can_have_reached_does_not_use_up_ours(tmp_path, seq):
    clock = FakeClock()
    with WAL.open(tmp_path, clock=clock) as queue:
        queue.append(MetricsBatch(seq=seq).SerializeToString())
        sender = Sender(queue=queue, transport=NoTransport(), clock=clock)
        for _ in range(2):
            assert await sender.enqueue([Sample("work", 1)]) == 1
        first = now_ms(clock) + 1  # the time of the entry counts too
        assert numbers(queue) == [seq, first, first + 1]
        assert sender.status().on_disk


async def test_a_number_far_ahead_that_a_clock_can_have_made_is_gone_on_from(tmp_path):
    clock = FakeClock()
    with WAL.open(tmp_path, clock=clock) as queue:
        queue.append(MetricsBatch(seq=SEQ_MAX - 5).SerializeToString())
        sender = Sender(queue=queue, transport=NoTransport(), clock=clock)
        await sender.enqueue([Sample("work", 1)])
        assert numbers(queue) == [SEQ_MAX - 5, SEQ_MAX - 4]


@pytest.mark.parametrize("error", [ValueError("a mistake"), RuntimeError(), MemoryError()])
async def test_whatever_a_queue_raises_the_batch_waits_in_memory_and_moves_later(error):
    queue = Mistaken(clock=FakeClock())
    sender = Sender(queue=queue, transport=NoTransport(), clock=FakeClock())
    queue.error = error
    for _ in range(2):
        await sender.enqueue([Sample("work", 1)])
    status = sender.status()
    assert (status.produced, status.queued, status.on_disk) == (2, 2, False)
    assert queue.stats().batches == 0
    queue.error = None
    await sender.enqueue([Sample("work", 1)])
    assert sender.status().on_disk
    assert queue.stats().batches == 3
    assert sender.status().queued == 3
