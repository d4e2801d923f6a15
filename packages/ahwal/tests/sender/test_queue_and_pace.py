"""Order, merging, splitting, pace, quarantine, and a disk that fails."""

import logging
import math

import pytest

from ahwal import WAL, DeliveryState, DropReason, MemoryQueue, Sample, TransportError
from ahwal.errors import WALWriteError
from ahwal.sender import _batch
from ahwal.testing import ScriptedAnswer, acknowledge, refuse
from ahwire import limits
from ahwire.agent_pb2 import MetricsBatch
from ahwire.batch import count_points

pytestmark = pytest.mark.anyio


async def test_a_cycle_without_samples_sends_a_heartbeat(rig):
    await rig.enqueue(0)
    await rig.tick()
    (batch,) = rig.collector.batches()
    assert len(batch.series) == 0
    assert batch.stats.interval_seconds == 30
    assert batch.stats.delivery_state == "ok"


async def test_samples_that_the_protocol_cannot_carry_are_counted_and_cost_no_other(rig):
    await rig.sender.enqueue(
        [
            Sample("good", 1.0),
            Sample("nan", math.nan),
            Sample("inf", -math.inf),
            Sample("", 1.0),
            Sample("long", 1.0, {"label": "x" * 2000}),
            Sample("many", 1.0, {f"l{i}": "x" for i in range(28)}),
            Sample("half \ud800 rune", 1.0, {"label\udc00": "\ud83d"}),
        ]
    )
    await rig.tick()
    (batch,) = rig.collector.batches()
    assert [series.name for series in batch.series] == ["good", "half ? rune"]
    assert rig.status.dropped[DropReason.NOT_FINITE] == 2
    assert rig.status.dropped[DropReason.BAD_SAMPLE] == 3
    assert rig.status.delivered == 2


async def test_a_backlog_is_merged_oldest_first_and_one_acknowledgement_removes_all(rig):
    for _ in range(50):
        await rig.enqueue(2)
        rig.clock.step(1)
    assert await rig.tick() == 1
    (batch,) = rig.collector.batches()
    assert len(batch.series) == 2
    times = [point.ts_ms for point in batch.series[0].points]
    assert times == sorted(times)
    assert len(times) == 50
    assert rig.status.delivered == 100
    assert rig.status.queued_batches == 0


async def test_a_merged_request_never_passes_the_limits(rig):
    for _ in range(25):
        await rig.enqueue(1000)
        rig.clock.step(1)
    while rig.status.queued_batches:
        await rig.tick()
    sizes = [count_points(batch) for batch in rig.collector.batches()]
    assert sum(sizes) == 25_000
    assert max(sizes) <= limits.MAX_POINTS_PER_BATCH
    assert len(sizes) == 2


async def test_a_tick_makes_one_request_and_the_catch_up_requests(rig):
    rig.sender.catch_up_batches = 2
    for _ in range(5):
        # Batches too large to be merged with one another.
        await rig.enqueue(10_001)
        rig.clock.step(1)
    assert await rig.tick() == 3
    assert rig.posts == 3
    times = [batch.collected_at_ms for batch in rig.collector.batches()]
    assert times == sorted(times)


async def test_a_tick_stops_at_the_first_failure(rig):
    rig.collector.script(acknowledge(), refuse(503), acknowledge())
    for _ in range(3):
        await rig.enqueue(10_001)
    await rig.tick()
    assert rig.posts == 2


async def test_a_bad_batch_in_a_merged_request_is_found_and_costs_no_neighbour(rig):
    bad = 7

    def judge(request):
        values = {p.value for s in request.batch.series for p in s.points}
        return refuse(400, "bad_request") if bad in values else acknowledge()(request)

    rig.collector.always(judge)
    for value in range(16):
        await rig.sender.enqueue([Sample("work", value)])
        rig.clock.step(1)
    for _ in range(10):
        await rig.tick(wait_seconds=120)
    assert rig.status.queued_batches == 0
    assert rig.status.delivered == 15
    assert rig.status.dropped[DropReason.BAD_REQUEST] == 1


async def test_413_to_everything_splits_down_to_single_points_and_the_next_batch_is_sent(rig):
    # W19: at most 15 requests, 8 singles dropped and counted.
    rig.collector.always(refuse(413, "too_large"))
    await rig.enqueue(8)
    while rig.status.queued_batches:
        await rig.tick(wait_seconds=120)
    assert rig.posts <= 15
    assert rig.status.dropped[DropReason.TOO_LARGE] == 8
    rig.collector.always(None)
    await rig.enqueue(8)
    await rig.tick(wait_seconds=120)
    assert rig.status.delivered == 8


