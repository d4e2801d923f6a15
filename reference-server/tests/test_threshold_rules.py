"""Threshold rules in a whole server: from a file to a mail, over restarts, without a hub."""

import json
import socket
import sys
from contextlib import asynccontextmanager

import anyio
import pytest
from servers import clean_environment, running, until

from ah_server.demo.mail_sink import MailSink
from ah_server.errors import StateDirectoryError

pytestmark = pytest.mark.anyio
RULE = {
    "rule_id": "busy",
    "version": 1,
    "metric": "load",
    "op": "gt",
    "threshold": 50,
    "resolve_threshold": 40,
    "severity": "critical",
}
SILENCE = {
    "silence_id": "work",
    "company_id": "acme",
    "matchers": [{"label": "rule_id", "op": "eq", "value": "busy"}],
    "starts_at": "2026-01-01T00:00:00Z",
}
QUICK = {"alerting": {"scan_interval_seconds": 0.2}, "outbox": {"flush_interval_seconds": 0.1}}
OPENED, RESOLVED = ("alert.opened", "condition"), ("alert.resolved", "condition")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    clean_environment(monkeypatch)


async def given(state_dir, rules):
    """Gives the hub rules, as its operator does; returns what the command printed."""
    file = anyio.Path(state_dir) / "rules.json"
    await file.write_text(json.dumps({"rules": rules}))
    command = [sys.executable, "-m", "ah_server", "hub", "rules", "import", str(file)]
    done = await anyio.run_process(command, env={"AHC_STATE_DIR": str(state_dir)})
    return done.stdout.decode()


async def reload(server, name):
    reply = await server.admin_root("POST", f"reload/{name}")
    assert reply.status_code == 200, reply.text
    return reply.json()["in_force"]


async def told(server):
    """What the hub was told of alerts."""
    log = await server.assembly.hub.event_log.after(0, 1_000)
    return [logged.event for logged in log if logged.event.type.value.startswith("alert.")]


async def words(server):
    return [(event.type.value, event.reason) for event in await told(server)]


async def until_told(server, *wanted):
    async def look():
        found = await words(server)
        return len(found) >= len(wanted) and found

    assert await until(look) == list(wanted)


