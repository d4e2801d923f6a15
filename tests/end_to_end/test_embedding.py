"""The agent inside other people's programs: threads, asyncio, trio, and a prefork server.

The programs are real processes, and what ends them are real signals.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import anyio
import pytest

from ahwal import WAL, Agent, AgentConfig, AgentState, Sample, enroll
from ahwal.testing import ScriptedAnswer, ScriptedCollector, acknowledge, refuse
from testkit import free_port

PREFORK = Path(__file__).resolve().parents[2] / "examples" / "prefork"
PATIENCE_SECONDS = 60.0  # on a busy machine; most waits end within one


def until(condition, what, seconds=PATIENCE_SECONDS):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return value


@pytest.fixture
def collector():
    with ScriptedCollector() as running:
        yield running


@pytest.fixture
def config(collector, tmp_path):
    config = AgentConfig(
        collector_url=collector.url,
        state_dir=tmp_path / "state",
        interval_seconds=1,
        allow_short_interval=True,
        shutdown_flush_seconds=1,
    )
    anyio.run(enroll, config, "a one-time license")
    return config


@contextlib.contextmanager
def program(code, *arguments):
    """A host program; its end is waited for, and brought about if need be."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", HOST + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


HOST = """
import logging, os, signal, sys, threading, time
from ahwal import Agent, AgentConfig, Sample

def config(url, state_dir):
    return AgentConfig(collector_url=url, state_dir=state_dir, interval_seconds=1,
                       allow_short_interval=True, shutdown_flush_seconds=1)

def collect():
    yield Sample("work", 1)
"""

DAEMON = """
closing = threading.Event()
handler = lambda *_: closing.set()
signal.signal(signal.SIGTERM, handler)
numbers = [n for n in signal.valid_signals() if n not in (signal.SIGKILL, signal.SIGSTOP)]
before = {n: signal.getsignal(n) for n in numbers}
loggers = logging.getLogger(), logging.getLogger("ahwal")
logged = [(logger.handlers[:], logger.level) for logger in loggers]
with Agent(config(*sys.argv[1:]), collect) as agent:
    print("running", flush=True)
    closing.wait()
assert {n: signal.getsignal(n) for n in numbers} == before
assert [(logger.handlers, logger.level) for logger in loggers] == logged
end = time.monotonic() + 5
while threading.active_count() > 1 and time.monotonic() < end:  # the last may be on its way out
    time.sleep(0.01)
print(*(thread.name for thread in threading.enumerate()))
print(agent.status().line())
"""


def points_of(batches):
    return {
        (series.name, point.ts_ms)
        for batch in batches
        for series in batch.series
        for point in series.points
    }


@pytest.mark.fault
def test_a_daemon_handles_sigterm_itself_and_ends_in_time_with_what_is_queued_on_disk(
    config, collector
):
    """W22: the collector takes the request and never answers."""
    collector.always(ScriptedAnswer(delay_seconds=60.0))
    with program(DAEMON, collector.url, config.state_dir) as daemon:
        assert daemon.stdout.readline() == "running\n"
        collector.wait_for(1)
        daemon.send_signal(signal.SIGTERM)
        out, err = daemon.communicate(timeout=10)  # shutdown_flush is 1 s
    assert (daemon.returncode, err) == (0, ""), err
    threads, line = out.splitlines()
    assert threads == "MainThread"
    assert line.startswith("delivery=stopped queued=")
    with WAL.open(Path(config.state_dir) / "wal") as wal:
        assert wal.stats().batches >= 1


ASYNCIO = """
import asyncio

async def main():
    agent = Agent(config(*sys.argv[1:3]), collect)
    async def work():
        while agent.status().sender is None or not agent.status().sender.delivered:
            await asyncio.sleep(0.01)
        if sys.argv[3] == "fails":
            raise ZeroDivisionError("the host's own")
        agent.stop()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.run())
            group.create_task(work())
    except* ZeroDivisionError:
        print("the host's own error, and no other")
    print(agent.status().line())

asyncio.run(main())
"""

TRIO = """
import trio

async def main():
    agent = Agent(config(*sys.argv[1:3]), collect)
    async def work():
        while agent.status().sender is None or not agent.status().sender.delivered:
            await trio.sleep(0.01)
        if sys.argv[3] == "fails":
            raise ZeroDivisionError("the host's own")
        agent.stop()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run)
            nursery.start_soon(work)
    except* ZeroDivisionError:
        print("the host's own error, and no other")
    print(agent.status().line())

trio.run(main)
"""


