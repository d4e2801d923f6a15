"""What the agent asks for beside the sending: its inventory, its configuration, its token."""

import asyncio
import json
import stat
import time
from datetime import UTC, datetime

import attrs
import pytest
from running import PHASE, Running, reaches

from ahwal import AgentConfig
from ahwal.agent import CredentialStore
from ahwal.testing import FakeClock, ScriptedAnswer, acknowledge, protobuf, refuse
from ahwire.agent_pb2 import AgentConfig as RemoteConfig
from ahwire.agent_pb2 import Inventory, RenewResponse

pytestmark = pytest.mark.anyio
HOUR = 3600.0


def reports(collector):
    return [Inventory.FromString(r.plain) for r in collector.requests("/inventory")]


class Machine:
    """An inventory that a test changes."""

    def __init__(self):
        self.memory_bytes = 1 << 30
        self.reads = 0

    def __call__(self):
        self.reads += 1
        return Inventory(hostname="box", memory_bytes=self.memory_bytes, facts={"b": "2", "a": "1"})


async def test_the_inventory_is_sent_once_after_the_start_and_again_when_it_changed(
    config, collector
):
    machine = Machine()
    config = attrs.evolve(config, interval_seconds=300)
    async with Running(config, read_inventory=machine) as running:
        await running.steps(1, seconds=300)
        await reaches(lambda: len(reports(collector)) == 1)
        await running.steps(3, seconds=300)
        assert machine.reads == 1
        # Checked each hour, and unchanged.
        await later(running, HOUR, lambda: machine.reads >= 3, seconds=300)
        assert len(reports(collector)) == 1
        machine.memory_bytes = 2 << 30
        await later(running, HOUR, lambda: len(reports(collector)) == 2, seconds=300)
    first, second = reports(collector)
    assert (first.hostname, first.memory_bytes) == ("box", 1 << 30)
    assert second.memory_bytes == 2 << 30
    assert second.collected_at_ms > first.collected_at_ms + 2 * HOUR * 1000


async def later(running, step_seconds, condition, *, seconds=10.0):
    """Let time pass until it is so: a request that is under way may see the clock move or not."""
    for _ in range(20):
        if condition():
            return
        running.clock.step(step_seconds)
        await running.steps(1, seconds=seconds)
    assert condition()


async def test_an_unchanged_inventory_is_sent_again_after_a_day(config, collector):
    async with Running(attrs.evolve(config, interval_seconds=300)) as running:
        await running.steps(1, seconds=300)
        await reaches(lambda: len(reports(collector)) == 1)
        running.clock.step(23 * HOUR)
        await running.steps(2, seconds=300)
        assert len(reports(collector)) == 1
        await later(running, HOUR, lambda: len(reports(collector)) == 2, seconds=300)


async def test_without_psutil_the_inventory_says_what_the_standard_library_knows(config, collector):
    async with Running(config) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await reaches(lambda: reports(collector))
    (report,) = reports(collector)
    assert report.hostname
    assert report.cpus >= 1
    assert report.facts["python_version"]


@pytest.mark.parametrize(
    "answer",
    [refuse(503, "unavailable"), refuse(404), ScriptedAnswer(reset=True)],
    ids=["503", "404", "reset"],
)
async def test_an_inventory_that_nobody_takes_is_no_failed_delivery_and_is_tried_again(
    config, collector, caplog, answer
):
    collector.always(answer, "/inventory")
    async with Running(config) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        for _ in range(5):
            await running.steps(1)
        await reaches(lambda: len(collector.batches()) == 6)
        # Not before 30 s, although a step of delivery ends each 10 s.
        assert 1 <= len(reports(collector)) <= 2
        sender = running.agent.status().sender
        assert (sender.state, sender.send_failures) == ("ok", 0)
        collector.always(None, "/inventory")
        tried = len(reports(collector))
        await later(running, HOUR, lambda: len(reports(collector)) == tried + 1)
        await running.steps(10)
        assert len(reports(collector)) == tried + 1
    assert caplog.text.count("the inventory could not be sent") == 1
    (record,) = [r for r in caplog.records if "inventory could not be sent" in r.getMessage()]
    assert len(record.request_id) == 16


async def test_an_inventory_that_hangs_or_fails_delays_no_batch(config, collector, caplog):
    collector.always(ScriptedAnswer(delay_seconds=20), "/inventory")
    async with Running(config) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(reports(collector)) == 1)
        await running.cycles(3)
        await reaches(lambda: len(collector.batches()) == 4)
    collector.always(None, "/inventory")

    def broken():
        raise RuntimeError("no such device")

    async with Running(config, read_inventory=broken) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await running.cycles(2)
        await reaches(lambda: len(collector.batches()) == 7)
    assert caplog.text.count("the inventory could not be read: RuntimeError: no such device") == 1


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()],
    ids=repr,
)
async def test_an_inventory_whose_reading_would_end_a_program_ends_nothing(
    config, collector, caplog, error
):
    def broken():
        raise error

    async with Running(config, read_inventory=broken) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await running.cycles(1)
        await reaches(lambda: len(collector.batches()) == 2)
        await reaches(lambda: "the inventory could not be read" in caplog.text)
    assert type(error).__name__ in caplog.text


async def test_while_the_token_is_refused_nothing_but_the_probe_is_asked(config, collector):
    collector.always(refuse(401, "unauthorized"))
    collector.always(refuse(401, "unauthorized"), "/config")
    async with Running(config) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await running.steps(3, seconds=100)
    assert {request.path for request in collector.requests()} == {"/metrics"}