async def test_413_without_our_code_puts_the_last_points_into_quarantine(rig):
    rig.collector.always(refuse(413))
    await rig.enqueue(2)
    while rig.status.queued_batches:
        await rig.tick(wait_seconds=120)
    assert rig.status.dropped[DropReason.QUARANTINED] == 2
    assert len(rig.queue.quarantined()) == 2


async def test_a_split_keeps_order_and_gives_each_half_a_number_of_its_own(rig):
    rig.collector.script(refuse(413, "too_large"))
    await rig.enqueue(4)
    await rig.enqueue(1)
    while rig.status.queued_batches:
        await rig.tick(wait_seconds=120)
    batches = rig.collector.batches()
    assert len({batch.seq for batch in batches}) == len(batches)
    assert rig.status.delivered == 5


async def test_a_server_with_a_lower_limit_gets_batches_that_fit_after_the_first_refusal(rig):
    limit = 20_000

    def judge(request):
        if len(request.body) > limit:
            return refuse(413, "too_large")
        return acknowledge()(request)

    rig.collector.always(judge)

    def samples():
        return [
            Sample("metric", i / 7, {"a": f"{i * 7919 % 10007:x}", "b": f"{i * 31337:x}"})
            for i in range(3000)
        ]

    refused = []
    for _ in range(4):
        before = rig.posts
        await rig.sender.enqueue(samples())
        while rig.status.queued_batches:
            await rig.tick(wait_seconds=300)
        sent = rig.collector.requests("/metrics")[before:]
        refused.append(sum(len(request.body) > limit for request in sent))
    assert refused[0] >= 1
    assert refused[-1] == 0
    assert rig.status.delivered == 12_000


async def test_more_than_twenty_thousand_samples_become_batches_that_fit(rig):
    assert await rig.enqueue(25_000) == 25_000
    while rig.status.queued_batches:
        await rig.tick(wait_seconds=60)
    assert rig.status.delivered == 25_000
    assert max(map(count_points, rig.collector.batches())) <= limits.MAX_POINTS_PER_BATCH


async def test_draining_never_passes_the_protocols_token_bucket(rig):
    burst, per_second = limits.METRICS_BURST, limits.metrics_per_minute(30) / 60
    tokens, last = float(burst), rig.clock.monotonic()
    rig.sender.catch_up_batches = 10
    for _ in range(14):
        await rig.enqueue(10_001)
    while rig.status.queued_batches:
        before = rig.posts
        await rig.tick(wait_seconds=10)
        now = rig.clock.monotonic()
        tokens = min(burst, tokens + (now - last) * per_second) - (rig.posts - before)
        last = now
        assert tokens >= -1e-6


async def test_points_older_than_the_window_are_dropped_by_the_agent_and_counted(rig):
    # W30: offline for 30 h against a window of 24 h.
    await rig.enqueue(5, age_seconds=30 * 3600)
    await rig.enqueue(3)
    await rig.tick()
    assert rig.status.dropped[DropReason.TOO_OLD] == 5
    assert rig.status.delivered == 3


async def test_one_old_point_among_a_thousand_costs_only_itself(rig):
    await rig.enqueue(1, age_seconds=25 * 3600)
    await rig.enqueue(999)
    await rig.tick()
    assert rig.status.delivered == 999
    assert rig.status.dropped[DropReason.TOO_OLD] == 1


async def test_a_step_of_the_wall_clock_does_not_make_the_backlog_look_old(rig):
    # W15: the server's time is known, so ten years forward change nothing.
    await rig.enqueue()
    rig.collector.always(acknowledge(server_time_ms=round((rig.clock.time() + 30) * 1000)))
    await rig.tick()
    await rig.enqueue(4)
    rig.clock.set_wall(rig.clock.time() + 10 * 365 * 86400)
    await rig.tick()
    assert rig.status.delivered == 5
    assert rig.status.dropped[DropReason.TOO_OLD] == 0


async def test_steps_of_the_wall_clock_leave_the_backoff_alone(rig):
    rig.collector.script(refuse(503))
    await rig.enqueue()
    await rig.tick()
    due = rig.sender.due_in_seconds()
    for step in (-3600, 7200, 10 * 365 * 86400):
        rig.clock.set_wall(rig.clock.time() + step)
        assert rig.sender.due_in_seconds() == due