@pytest.mark.parametrize("code", [ASYNCIO, TRIO], ids=["asyncio", "trio"])
@pytest.mark.parametrize("how", ["ends", "fails"])
def test_in_an_event_loop_the_agent_ends_with_its_task_group_and_frees_the_directory(
    config, collector, code, how
):
    with program(code, collector.url, config.state_dir, how) as host:
        out, err = host.communicate(timeout=PATIENCE_SECONDS)
    assert (host.returncode, err) == (0, ""), err
    told = ["the host's own error, and no other"] if how == "fails" else []
    assert out.splitlines() == [*told, "delivery=stopped queued=0"]
    WAL.open(Path(config.state_dir) / "wal").close()


def test_two_agents_in_one_process_share_nothing(collector, tmp_path):
    with ScriptedCollector() as other, contextlib.ExitStack() as agents:
        for name, its in (("one", collector), ("two", other)):
            config = AgentConfig(
                collector_url=its.url,
                state_dir=tmp_path / name,
                interval_seconds=1,
                allow_short_interval=True,
            )
            anyio.run(enroll, config, "a license")
            agents.enter_context(Agent(config, lambda name=name: [Sample(name, 1)]))
        collector.wait_for(1)
        other.wait_for(1)
        first, second = (
            {series.name for batch in its.batches() for series in batch.series}
            for its in (collector, other)
        )
        assert ("one" in first, "two" in first) == (True, False)
        assert ("one" in second, "two" in second) == (False, True)


def test_importing_starts_and_changes_nothing():
    code = """
import logging, signal, threading
handler, threads = signal.getsignal(signal.SIGTERM), threading.active_count()
import ahwal, ahwal.agent, ahwal.sender, ahwal.transport, ahwal.wal
assert signal.getsignal(signal.SIGTERM) == handler
assert threading.active_count() == threads
assert not logging.getLogger().handlers
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=False, timeout=30)
    assert done.returncode == 0


FORKS = """
with Agent(config(*sys.argv[1:]), collect) as agent:
    while agent.status().sender is None or not agent.status().sender.delivered:
        time.sleep(0.01)
    if os.fork() == 0:
        print(os.getpid(), [t.name for t in threading.enumerate()], flush=True)
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
"""


@pytest.mark.fault
def test_a_fork_takes_neither_the_agents_thread_nor_its_directory_along(config, collector):
    """W17: the parent dies, its child sleeps on, and the next agent starts at once."""
    with program(FORKS, collector.url, config.state_dir) as parent:
        child, threads = parent.stdout.readline().split(maxsplit=1)
        try:
            assert threads.strip() == "['MainThread']"
            parent.kill()
            parent.wait()
            with Agent(config, lambda: [Sample("work", 2)]) as agent:
                until(lambda: agent.status().state is not AgentState.NEW, "the agent begins")
                assert agent.status().state is AgentState.RUNNING, agent.status().error
                assert agent.status().storage == "disk"
        finally:
            os.kill(int(child), signal.SIGKILL)


LEAVES = """
def delivered():
    sender = agent.status().sender
    return 0 if sender is None else sender.delivered

with Agent(config(*sys.argv[1:]), collect) as agent:
    while not delivered():
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        assert agent.enqueue([Sample("from_the_child", 1)]).points == 0
        sys.exit(7)  # leaves the block, as an exception in the child would
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    before = delivered()
    while delivered() == before:
        time.sleep(0.01)
