"""Time, settings and figures of a running agent."""

import logging
import threading
import time

import anyio
import attrs
import pytest
from anyio import to_thread
from running import PHASE, Running, reaches

from ahwal import ConfigError, Sample
from ahwal.agent._own import OWN_METRICS
from ahwal.testing import FakeClock, ScriptedAnswer, ScriptedCollector, acknowledge, refuse
from ahwire.agent_pb2 import AgentConfig as RemoteConfig
from ahwire.agent_pb2 import RejectedSeries

pytestmark = pytest.mark.anyio


def values(batch):
    return {
        (series.name, *(label.value for label in series.labels)): series.points[0].value
        for series in batch.series
    }


async def test_the_agents_own_metrics_have_the_right_values_as_series_and_in_the_stats(
    config, collector
):
    clock = FakeClock(now=time.time())
    collector.wall_clock = lambda: clock.time() + 3600
    rejected = [RejectedSeries(index=0, points=2)]
    collector.script(refuse(503), acknowledge(dropped_points=2, rejected=rejected))

    def collect():
        return [Sample("work", 1.0), Sample("broken", float("nan"))]

    async with Running(config, collect=collect, clock=clock) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await running.steps(4)
        await reaches(lambda: running.agent.status().sender.queued == 0)
        sender = running.agent.status().sender
        await running.steps(1)
    first, last = collector.batches()[0], collector.batches()[-1]
    shown = values(last)
    assert shown["agent_wal_batches",] == last.stats.wal_batches == 0
    assert shown["agent_wal_bytes",] == last.stats.wal_bytes
    assert shown["agent_send_failures_total",] == last.stats.send_failures_total == 1
    assert shown["agent_dropped_samples_total", "not_finite"] == 5
    assert shown["agent_dropped_samples_total", "refused"] == 2
    assert sum(sender.dropped.values()) == 7
    assert last.stats.dropped_samples_total == 7
    assert shown["agent_wal_dropped_batches_total", "age"] == 0
    assert shown["agent_wal_dropped_batches_total", "size"] == 0
    assert last.stats.wal_dropped_batches_total == 0
    assert shown["agent_state_transitions_total", "backoff"] == 1
    assert shown["agent_state_transitions_total", "ok"] == 1
    assert shown["agent_state_transitions_total", "agent_revoked"] == 0
    assert shown["agent_clock_skew_seconds",] == last.stats.clock_skew_seconds
    assert shown["agent_clock_skew_seconds",] == pytest.approx(3600, abs=60)
    assert shown["agent_cycle_seconds",] >= 0
    assert last.stats.delivery_state == "ok"
    assert last.stats.rss_bytes > 1 << 20
    documented = {metric.name: metric.label for metric in OWN_METRICS}
    found = {s.name: s.labels[0].name if s.labels else "" for s in last.series}
    assert {name: label for name, label in found.items() if name.startswith("agent_")} == documented
    # They are in the very first batch already.
    assert {name for name, *_ in values(first)} >= {name for name, *_ in shown if "agent" in name}


async def test_cycles_that_a_slow_collector_costs_are_left_out_and_counted_and_none_is_late(
    config, collector, caplog
):
    clock = FakeClock(now=time.time())
    begun = []
    goes_on = threading.Event()
    goes_on.set()

    def collect():
        begun.append(clock.monotonic())
        goes_on.wait(10)
        return [Sample("work", 1.0)]

    async with Running(config, collect=collect, clock=clock) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        goes_on.clear()
        await clock.advance(10)
        await reaches(lambda: len(begun) == 2)
        clock.step(25)
        goes_on.set()
        await reaches(lambda: running.agent.status().cycles == 2)
        await running.steps(2)
        assert running.agent.status().missed_cycles == 2
    first = begun[0]
    # Still on the grid: nothing drifts by what a cycle took.
    assert [round((at - first) / 10, 2) for at in begun] == [0.0, 1.0, 4.0, 5.0]
    assert caplog.text.count("2 cycles were left out so far") == 1


async def test_one_collector_that_blocks_for_ever_costs_the_others_no_cycle(
    config, collector, caplog
):
    release = threading.Event()

    class Named:
        def __init__(self, name, call):
            self.name, self.collect = name, call

        def prime(self):
            pass

    blocks = Named("blocks", lambda: [Sample("never", release.wait(20))])
    works = Named("works", lambda: [Sample("work", 1.0)])
    short = attrs.evolve(config, interval_seconds=1, allow_short_interval=True)
    async with Running(short, collect=[blocks, works]) as running:
        await running.clock.advance(1.0)
        # The limit of a collector is real time: an interval, here a second.
        await reaches(lambda: running.agent.status().cycles == 1)
        await running.cycles(3, seconds=1.0)
        await reaches(lambda: len(collector.batches()) >= 1)
        release.set()
    assert caplog.text.count("collector blocks failed: no result within 1 s") == 1
    assert all(("work",) in values(batch) for batch in collector.batches())


