import io
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from email.message import EmailMessage

import aiosmtplib
import anyio
import pytest

from ah_server.demo import DemoFolders, Voice
from ah_server.demo.agent_process import AgentFiles, AgentProcess
from ah_server.demo.ledger import join_counts, missing_samples, read_ledger, series_key
from ah_server.demo.mail_sink import MailSink, body_text
from ah_server.demo.plan import COMPANY, QUICK
from ah_server.demo.stage import stage
from ah_server.errors import CheckFailedError
from ah_server.parts import Supervisor
from ah_server.settings import Address
from ah_server.web_server import bind, bound_address
from ahwire import Event, EventType


def line(seq, at_ms, **values):
    samples = [
        {"name": name, "labels": {"a": "1"}, "value": value} for name, value in values.items()
    ]
    return json.dumps({"seq": seq, "collected_at_ms": at_ms, "series": samples}) + "\n"


def promised(tmp_path, text):
    path = tmp_path / "ledger.jsonl"
    path.write_text(text)
    return read_ledger(path)


def test_a_line_cut_by_a_kill_promises_nothing_and_is_counted(tmp_path):
    cut = line(3, 3000, cpu=3.0)[:30]
    ledger = promised(tmp_path, line(1, 1000, cpu=1.0) + cut + "\n" + line(2, 2000, cpu=2.0) + cut)
    assert (ledger.batches, ledger.samples, ledger.cut_lines) == (2, 2, 2)
    assert ledger.span_ms == (1000, 2000)
    assert ledger.series == {series_key("cpu", {"a": "1"}): {1000: 1.0, 2000: 2.0}}


@pytest.mark.parametrize("text", ["{}", "[]", "7", '{"collected_at_ms": 1, "series": [{}]}'])
def test_a_line_of_another_shape_proves_nothing(tmp_path, text):
    with pytest.raises(CheckFailedError, match="line 1"):
        promised(tmp_path, text + "\n" + line(2, 2000, cpu=2.0))


def test_a_missing_ledger_promises_nothing(tmp_path):
    assert read_ledger(tmp_path / "none").samples == 0


def test_one_missing_sample_is_found_and_named(tmp_path):
    ledger = promised(tmp_path, line(1, 1000, cpu=1.0) + line(2, 1500, cpu=2.0))
    key = series_key("cpu", {"a": "1"})
    whole = join_counts([(key, [(1000, 1.0), (2000, 1.0)])], [(key, [(1000, 1.0), (2000, 2.0)])])
    assert missing_samples(ledger, whole, 1000) == []
    gone = join_counts([(key, [(1000, 1.0)])], [(key, [(1000, 1.0)])])
    (told,) = missing_samples(ledger, gone, 1000)
    assert told == 'ah_cpu{a="1"} up to 2000 ms: 1 promised, 0 stored'


def test_a_wrong_value_is_found(tmp_path):
    ledger = promised(tmp_path, line(1, 1000, cpu=1.0))
    key = series_key("cpu", {"a": "1"})
    (told,) = missing_samples(ledger, {key: {1000: (1, 1.5)}}, 1000)
    assert "the values differ" in told


def test_samples_beyond_the_ledger_are_no_fault(tmp_path):
    ledger = promised(tmp_path, line(1, 1000, cpu=1.0))
    key = series_key("cpu", {"a": "1"})
    assert missing_samples(ledger, {key: {1000: (2, 9.0), 2000: (1, 1.0)}}, 1000) == []


@pytest.mark.anyio
async def test_the_mail_sink_keeps_what_it_is_sent(tmp_path):
    listener = bind(Address("127.0.0.1", 0), "test")
    address = bound_address(listener)
    told = []
    sink = MailSink(listener=listener, folder=tmp_path / "mail", on_mail=told.append)
    message = EmailMessage()
    message["From"] = "server@example.test"
    message["To"] = "person@example.test"
    message["Subject"] = "Grüße"
    message.set_content("Hallo")
    supervisor = Supervisor([sink])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        await aiosmtplib.send(message, hostname=address.host, port=address.port, start_tls=False)
        supervisor.request_stop()
    (kept,) = sink.messages()
    assert kept["Subject"] == "Grüße"
    assert body_text(kept).strip() == "Hallo"
    assert len(told) == 1
    assert (tmp_path / "mail" / "0001.eml").exists()


@pytest.mark.anyio
async def test_an_agent_that_a_killed_demo_left_is_stopped_and_no_other(tmp_path):
    def stand_in(folder):
        config = str(folder / "agent.yaml")
        script = "import time; time.sleep(60)"
        return subprocess.Popen([sys.executable, "-c", script, "-m", "ahwal", "run", config])

    files = AgentFiles(folder=tmp_path / "mine")
    agent = AgentProcess(files=files, collector_url="http://127.0.0.1:1", interval_seconds=1)
    assert await agent.stop_leftover() is None
    mine, other = stand_in(tmp_path / "mine"), stand_in(tmp_path / "other")
    try:
        assert await agent.stop_leftover() == mine.pid
        mine.wait(timeout=10)
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


@pytest.mark.anyio
async def test_an_alert_in_the_demo_is_told_by_mail(tmp_path):
    alert = Event(
        event_id="0190b6f2-0000-7000-8000-00000000000e",
        type=EventType.ALERT_OPENED,
        seq=1,
        occurred_at=datetime(2026, 11, 30, 10, tzinfo=UTC),
        company_id=COMPANY,
        server_id="web-7",
        rule_id="cpu-busy",
        series_key="ah_cpu_usage_percent",
        value=23.6,
        threshold=1.0,
        suppressed=False,
    )
    said = io.StringIO()
    voice = Voice(clock=time, out=said)
    async with stage(DemoFolders(root=tmp_path), pace=QUICK, voice=voice) as made:
        await made.assembly.hub.event_log.record([alert])
        with anyio.fail_after(20):
            await made.sink.wait_for(1)
    (mail,) = made.sink.messages()
    told = "Alert cpu-busy opened on web-7: ah_cpu_usage_percent is 23.6, above 1"
    assert mail["Subject"] == told
    assert f"e-mail to you@demo.example: {told}" in said.getvalue()