print(agent.status().line())
"""


@pytest.mark.fault
def test_a_child_that_leaves_the_block_disturbs_nothing_of_its_parents_agent(config, collector):
    """W17."""
    with program(LEAVES, collector.url, config.state_dir) as parent:
        out, err = parent.communicate(timeout=PATIENCE_SECONDS)
    assert (parent.returncode, out) == (0, "delivery=stopped queued=0\n"), err
    assert not any(s.name == "from_the_child" for b in collector.batches() for s in b.series)


class Shop:
    """The prefork example under a real gunicorn."""

    def __init__(self, config, folder):
        self._wal = Path(config.state_dir) / "wal"
        self._metrics = folder / "metrics"
        self._metrics.mkdir(exist_ok=True)
        self._log = folder / f"gunicorn-{time.monotonic_ns()}.log"
        self._port = free_port()
        environ = {
            **os.environ,
            "AH_STATE_DIR": config.state_dir,
            "AH_COLLECTOR_URL": config.collector_url,
            "AH_INTERVAL": "1s",
            "AH_ALLOW_SHORT_INTERVAL": "true",
            "AH_SHUTDOWN_FLUSH": "2s",
            "PROMETHEUS_MULTIPROC_DIR": str(self._metrics),
            "HOME": str(folder),  # newer ones put a control socket there
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "-c", "gunicorn_conf.py"),
                    *("--bind", f"127.0.0.1:{self._port}", "shop:app"),
                ],
                cwd=PREFORK,
                env=environ | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdout=log,
                stderr=log,
            )
        self.served = 0

    @property
    def log(self):
        return self._log.read_text(encoding="utf-8")

    def ask(self):
        """The process that serves one request; 0 when none does."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}", timeout=5) as answer:
                pid = int(answer.read())
        except (OSError, ValueError):
            # Not listening yet, or the worker was killed with the request in its hands.
            return 0
        self.served += 1
        return pid

    def workers(self, *, without=frozenset()):
        """Three processes that serve now, none of `without`."""
        found = set()

        def all_three():
            assert self.process.poll() is None, self.log
            found.add(self.ask())
            return len(found - {0} - without) >= 3

        until(all_three, f"three workers other than {sorted(without)}")
        return found - {0} - without

    def holder(self):
        """The process that holds the WAL, or held it last."""
        with contextlib.suppress(OSError, ValueError):
            return int((self._wal / "lock").read_text())
        return 0

    def end(self):
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0, self.log
        assert "Traceback" not in self.log


@contextlib.contextmanager
def gunicorn(config, folder):
    shop = Shop(config, folder)
    try:
        yield shop
    finally:
        if shop.process.poll() is None:
            shop.process.terminate()
            try:
                shop.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                shop.process.kill()
                shop.process.wait()


def last_count(batches):
    values = [
        series.points[-1].value
        for batch in list(batches)
        for series in batch.series
        if series.name == "shop_requests_total"
    ]
    return max(values, default=0)


class Outages:
    """A script for the collector that can be away, and that remembers what it took and did not."""

    def __init__(self):
        self.away = False
        self.refused = []
        self.accepted = []

    def __call__(self, request):
        if self.away:
            self.refused.append(request.batch)
            return refuse(503, "unavailable", retry_after="1")
        self.accepted.append(request.batch)
        return acknowledge()(request)

    def wait_for_a_refusal(self):
        before = len(self.refused)
        until(lambda: len(self.refused) > before, "a batch is offered and refused")


@pytest.mark.fault
def test_gunicorn_loses_nothing_through_an_outage_a_kill_9_a_reload_and_a_restart(
    config, collector, tmp_path
):
    """W17, W21: one worker is the agent, and another takes over however that one ends."""
    outages = Outages()
    collector.always(outages)
    with gunicorn(config, tmp_path) as shop:
        first = shop.workers()
        agent = until(lambda: shop.holder() in first and shop.holder(), "a worker is the agent")
        until(lambda: last_count(outages.accepted) >= shop.served, "the sum of all workers")

        outages.away = True
        outages.wait_for_a_refusal()
        os.kill(agent, signal.SIGKILL)
        heir = until(lambda: shop.holder() not in (agent, 0) and shop.holder(), "an heir")
        outages.wait_for_a_refusal()
        second = shop.workers(without={agent})

        shop.process.send_signal(signal.SIGHUP)
        third = shop.workers(without=first | second | {heir})
        until(lambda: shop.holder() in third, "one of the new workers is the agent")
        # At once, because each further refusal would double the agent's pause.
        outages.away = False
        # More, where a worker was killed after it had counted and before it had answered.
        until(lambda: last_count(outages.accepted) >= shop.served, "the sum after all that")
        shop.end()
    refused = points_of(outages.refused)
    assert len({time_ms for _, time_ms in refused}) >= 2
    assert refused <= points_of(outages.accepted)
    with WAL.open(Path(config.state_dir) / "wal") as wal:
        assert wal.stats().batches == 0

    with gunicorn(config, tmp_path) as shop:
        fourth = shop.workers()
        until(lambda: shop.holder() in fourth, "after a restart a worker is the agent")
        shop.end()


def test_gunicorn_on_a_machine_that_is_not_enrolled_ends_and_says_why(config, tmp_path):
    (Path(config.state_dir) / "credentials.json").unlink()
    with gunicorn(config, tmp_path) as shop:
        assert shop.process.wait(timeout=PATIENCE_SECONDS) != 0
        assert "NotEnrolledError" in shop.log