async def test_one_batch_with_odd_answers_goes_to_quarantine_once_its_successor_is_accepted(rig):
    def judge(request):
        poisoned = any(series.name == "poison" for series in request.batch.series)
        return ScriptedAnswer(status=418) if poisoned else acknowledge()(request)

    rig.collector.always(judge)
    await rig.sender.enqueue([Sample("poison", 1.0)])
    await rig.enqueue(2)
    for _ in range(12):
        await rig.tick(wait_seconds=400)
    assert rig.status.delivered == 2
    assert rig.status.dropped[DropReason.QUARANTINED] == 1
    assert rig.status.queued_batches == 0
    assert len(rig.queue.quarantined()) == 1
    assert rig.sender.state is DeliveryState.OK


async def test_behind_a_captive_portal_nothing_is_ever_given_up(rig):
    rig.collector.always(ScriptedAnswer(status=200, body=b"<html>please log in</html>"))
    for _ in range(5):
        await rig.enqueue()
    for _ in range(40):
        await rig.tick(wait_seconds=400)
    assert rig.status.queued_batches == 5
    assert rig.status.dropped == dict.fromkeys(DropReason, 0)
    rig.collector.always(None)
    while rig.status.queued_batches:
        await rig.tick(wait_seconds=400)
    assert rig.status.delivered == 5


async def test_a_batch_that_cannot_be_decoded_is_dropped_and_the_queue_goes_on(rig, caplog):
    rig.queue.append(b"\xff\xff not a batch")
    await rig.enqueue(2)
    assert await rig.tick() == 1
    assert rig.status.delivered == 2
    assert rig.status.queued_batches == 0
    assert "cannot be decoded" in caplog.text


async def test_what_an_earlier_process_left_is_delivered_and_counted_as_inherited(rig):
    await rig.enqueue(3)
    rig.sender = rig.new_sender()
    await rig.enqueue(2)
    await rig.tick()
    assert rig.status.inherited == 3
    assert rig.status.produced == 2
    assert rig.status.delivered == 5


async def test_what_the_queue_evicted_is_counted(rig):
    small = MemoryQueue(max_bytes=2000, clock=rig.clock)
    rig.sender = rig.new_sender(queue=small)
    for _ in range(20):
        await rig.enqueue(10)
    await rig.tick()
    assert rig.status.dropped[DropReason.EVICTED] > 0
    assert rig.status.delivered + rig.status.dropped[DropReason.EVICTED] == 200


class FailingDisk(MemoryQueue):
    """A durable queue whose disk can be full."""

    full = False

    def append(self, data):
        if self.full:
            raise WALWriteError("no space left on device")
        return super().append(data)


async def test_while_the_disk_is_full_batches_wait_in_memory_and_move_when_it_is_back(rig):
    disk = FailingDisk(max_bytes=1 << 20, clock=rig.clock)
    told = []
    rig.sender = rig.new_sender(queue=disk, on_appended=told.append)
    await rig.enqueue(1)
    disk.full = True
    await rig.enqueue(2)
    await rig.enqueue(3)
    assert not rig.status.on_disk
    assert len(told) == 1
    assert disk.stats().batches == 1
    disk.full = False
    await rig.enqueue(4)
    assert rig.status.on_disk
    assert disk.stats().batches == 4
    assert [len(appended.samples) for appended in told] == [1, 2, 3, 4]
    await rig.tick()
    assert rig.status.delivered == 10


async def test_batches_in_memory_are_delivered_although_the_disk_stays_full(rig):
    disk = FailingDisk(max_bytes=1 << 20, clock=rig.clock)
    disk.full = True
    rig.sender = rig.new_sender(queue=disk)
    await rig.enqueue(2)
    assert await rig.tick() == 1
    assert rig.status.delivered == 2


async def test_the_listener_is_told_only_after_the_append_returned(rig):
    seen = []

    def listen(appended):
        seen.append((rig.queue.stats().batches, appended))

    rig.sender = rig.new_sender(on_appended=listen)
    await rig.enqueue(2)
    ((batches, appended),) = seen
    assert batches == 1
    assert [sample.labels["index"] for sample in appended.samples] == ["0", "1"]
    assert appended.collected_at_ms == round(rig.clock.time() * 1000)


