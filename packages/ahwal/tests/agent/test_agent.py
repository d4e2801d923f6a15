"""The agent as a whole: schedule, storage, identity, ends, and every way to embed it."""

import logging
import stat
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise

import anyio
import attrs
import pytest
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st
from running import PHASE, Running, collect, make_agent, reaches

from ahwal import (
    WAL,
    Agent,
    AgentConfig,
    AgentRevokedError,
    AgentState,
    ConfigError,
    MemoryQueue,
    NotEnrolledError,
    Sample,
    Sender,
    WALLockedError,
)
from ahwal.agent import CredentialStore
from ahwal.agent._delivery import START_JITTER_SECONDS, DeliveryLoop
from ahwal.agent._schedule import Schedule
from ahwal.testing import FakeClock, ScriptedAnswer, ScriptedCollector, acknowledge, refuse
from ahwire.agent_pb2 import AgentConfig as RemoteConfig
from ahwire.agent_pb2 import RenewResponse


@given(
    st.floats(0, 1e6),
    st.floats(0.5, 300),
    st.lists(st.floats(0, 900), min_size=1, max_size=20),
)
def test_cycles_stand_on_the_grid_whatever_time_they_take(first, interval, durations):
    schedule, now = Schedule(due=first, interval_seconds=interval), first
    for duration in durations:
        now = max(now, schedule.due) + duration
        schedule = schedule.following(now)
        steps = (schedule.due - first) / interval
        assert abs(steps - round(steps)) < 1e-6
        assert now - 1e-6 <= schedule.due <= now + interval + 1e-6


@pytest.mark.anyio
async def test_the_phase_delays_the_first_cycle_and_each_interval_gives_one_batch(
    config, collector
):
    async with Running(config) as running:
        await running.clock.advance(PHASE - 0.01)
        assert running.agent.status().cycles == 0
        await running.cycles(1, seconds=0.02)
        await running.cycles(4)
        await reaches(lambda: len(collector.requests("/metrics")) == 5)
    times = [batch.collected_at_ms for batch in collector.batches()]
    assert [b - a for a, b in pairwise(times)] == [10_000] * 4
    assert collector.batches()[0].stats.interval_seconds == 10


@pytest.mark.anyio
async def test_a_slow_collector_on_the_other_side_never_delays_collecting(config, collector):
    collector.script(ScriptedAnswer(delay_seconds=1.0))
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await running.cycles(3)
        assert running.agent.status().cycles == 4


@pytest.mark.anyio
async def test_one_collector_that_fails_costs_its_own_samples_only(config, collector, caplog):
    class Broken:
        name = "broken"

        def prime(self):
            raise RuntimeError("no such device")

        def collect(self):
            raise RuntimeError("no such device")

    class Works(Broken):
        name = "works"

        def prime(self):
            pass

        def collect(self):
            return [Sample("fine", 1)]

    async with Running(config, collect=[Broken(), Works()]) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await running.cycles(2)
        await reaches(lambda: len(collector.batches()) == 3)
    assert all("fine" in {s.name for s in batch.series} for batch in collector.batches())
    assert caplog.text.count("collector broken failed") == 1


@pytest.mark.parametrize("collect", [[object()], 5, ["x"]])
def test_a_broken_set_of_collectors_fails_at_construction(config, collect):
    with pytest.raises((ConfigError, TypeError)):
        make_agent(config, collect=collect)


def test_an_agent_that_is_not_enrolled_fails_at_construction(tmp_path):
    with pytest.raises(NotEnrolledError, match=r"ahagent enroll.*ahwal\.enroll\(config, license\)"):
        Agent(AgentConfig(collector_url="http://127.0.0.1:1", state_dir=tmp_path), collect)