@asynccontextmanager
async def mailbox(folder):
    """A mail server of this test's own; gives its port and the mails it took."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mails = []
        sink = MailSink(listener=listener, folder=folder, on_mail=mails.append)
        async with anyio.create_task_group() as group:
            await group.start(lambda *, task_status: sink.run(task_status=task_status))
            yield listener.getsockname()[1], mails
            group.cancel_scope.cancel()


async def tell_by_mail(notify):
    await notify.directory.put_tenant("acme")
    await notify.directory.put_recipient("acme", "user", "kim", name="Kim")
    await notify.directory.put_contact(
        "acme", "user", "kim", "email", "kim@example.org", verified=True
    )
    rule = {
        "name": "Alerts",
        "filters": {"event_type": ["alert_opened", "alert_resolved"]},
        "recipients": [{"recipient_type": "user", "recipient_id": "kim"}],
        "channels": ["email"],
    }
    await notify.rules.put("acme", "5b2e1f0a-6c1d-4d0e-9a3b-0f4d3f1b2c3d", rule)


async def test_rule_of_the_command_line_calls_somebody_by_mail(tmp_path):
    """What is silenced is told to the hub, and calls nobody until the silence is taken away."""
    async with mailbox(tmp_path / "mail") as (port, mails):
        mail = {"host": "127.0.0.1", "port": port, "sender": "ah@ah.test", "security": "plain"}
        data = {**QUICK, "notify": {"mail": mail, "poll_seconds": 0.1}}
        async with running(tmp_path / "state", data=data) as server:
            await tell_by_mail(server.assembly.notify)
            printed = await given(tmp_path / "state", [RULE])
            assert printed.startswith("1 rule; ")
            assert "alerting.rules_sync_interval_seconds" in printed
            assert await reload(server, "rules") == 1
            token = await server.enrol()
            for value in (30.0, 60.0, 45.0, 70.0):
                assert await server.send(token, value) == 202
            await until_told(server, OPENED)
            assert await server.send(token, 30.0) == 202
            await until_told(server, OPENED, RESOLVED)
            opened, resolved = await told(server)
            page = await server.page("console", "/companies/acme/servers/web1")
            assert "alert.opened" in page.text
            assert (opened.company_id, opened.server_id, opened.value) == ("acme", "web1", 60.0)
            assert (resolved.rule_id, resolved.peak_value) == ("busy", 70.0)

            async def have(count):
                await until(lambda: _true(len(mails) >= count))
                assert len(mails) == count

            await have(2)
            assert mails[0]["Subject"].startswith(
                f"Alert busy opened on web1: {opened.series_key} is"
            )
            await server.assembly.hub.lists.put("silences", {"silences": [SILENCE]})
            assert await reload(server, "silences") == 1
            assert await server.send(token, 60.0) == 202
            await until_told(server, OPENED, RESOLVED, OPENED)
            silenced = (await told(server))[2]
            assert (silenced.suppressed, silenced.suppress_reason) == (True, "silence:work")
            await server.assembly.hub.lists.put("silences", {"silences": []})
            assert await reload(server, "silences") == 0
            await until_told(server, OPENED, RESOLVED, OPENED, ("alert.opened", "silence_ended"))
            await have(3)


async def _true(value):
    return value


@pytest.mark.fault
async def test_alert_goes_on_over_restarts_and_without_a_hub(tmp_path):
    """C18: it opens once, a hub that is away is told later, and what is deleted ends."""
    async with running(tmp_path, data=QUICK) as server:
        await server.assembly.hub.lists.put("rules", {"rules": [RULE]})
        assert await reload(server, "rules") == 1
        token = await server.enrol()
        assert await server.send(token, 60.0) == 202
        await until_told(server, OPENED)
        began = (await told(server))[0].occurred_at
    alone = {**QUICK, "hub": {"base_url": "http://127.0.0.1:9", "token": "hub-token-canary-1"}}
    async with running(tmp_path, data=alone) as server:
        assert (await server.admin_root("POST", "reload/rules")).status_code == 503
        assert await server.send(token, 70.0) == 202
        assert await server.send(token, 30.0) == 202

        await until(lambda: _waiting(server, 1))
        assert await server.send(token, 60.0) == 202
        await until(lambda: _waiting(server, 2))
    async with running(tmp_path, data=QUICK) as server:
        await until_told(server, OPENED, RESOLVED, OPENED)
        resolved = (await told(server))[1]
        lasted = (resolved.occurred_at - began).total_seconds()
        assert resolved.duration_seconds == pytest.approx(lasted, abs=1)
        assert resolved.peak_value == 70.0
        assert await server.send(token, 65.0) == 202
        deleted = await server.admin_root("DELETE", "companies/acme/servers/web1")
        assert deleted.status_code == 200
        # It would be the fourth change of an alert that flaps, and a deletion is none.
        forgotten = ("alert.resolved", "forgotten")
        await until_told(server, OPENED, RESOLVED, OPENED, forgotten)
        assert (await server.admin_root("DELETE", "companies/acme")).status_code == 200
        assert len(await told(server)) == 4
        assert await server.metric("ahc_events_lost_total") == 0


async def _waiting(server, count):
    return (await server.admin_root("GET", "outbox")).json()["depth"] == count


async def test_directory_of_states_that_another_server_holds_is_named_by_its_setting(tmp_path):
    data = {"alerting": {"rules_dir": str(tmp_path / "rules")}}
    async with running(tmp_path / "one", data=data):
        with pytest.raises(StateDirectoryError) as caught:
            async with running(tmp_path / "two", data=data):
                pass
    assert str(caught.value).startswith(f"alerting.rules_dir: the alerts in {tmp_path}/rules are")


async def ready(server, door="admin"):
    reply = await server.page(door, "/readyz")
    return reply.status_code, reply.json()["checks"]


async def test_readyz_names_states_of_alerts_that_cannot_be_kept_until_they_can(tmp_path):
    """A directory that is gone, as one that is full; agents are let in all the same."""
    rules_dir = tmp_path / "states"
    data = {**QUICK, "alerting": {"scan_interval_seconds": 0.2, "rules_dir": str(rules_dir)}}
    async with running(tmp_path, data=data) as server:
        await server.assembly.hub.lists.put("rules", {"rules": [RULE]})
        assert await reload(server, "rules") == 1
        token = await server.enrol()
        assert (await ready(server))[0] == 200
        away = anyio.Path(tmp_path / "away")
        await anyio.Path(rules_dir).rename(away)

        async def is_told():
            await server.send(token, 91.0)
            status, checks = await ready(server)
            return status == 503 and "make room" in checks["alerts"]

        await until(is_told)
        status, checks = await ready(server, "ingest")
        assert (status, "alerts" in checks) == (200, False)
        await away.rename(rules_dir)

        async def is_well():
            return (await ready(server)) == (200, dict.fromkeys(checks_of_all, "ok"))

        checks_of_all = {"alerts", "outbox", "presence", "rules", "silences", "store"}
        await until(is_well)
        await until(lambda: _opened(server))


async def _opened(server):
    return [event.type.value for event in await told(server)] == ["alert.opened"]


async def test_readyz_names_lists_of_the_hub_that_were_never_read(tmp_path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        hub = {"base_url": f"http://127.0.0.1:{nobody.getsockname()[1]}", "token": "t" * 40}
        async with running(tmp_path, data={**QUICK, "hub": hub}) as server:

            async def is_told():
                status, checks = await ready(server)
                return status == 503 and all(
                    "GET" in checks[name] for name in ("rules", "silences")
                )

            await until(is_told)
            _, checks = await ready(server)
            assert "nothing is judged" in checks["rules"]
            assert "nothing is silenced" in checks["silences"]
            assert (await ready(server, "ingest"))[0] == 200