@pytest.mark.parametrize("step", [-3600.0, 3600.0, 10 * 365 * 86400.0])
async def test_a_step_of_the_wall_clock_moves_no_cycle_and_loses_no_sample(config, collector, step):
    # W15, the whole agent: offline, the clock steps, online again.
    clock = FakeClock(now=time.time())
    collector.wall_clock = lambda: now
    now = clock.time()
    async with Running(config, clock=clock) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        collector.always(refuse(503))
        await running.steps(2)
        before = clock.monotonic()
        clock.set_wall(clock.time() + step)
        await running.steps(2)
        assert clock.monotonic() - before == pytest.approx(20)
        assert running.agent.status().cycles == 5
        collector.always(None)
        for _ in range(40):
            if not running.agent.status().sender.queued:
                break
            await running.steps(1)
        sender = running.agent.status().sender
        assert (sender.queued, sum(sender.dropped.values())) == (0, 0)
        assert sender.produced == sender.delivered


async def test_a_reload_lets_the_request_under_way_end_and_counts_no_failure(config, collector):
    def slow(request):
        return attrs.evolve(acknowledge()(request), delay_seconds=0.4)

    collector.script(slow)
    with ScriptedCollector() as other:
        async with Running(config) as running:
            await running.cycles(1, seconds=PHASE + 0.01)
            await reaches(lambda: len(collector.requests("/metrics")) == 1)
            await running.agent.reload(attrs.evolve(config, collector_url=other.url))
            await reaches(lambda: running.agent.status().sender.queued == 0)
            await running.cycles(1)
            await reaches(lambda: len(other.batches()) == 1)
            assert running.agent.status().sender.send_failures == 0
    assert len(collector.batches()) == 1


async def test_a_reload_takes_over_catch_up_proxy_and_authorities_or_nothing_at_all(
    config, collector, tmp_path
):
    with ScriptedCollector() as proxy:
        async with Running(config) as running:
            await running.steps(1, seconds=PHASE + 0.01)
            wrong = attrs.evolve(
                config, ca_file=str(tmp_path / "none.pem"), interval_seconds=20,
                collector_url="https://127.0.0.1:1",
            )  # fmt: skip
            with pytest.raises(ConfigError, match=r"none\.pem"):
                await running.agent.reload(wrong)
            assert running.agent.status().interval_seconds == 10
            assert running.agent.status().collector_url.startswith(collector.url)
            await running.steps(1)
            assert len(collector.batches()) == 2
            changed = attrs.evolve(config, catch_up_batches=7, proxy_url=proxy.url)
            await running.agent.reload(changed)
            assert running.agent._sender.catch_up_batches == 7
            await running.steps(1)
    assert len(collector.batches()) == 2
    assert len(proxy.requests()) >= 1


async def test_a_reload_uses_the_renewed_token_and_keeps_what_was_configured_from_afar(
    config, collector
):
    collector.config = RemoteConfig(etag="v1", catch_up_batches=5)
    collector.script(acknowledge(renew_token=True, config_etag="v1"))
    async with Running(config) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await reaches(lambda: running.agent._sender.catch_up_batches == 5)
        await running.agent.reload(attrs.evolve(config, interval_seconds=15))
        assert running.agent.status().interval_seconds == 15
        assert running.agent._sender.catch_up_batches == 5
        await running.steps(1, seconds=15)
    last = collector.requests("/metrics")[-1]
    assert last.headers["authorization"] == "Bearer scripted-token-2"


async def test_an_hour_of_outage_is_a_warning_a_minute_and_one_line_at_its_end(
    config, collector, caplog
):
    # W29, the whole agent: with each kind of trouble in turn.
    caplog.set_level(logging.INFO, "ahwal")
    answers = [ScriptedAnswer(reset=True), refuse(503), refuse(429, "rate_limited"), refuse(502)]
    troubles = iter(range(10**6))
    collector.always(lambda request: answers[next(troubles) % 4])
    clock = FakeClock(now=time.time())
    async with Running(attrs.evolve(config, interval_seconds=60), clock=clock) as running:
        started = clock.monotonic()
        at = []
        seen = 0
        for _ in range(60):
            await running.steps(1, seconds=60)
            lines = [r for r in caplog.records if r.levelno >= logging.WARNING]
            lines = [r for r in lines if "limits.memory_limit" not in r.getMessage()]
            at += [clock.monotonic() - started] * (len(lines) - seen)
            seen = len(lines)
        assert 1 <= seen <= 61
        assert all(len(record.request_id) == 16 for record in lines)
        collector.always(None)
        for _ in range(10):
            await running.steps(1, seconds=60)
        assert caplog.text.count("delivery works again after") == 1


async def test_a_host_that_uses_up_all_usual_threads_holds_no_sample(config, collector):
    release = threading.Event()
    limit = int(to_thread.current_default_thread_limiter().total_tokens)
    async with anyio.create_task_group() as group:
        for _ in range(limit):
            group.start_soon(to_thread.run_sync, release.wait, 20)
        try:
            async with Running(config) as running:
                await running.steps(1, seconds=PHASE + 0.01)
                await running.steps(2)
                await reaches(lambda: len(collector.batches()) == 3)
        finally:
            release.set()


async def test_a_reload_after_the_revocation_brings_no_token_back(config, collector):
    collector.script(refuse(403, "agent_revoked"))
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: running.agent.status().state == "agent_revoked")
        await running.agent.reload(attrs.evolve(config, interval_seconds=20))
        assert not running.agent._clients.current.has_token
        await running.clock.advance(2000)
    assert len(collector.requests()) == 1