@pytest.mark.anyio
async def test_on_another_machine_nothing_is_sent(config, collector):
    async with Running(config, read_machine_id=lambda: "a copy") as running:
        await running.clock.advance(100)
        assert running.agent.status().state is AgentState.IDENTITY_MISMATCH
        assert running.agent.status().line() == "delivery=identity_mismatch queued=0"
    assert collector.requests() == []


@pytest.mark.anyio
async def test_a_machine_id_that_cannot_be_read_is_a_warning_only(config, collector, caplog):
    async with Running(config, read_machine_id=lambda: None) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: collector.batches())
    assert "cannot be read" in caplog.text


@pytest.mark.anyio
async def test_revoked_and_told_to_exit_the_agent_ends_with_its_data_kept(config, collector):
    collector.always(refuse(403, "agent_revoked"))
    clock = FakeClock(now=time.time())
    agent = make_agent(attrs.evolve(config, on_revoked="exit"), clock)
    failures = []

    async def run():
        try:
            await agent.run()
        except AgentRevokedError as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await reaches(lambda: clock.sleepers > 0)
        await clock.advance(PHASE + 0.01)
    assert len(failures) == 1
    assert agent.status().state is AgentState.FAILED
    with WAL.open(f"{config.state_dir}/wal", max_age_seconds=None) as left:
        assert left.stats().batches == 1


@pytest.mark.anyio
async def test_revoked_and_told_to_wait_it_neither_sends_nor_collects(config, collector):
    collector.script(refuse(403, "agent_revoked"))
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: running.agent.status().state is AgentState.AGENT_REVOKED)
        await running.clock.advance(1000)
        assert running.agent.status().cycles == 1
        assert len(collector.requests()) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("obstacle", ["file", "read-only", "too long"])
async def test_an_unusable_directory_means_memory_and_never_the_end_of_the_host(
    config, collector, tmp_path, obstacle
):
    # W27. The identity is readable; the place of the queue is not usable.
    from ahwal.agent._disk import open_wal

    if obstacle == "file":
        (tmp_path / "wal").write_text("in the way")
        open_queue = None
    elif obstacle == "read-only":

        def open_queue():
            raise PermissionError(13, "Permission denied")
    else:

        def open_queue():
            return open_wal(attrs.evolve(config, state_dir=str(tmp_path / ("x" * 300))))

    async with Running(config, open_queue=open_queue) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        assert running.agent.status().storage == "memory"
        # Delivery is well, so that only this says why nothing is safe from a crash.
        assert "kept in memory" in running.agent.status().error
        await reaches(lambda: collector.batches())


@pytest.mark.anyio
async def test_a_disk_that_comes_back_takes_over_within_a_minute(config, collector, tmp_path):
    collector.always(refuse(503))
    (tmp_path / "wal").write_text("in the way")
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await running.cycles(2)
        assert running.agent.status().storage == "memory"
        (tmp_path / "wal").unlink()
        await running.cycles(5)
        await reaches(lambda: running.agent.status().storage == "disk")
        assert running.agent.status().error == ""
        assert running.agent.status().sender.queued_batches == running.agent.status().cycles
    with WAL.open(tmp_path / "wal", max_age_seconds=None) as queue:
        assert queue.stats().batches == running.agent.status().cycles


@pytest.mark.anyio
async def test_of_two_agents_in_memory_the_one_that_finds_the_disk_taken_ends(config, tmp_path):
    (tmp_path / "wal").write_text("in the way")

    async def find_it_taken():
        async with Running(config) as running:
            await running.cycles(1, seconds=PHASE + 0.01)
            assert running.agent.status().storage == "memory"
            (tmp_path / "wal").unlink()
            with WAL.open(tmp_path / "wal"):
                await running.clock.advance(60)
                await reaches(lambda: running.agent.status().state is AgentState.FAILED)

    with pytest.raises(ExceptionGroup) as caught:
        await find_it_taken()
    assert caught.group_contains(WALLockedError, match=r"\d+")