async def test_each_new_etag_is_fetched_once_and_a_304_ends_the_asking(config, collector, caplog):
    collector.config = RemoteConfig(etag="v1", interval_seconds=20)
    async with Running(config) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await reaches(lambda: running.agent.status().interval_seconds == 20)
        await running.steps(4, seconds=20)
        assert len(collector.requests("/config")) == 1
        collector.config = RemoteConfig(etag="v2", interval_seconds=30)
        await running.steps(1, seconds=20)
        await reaches(lambda: running.agent.status().interval_seconds == 30)
        await running.steps(3, seconds=30)
        assert len(collector.requests("/config")) == 2
        # An etag that leads nowhere: the collector still has v2.
        collector.script(acknowledge(config_etag="v3"))
        await running.steps(1, seconds=30)
        await reaches(lambda: len(collector.requests("/config")) == 3)
        await running.steps(3, seconds=30)
        assert len(collector.requests("/config")) == 3
    asked = [r.headers.get("if-none-match") for r in collector.requests("/config")]
    assert asked == [None, '"v1"', '"v2"']
    assert caplog.text.count("a remote setting was not taken") == 0


async def test_a_configuration_that_cannot_be_had_is_asked_for_again_and_named(
    config, collector, caplog
):
    collector.config = RemoteConfig(etag="v1", interval_seconds=20)
    collector.script(refuse(503, "unavailable"), ScriptedAnswer(reset=True), path="/config")
    async with Running(config) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/config")) == 1)
        await later(running, 400, lambda: running.agent.status().interval_seconds == 20)
        assert len(collector.requests("/config")) == 3
        assert running.agent.status().sender.send_failures == 0
    (record,) = [r for r in caplog.records if "could not be fetched" in r.getMessage()]
    assert len(record.request_id) == 16


def renewed(token):
    return protobuf(RenewResponse(agent_token=token).SerializeToString())


async def test_an_answer_with_a_new_token_that_was_lost_is_asked_for_again_with_the_old_one(
    collector, tmp_path, identity, caplog
):
    # The collector keeps the previous token valid when that one authorised a renewal.
    identity(tmp_path, collector.url)
    collector.script(acknowledge(renew_token=True))
    lost = attrs.evolve(renewed("token-2"), cut=True)
    collector.script(lost, renewed("token-3"), path="/credentials/renew")
    store = CredentialStore(state_dir=str(tmp_path))
    async with Running(AgentConfig(state_dir=tmp_path, interval_seconds=10)) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/credentials/renew")) == 1)
        await running.steps(1)
        assert store.load().agent_token == "canary-agent-token"
        await later(running, 400, lambda: store.load().agent_token == "token-3")
    sent = [r.headers["authorization"] for r in collector.requests("/credentials/renew")]
    assert sent == ["Bearer canary-agent-token"] * 2
    assert running.agent.status().sender.send_failures == 0
    (record,) = [r for r in caplog.records if "could not be renewed" in r.getMessage()]
    assert len(record.request_id) == 16
    assert "token-2" not in caplog.text


async def test_a_disk_that_refuses_the_new_token_keeps_the_old_file_and_is_tried_again(
    collector, tmp_path, identity
):
    identity(tmp_path, collector.url)
    collector.script(acknowledge(renew_token=True))
    obstacle = tmp_path / "credentials.json.tmp"
    obstacle.mkdir()
    store = CredentialStore(state_dir=str(tmp_path))
    async with Running(AgentConfig(state_dir=tmp_path, interval_seconds=10)) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/credentials/renew")) == 1)
        await running.steps(3)
        await reaches(lambda: len(collector.batches()) == 4)
        # Used already, because the old one will end; and the old file is whole.
        last = collector.requests("/metrics")[-1].headers["authorization"]
        assert last == "Bearer scripted-token-2"
        assert store.load().agent_token == "canary-agent-token"
        obstacle.rmdir()
        await later(running, 60, lambda: store.load().agent_token == "scripted-token-2")
    assert len(collector.requests("/credentials/renew")) == 1
    assert running.agent.status().sender.queued == 0
    file = tmp_path / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_bytes())["agent_id"] == "agent-1"


async def test_a_renewal_that_hangs_delays_no_batch(collector, tmp_path, identity):
    identity(tmp_path, collector.url)
    collector.script(acknowledge(renew_token=True))
    collector.script(ScriptedAnswer(delay_seconds=20), path="/credentials/renew")
    async with Running(AgentConfig(state_dir=tmp_path, interval_seconds=10)) as running:
        await running.cycles(1, seconds=PHASE + 0.01)
        await reaches(lambda: len(collector.requests("/credentials/renew")) == 1)
        await running.cycles(3)
        await reaches(lambda: len(collector.batches()) == 4)


async def test_a_token_is_renewed_although_metrics_are_refused_for_long(
    collector, tmp_path, identity
):
    # A bus that is full for a day must not let the token expire.
    clock = FakeClock(now=time.time())
    identity(
        tmp_path,
        collector.url,
        token_issued_at=datetime.fromtimestamp(clock.time(), UTC),
        token_expires_at=datetime.fromtimestamp(clock.time() + 400, UTC),
    )
    collector.always(refuse(503, "unavailable"))
    config = AgentConfig(state_dir=tmp_path, interval_seconds=10)
    async with Running(config, clock=clock) as running:
        await running.steps(1, seconds=PHASE + 0.01)
        for _ in range(15):
            await running.steps(1)
        assert collector.requests("/credentials/renew") == []
        for _ in range(60):
            if collector.requests("/credentials/renew"):
                break
            await running.steps(1)
    assert len(collector.requests("/credentials/renew")) == 1
    assert CredentialStore(state_dir=str(tmp_path)).load().agent_token == "scripted-token-2"