async def test_an_hour_of_outage_logs_a_warning_a_minute_at_most_and_one_line_on_recovery(
    rig, caplog
):
    # W29.
    caplog.set_level(logging.INFO, "ahwal")

    class Down:
        async def post_metrics(self, body, *, coding):
            raise TransportError("down")

    rig.sender.use_transport(Down())
    for _ in range(360):
        await rig.enqueue(0)
        await rig.tick(wait_seconds=10)
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert 1 <= len(warnings) <= 61
    caplog.clear()
    rig.sender.use_transport(rig.client)
    while rig.status.queued_batches:
        await rig.tick(wait_seconds=300)
    # Other libraries say what they want, at the level that the host program gives them.
    (said,) = [r for r in caplog.records if r.name.startswith("ahwal")]
    assert "works again" in said.message
    assert said.levelno == logging.INFO


def test_sequence_numbers_rise_through_a_clock_that_stands_or_goes_back():
    from ahwal.testing import FakeClock

    clock = FakeClock()
    numbers = _batch.SequenceNumbers(clock=clock)
    taken = [numbers.next() for _ in range(3)]
    clock.set_wall(clock.time() - 3600)
    taken += [numbers.next() for _ in range(3)]
    assert taken == sorted(set(taken))
    numbers.above(taken[-1] + 10**9)
    assert numbers.next() > taken[-1] + 10**9


async def test_after_a_restart_under_a_clock_that_went_back_no_number_comes_again(rig):
    def numbers():
        entries = rig.queue.peek(100, 1 << 20)
        return [MetricsBatch.FromString(entry.data).seq for entry in entries]

    def restart(seconds):
        rig.queue.close()
        rig.clock.set_wall(rig.clock.time() + seconds)
        rig.queue = WAL.open(rig.path, clock=rig.clock)
        rig.sender = rig.new_sender()

    await rig.enqueue()
    await rig.enqueue()
    used = numbers()
    for _ in range(3):
        restart(-3600)
        await rig.enqueue()
    assert numbers() == [*used, used[-1] + 1, used[-1] + 2, used[-1] + 3]
    # What was put back is the newest entry, with an old number.
    restart(+4 * 3600)
    entry = rig.queue.oldest()
    rig.queue.quarantine(entry.id)
    rig.queue.requeue(entry.id)
    restart(-4 * 3600)
    await rig.enqueue()
    assert len(set(numbers())) == 6


async def test_a_disk_that_comes_later_raises_the_numbers_too(rig):
    await rig.enqueue()
    used = MetricsBatch.FromString(rig.queue.newest().data).seq
    rig.clock.set_wall(rig.clock.time() - 3600)
    rig.sender = rig.new_sender(queue=None)
    await rig.enqueue()
    await rig.sender.attach(rig.queue)
    await rig.enqueue()
    assert MetricsBatch.FromString(rig.queue.newest().data).seq > used


@pytest.mark.parametrize("data", [b"\xff no batch", b""])
async def test_a_newest_entry_that_says_nothing_costs_nothing(rig, data):
    rig.queue.append(data)
    await rig.enqueue()
    assert MetricsBatch.FromString(rig.queue.newest().data).seq >= round(rig.clock.time() * 1000)


def batches_of(rig, count, points):
    """Serialized batches as an earlier process would have left them, a cycle of 30 s apart."""
    for number in range(count):
        time_ms = round((rig.clock.time() - (count - number) * 30 / count) * 1000)
        batch = MetricsBatch(seq=number + 1, collected_at_ms=time_ms)
        for index in range(points):
            series = batch.series.add(name="work")
            series.labels.add(name="index", value=str(index))
            series.points.add(ts_ms=time_ms, value=number)
        yield batch.SerializeToString()


async def test_ten_thousand_batches_of_an_earlier_process_arrive(rig):
    # W21, after the restart.
    rig.queue.append_many(list(batches_of(rig, 10_000, 1)))
    while rig.status.queued_batches:
        await rig.tick()
    assert rig.status.delivered == rig.status.inherited == 10_000
    values = {p.value for b in rig.collector.batches() for s in b.series for p in s.points}
    assert len(values) == 10_000


async def test_a_days_backlog_of_150_points_a_batch_drains_in_ten_minutes(rig):
    rig.queue.append_many(list(batches_of(rig, 2_880, 150)))
    started = rig.clock.monotonic()
    while rig.status.queued_batches:
        await rig.tick()
    assert rig.status.delivered == 2_880 * 150
    assert rig.clock.monotonic() - started <= 600