@pytest.mark.anyio
async def test_a_second_agent_on_the_same_directory_is_told_who_holds_it(config):
    with WAL.open(f"{config.state_dir}/wal"), pytest.raises(WALLockedError, match=r"\d+"):
        await make_agent(config, FakeClock()).run()


@pytest.mark.anyio
async def test_buffered_batches_are_sent_by_the_next_agent(config, collector):
    collector.always(refuse(503))
    clock = FakeClock(now=time.time())
    async with Running(config, clock=clock) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await running.cycles(3)
    collector.always(None)
    async with Running(config, clock=FakeClock(now=time.time() + 60)) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: running.agent.status().sender.queued_batches == 0)
        assert running.agent.status().sender.inherited > 0
    points = [
        p for b in collector.batches() for s in b.series if s.name == "work" for p in s.points
    ]
    assert len({point.ts_ms for point in points}) == 5


@pytest.mark.anyio
async def test_what_an_earlier_process_left_is_sent_at_the_start_and_not_with_the_first_cycle(
    config, collector
):
    """A program that restarts more often than its first cycle comes must deliver all the same."""
    config = attrs.evolve(config, interval_seconds=300)
    collector.always(refuse(503))
    async with Running(config) as running:
        await to_thread.run_sync(running.agent.enqueue, [Sample("left", 1)])
    collector.always(None)
    before = len(collector.batches())
    async with Running(config) as running:
        assert running.agent.status().sender.queued_batches == 1
        await running.clock.advance(START_JITTER_SECONDS)
        await reaches(lambda: running.agent.status().sender.queued_batches == 0)
        assert running.agent.status().cycles == 0
    assert len(collector.batches()) == before + 1
    assert {s.name for s in collector.batches()[-1].series} == {"left"}


@pytest.mark.anyio
async def test_a_fleet_that_starts_together_does_not_send_what_is_left_in_one_moment():
    class Late:
        def uniform(self, low, high):
            return high

    sender = Sender(queue=MemoryQueue(max_bytes=1 << 20), transport=None)
    sender.append([Sample("left", 1)])
    clock = FakeClock()
    ticks = []

    async def tick():
        ticks.append(clock.monotonic())

    sender.tick = tick
    loop = DeliveryLoop(
        sender=sender,
        clock=clock,
        rng=Late(),
        on_step=lambda: None,
        on_revoked=lambda: None,
        logger=logging.getLogger("ahwal.agent"),
    )
    start = clock.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run)
        await reaches(lambda: clock.sleepers > 0)
        await clock.advance(START_JITTER_SECONDS - 0.01)
        assert ticks == []
        await clock.advance(0.02)
        await reaches(lambda: ticks)
        group.cancel_scope.cancel()
    assert ticks[0] - start >= START_JITTER_SECONDS


@pytest.mark.anyio
async def test_a_stop_lets_the_request_under_way_end(config, collector):
    def slow(request):
        answer = acknowledge()(request)
        return attrs.evolve(answer, delay_seconds=0.5)

    collector.script(slow)
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/metrics")) == 1)
    assert running.agent.status().sender.queued_batches == 0
    assert len(collector.requests("/metrics")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_with_a_black_hole_the_end_comes_within_the_time_for_flushing(config, collector, how):
    # W22: stop with 1 s here; data stays on disk.
    collector.always(ScriptedAnswer(delay_seconds=10))
    config = attrs.evolve(config, shutdown_flush_seconds=1.0)
    clock = FakeClock(now=time.time())
    agent = make_agent(config, clock)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run)
        await reaches(lambda: clock.sleepers > 0)
        await clock.advance(PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/metrics")) == 1)
        started = time.monotonic()
        agent.stop() if how == "stop" else group.cancel_scope.cancel()
    assert time.monotonic() - started < 1.5
    with WAL.open(f"{config.state_dir}/wal") as left:
        assert left.stats().batches == 1


@pytest.mark.anyio
async def test_a_remote_configuration_is_applied_within_the_ranges(config, collector, caplog):
    collector.config = RemoteConfig(
        etag="v1",
        interval_seconds=20,
        catch_up_batches=99,
        disabled_collectors=["noisy"],
        labels={"site": "berlin"},
    )

    class Named:
        def __init__(self, name):
            self.name = name

        def prime(self):
            pass

        def collect(self):
            return [Sample(self.name, 1)]

    async with Running(config, collect=[Named("noisy"), Named("calm")]) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: running.agent.status().interval_seconds == 20)
        await running.cycles(2, seconds=20.0)
        await reaches(lambda: len(collector.batches()) == 3)
    last = collector.batches()[-1]
    assert "calm" in {s.name for s in last.series}
    assert "noisy" not in {s.name for s in last.series}
    assert {label.name: label.value for label in last.series[0].labels}["site"] == "berlin"
    assert last.stats.interval_seconds == 20
    assert "catch_up_batches is 99" in caplog.text
    assert len(collector.requests("/config")) == 1


