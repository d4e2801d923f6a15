"""Two processes with a detector each scan one presence: each transition has one owner."""

import json
import subprocess
import sys
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import anyio
import pytest

from ahcollector.clock import SystemClock
from ahcollector.presence import AgentRef, IngestBeacon

pytestmark = [pytest.mark.anyio, pytest.mark.service]
SCRIPT = Path(__file__).with_name("scanner_process.py")
AGENTS = [AgentRef(agent_id=f"agent-{n:02}", company_id="acme", server_id="s") for n in range(40)]
DYING = {ref.agent_id for ref in AGENTS[:20]}


class Stage:
    """The ingest process (this one), and the scanners."""

    def __init__(self, presences, server, tmp_path, stack):
        settings = {"down_min_seconds": 5.0, "default_interval_seconds": 1.0}
        self.presence = presences(name="ingest", clock=SystemClock(), **settings)
        self.prefix = presences.client(self.presence).prefix
        self.port = server.port
        self.path = tmp_path / "ledger.jsonl"
        self.stack = stack
        self.alive = list(AGENTS)

    def start(self, name, *options):
        arguments = [str(self.port), self.prefix, name, str(self.path), *options]
        process = subprocess.Popen([sys.executable, str(SCRIPT), *arguments])

        def end():
            process.kill()
            process.wait()

        self.stack.callback(end)
        return process

    async def speak(self):
        """Beacons and signs of life, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(IngestBeacon(presence=self.presence, clock=SystemClock()).run)
            while True:
                async with anyio.create_task_group() as touches:
                    for ref in self.alive:
                        touches.start_soon(self.presence.touch, ref, SystemClock().time(), 1.0)
                await anyio.sleep(0.5)

    def ledger(self):
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    async def until(self, done, what):
        with anyio.move_on_after(60) as scope:
            while not done(self.ledger()):
                await anyio.sleep(0.05)
        assert not scope.cancelled_caught, f"{what}; the ledger: {self.ledger()}"

    async def until_all_is_confirmed(self):
        with anyio.fail_after(60):
            while await self.presence.pending_count():
                await anyio.sleep(0.05)


@pytest.fixture
async def stage(presences_on, redis_server, tmp_path, anyio_backend):
    with ExitStack() as stack:
        async with presences_on(redis_server) as presences:
            yield Stage(presences, redis_server, tmp_path, stack)


def of_type(lines, kind):
    return {line["agent_id"] for line in lines if line["type"] == kind}


def in_turns(lines):
    """Each agent goes down and up in turns, with rising seq.

    On a machine that stands still for seconds somebody may really fall silent, so how often is not
    said.
    """
    for agent_id in {line["agent_id"] for line in lines}:
        mine = [line for line in lines if line["agent_id"] == agent_id]
        kinds = [line["type"] for line in mine]
        assert kinds == list(islice(cycle(["agent.down", "agent.up"]), len(kinds)))
        assert [line["seq"] for line in mine] == sorted({line["seq"] for line in mine})


async def test_two_scanners_tell_each_transition_once(stage):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.speak)
        stage.start("one")
        stage.start("two")
        # Longer than they declare nobody after their start.
        await anyio.sleep(4)
        stage.alive = AGENTS[20:]
        await stage.until(lambda lines: of_type(lines, "agent.down") >= DYING, "20 go down")
        stage.alive = list(AGENTS)
        await stage.until(lambda lines: of_type(lines, "agent.up") >= DYING, "20 come up")
        await stage.until_all_is_confirmed()
        tasks.cancel_scope.cancel()
    lines = stage.ledger()
    assert len({line["event_id"] for line in lines}) == len(lines)
    in_turns(lines)


async def test_what_a_killed_scanner_had_taken_another_one_finishes(stage):
    """C18. Killed with -9 between the outbox and the confirmation."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.speak)
        doomed = stage.start("doomed", "stall")
        await anyio.sleep(1)
        stage.alive = AGENTS[20:]
        await stage.until(lambda lines: bool(of_type(lines, "agent.down")), "the first goes down")
        doomed.kill()
        doomed.wait()
        assert await stage.presence.pending_count() > 0
        stage.start("heir")
        await stage.until(
            lambda lines: (
                of_type([line for line in lines if line["by"] == "heir"], "agent.down") == DYING
            ),
            "the heir tells them",
        )
        await stage.until_all_is_confirmed()
        tasks.cancel_scope.cancel()
    lines = stage.ledger()
    taken = {(line["agent_id"], line["event_id"]) for line in lines if line["by"] == "doomed"}
    told = {(line["agent_id"], line["event_id"]) for line in lines if line["by"] == "heir"}
    assert taken <= told
    in_turns(list({line["event_id"]: line for line in lines}.values()))