@pytest.mark.anyio
async def test_without_allow_remote_config_nothing_is_asked_for(config, collector):
    collector.config = RemoteConfig(etag="v1", interval_seconds=20)
    async with Running(attrs.evolve(config, allow_remote_config=False)) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: collector.batches())
        await running.clock.advance(1)
        assert running.agent.status().interval_seconds == 10
    assert collector.requests("/config") == []


@pytest.mark.anyio
@pytest.mark.parametrize("reason", ["asked", "half life"])
async def test_a_token_is_renewed_and_stored_when_asked_or_at_half_its_life(
    collector, tmp_path, identity, reason
):
    clock = FakeClock(now=time.time())
    expires = None if reason == "asked" else datetime.fromtimestamp(clock.time() + 60, UTC)
    identity(tmp_path, collector.url, token_expires_at=expires)
    if reason == "asked":
        collector.script(acknowledge(renew_token=True))
    config = AgentConfig(state_dir=tmp_path, interval_seconds=10)
    async with Running(config, clock=clock) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/credentials/renew")) == 1)
        store = CredentialStore(state_dir=str(tmp_path))
        await reaches(lambda: store.load().agent_token == "scripted-token-2")
        await running.cycles(1)
        await reaches(lambda: len(collector.requests("/metrics")) == 2)
    last = collector.requests("/metrics")[-1]
    assert last.headers["authorization"] == "Bearer scripted-token-2"
    assert stat.S_IMODE((tmp_path / "credentials.json").stat().st_mode) == 0o600


@pytest.mark.anyio
async def test_a_renewal_that_brings_a_broken_token_changes_nothing(collector, tmp_path, identity):
    from ahwal.testing import protobuf

    identity(tmp_path, collector.url)
    collector.script(acknowledge(renew_token=True))
    broken = RenewResponse(agent_token="a\nb").SerializeToString()
    collector.script(protobuf(broken), path="/credentials/renew")
    async with Running(AgentConfig(state_dir=tmp_path, interval_seconds=10)) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/credentials/renew")) == 1)
        await running.cycles(1)
        await reaches(lambda: len(collector.requests("/metrics")) == 2)
    sent = collector.requests("/metrics")[-1].headers["authorization"]
    assert sent == "Bearer canary-agent-token"


@pytest.mark.anyio
async def test_a_reload_switches_collector_and_interval(config, collector):
    with ScriptedCollector() as other:
        async with Running(config) as running:
            await running.cycles(1, seconds=PHASE + 0.01)
            await reaches(lambda: collector.batches())
            changed = attrs.evolve(config, collector_url=other.url, interval_seconds=15)
            await running.agent.reload(changed)
            assert running.agent.status().interval_seconds == 15
            await running.cycles(1, seconds=15)
            await reaches(lambda: other.batches())
    assert len(collector.batches()) == 1


@pytest.mark.anyio
async def test_the_agents_own_metrics_are_in_every_batch(config, collector):
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: collector.batches())
    names = {series.name for series in collector.batches()[0].series}
    assert names >= {
        "agent_wal_bytes",
        "agent_wal_batches",
        "agent_wal_dropped_batches_total",
        "agent_send_failures_total",
        "agent_dropped_samples_total",
        "agent_state_transitions_total",
        "agent_clock_skew_seconds",
        "agent_cycle_seconds",
    }
    assert collector.batches()[0].stats.rss_bytes > 0


@pytest.mark.anyio
async def test_the_token_is_in_no_log_line_of_an_agent_at_debug(config, collector, caplog):
    caplog.set_level(logging.DEBUG)
    collector.script(refuse(401, "unauthorized", message="canary-agent-token is unknown"))
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/metrics")) == 1)
        await running.clock.advance(601)
        shown = [repr(running.agent), str(running.agent.status())]
    assert "canary-agent-token" not in caplog.text
    assert "canary-agent-token" not in "".join(shown)


def test_in_a_threaded_program_a_with_block_is_enough(collector, tmp_path, identity):
    identity(tmp_path, collector.url)
    config = AgentConfig(
        collector_url=collector.url,
        state_dir=tmp_path,
        interval_seconds=1,
        allow_short_interval=True,
    )
    threads = threading.active_count()
    with make_agent(config) as agent:
        collector.wait_for(2, timeout_seconds=15)
        assert agent.status().state is AgentState.RUNNING
    assert agent.status().state is AgentState.STOPPED
    assert threading.active_count() <= threads + 2


def test_a_failure_in_the_thread_is_shown_and_not_raised(config, caplog):
    with WAL.open(f"{config.state_dir}/wal"), make_agent(config) as agent:
        for _ in range(500):
            if agent.status().state is AgentState.FAILED:
                break
            time.sleep(0.01)
    assert agent.status().state is AgentState.FAILED
    assert "in use" in agent.status().error or "pid" in agent.status().error


def test_a_collector_that_hangs_does_not_hold_the_host_program(tmp_path, collector, identity):
    identity(tmp_path, collector.url)
    program = textwrap.dedent(f"""
        import time
        from ahwal import Agent, AgentConfig, Sample
        config = AgentConfig(collector_url={collector.url!r}, state_dir={str(tmp_path)!r},
                             interval_seconds=1, allow_short_interval=True)
        agent = Agent(config, lambda: time.sleep(60), read_machine_id=lambda: "machine-1")
        with agent:
            time.sleep(3)
        print(agent.status().cycles)
    """)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=40, check=True
    )
    assert time.monotonic() - started < 20
    # The agent's own metrics went on, because the hanging function gave up its turn.
    assert int(done.stdout) >= 1


@pytest.mark.anyio
async def test_a_disk_that_takes_seconds_does_not_stop_the_event_loop(config, collector):
    # W23. The disk hangs until the loop has gone round fifty times meanwhile, so that no load on
    # the machine can change the outcome: a loop that waits for the disk never goes round at all.
    class Slow:
        def __init__(self, inner):
            self.inner = inner
            self.hangs = threading.Event()
            self.released = threading.Event()
            self.outcomes = []

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def append(self, data):
            self.hangs.set()
            self.outcomes.append(self.released.wait(timeout=10))
            return self.inner.append(data)

    slow = Slow(WAL.open(f"{config.state_dir}/wal", max_age_seconds=None))

    async def heartbeat():
        beats = 0
        while beats < 50:
            await anyio.sleep(0.002)
            beats += slow.hangs.is_set()
        slow.released.set()

    async with (
        Running(config, open_queue=lambda: slow) as running,
        anyio.create_task_group() as group,
    ):
        group.start_soon(heartbeat)
        await running.cycles(1, seconds=PHASE + 0.01)
    assert slow.outcomes == [True]
