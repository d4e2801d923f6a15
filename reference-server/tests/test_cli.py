"""Every wrong setting, taken port or unusable directory: a sentence, and the documented code."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import attrs
import pytest
from servers import FREE, clean_environment

from ah_server.cli import EXIT_CODES, main
from ah_server.hub import EventLog, open_database
from ah_server.settings import setting_lines
from ahwire import Event


@attrs.frozen(kw_only=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs a command in this process, with the state under tmp_path and every port free."""

    def run(*arguments, **environment):
        with monkeypatch.context() as patch:
            clean_environment(patch)
            state = {"AHC_STATE_DIR": str(tmp_path / "state")}
            for name, value in {**FREE, **state, **environment}.items():
                patch.setenv(name, value)
            capsys.readouterr()
            try:
                code = main(arguments)
            except SystemExit as ended:  # argparse ends so
                code = ended.code
            said = capsys.readouterr()
        return Done(returncode=code, stdout=said.out, stderr=said.err)

    return run


def test_usage_errors_end_with_2(cli):
    assert cli("nonsense").returncode == 2
    assert cli("hub", "license", "new").returncode == 2


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "check",
        "settings",
        "demo",
        "hub license new",
        "hub license list",
        "hub agents list",
        "hub events list",
        "hub rules import",
        "hub rules list",
        "hub silences import",
        "hub silences list",
        "outbox stats",
        "outbox dead list",
        "outbox dead replay",
        "outbox dead purge",
        "bus dead list",
        "bus dead replay",
        "bus dead purge",
        "worker dead list",
        "worker dead replay",
        "worker dead purge",
        "presence list",
        "notify tenant new",
        "notify key new",
        "rollup-rules",
    ],
)
def test_every_command_has_help_with_an_example(cli, command):
    done = cli(*command.split(), "--help")
    assert done.returncode == 0
    assert f"example: ah-server {command}" in " ".join(done.stdout.split())


def test_wrong_settings_are_all_named_and_end_with_3(cli):
    done = cli("check", AHC_LOG_LEVEL="loud", AHC_TSDB_MAX_BATCH_SAMPLES="0")
    assert done.returncode == 3
    assert "log.level: 'loud' cannot be used" in done.stderr
    assert "tsdb.max_batch_samples: '0' cannot be used: expected 1 to 100000" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named_with_its_setting_and_ends_with_4(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("run", AHC_INGEST_LISTEN=f"127.0.0.1:{port}")
    assert done.returncode == 4
    assert f"ingest.listen: another program listens on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_of_another_machine_ends_with_3(cli):
    done = cli("run", AHC_ADMIN_LISTEN="192.0.2.1:80")
    assert done.returncode == 3
    assert "admin.listen: cannot listen on 192.0.2.1:80" in done.stderr


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_an_unusable_state_directory_is_named_and_ends_with_5(cli, tmp_path, kind):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / ("" if kind == "file" else "below")
    done = cli("run", AHC_STATE_DIR=str(path))
    assert done.returncode == 5
    assert "state_dir" in done.stderr
    assert "that this user may write" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["hub/hub.sqlite", "notify/notify.sqlite", "samples.log"])
def test_state_that_another_program_wrote_is_named_and_left_alone(cli, tmp_path, name):
    path = tmp_path / "state" / name
    path.parent.mkdir(parents=True)
    strange = b'{"format":"strange","version":9}\n' * 300
    path.write_bytes(strange)
    done = cli("check")
    assert "Traceback" not in done.stderr
    if done.returncode == 0:  # what is only a cache may be set aside and begun anew
        assert name == "samples.log"
        kept = path.with_name(path.name + ".damaged")
        assert kept.exists() or path.read_bytes() == strange
    else:
        assert done.returncode == 5
        assert "cannot be used" in done.stderr
        assert path.read_bytes() == strange


@pytest.mark.parametrize("name", ["hub/hub.sqlite", "notify/notify.sqlite"])
@pytest.mark.parametrize("harm", ["emptied", "gone"])
def test_a_database_that_was_made_does_not_silently_begin_anew(cli, tmp_path, name, harm):
    assert cli("check").returncode == 0
    path = tmp_path / "state" / name
    assert path.stat().st_mode & 0o077 == 0
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    if harm == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()
    done = cli("check")
    assert done.returncode == 5
    assert str(path) in done.stderr
    assert "restore it from a backup" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_damaged_database_is_one_sentence_with_its_name(cli, tmp_path):
    assert cli("check").returncode == 0
    for name in ("hub/hub.sqlite", "notify/notify.sqlite"):
        path = tmp_path / "state" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:100] + bytes(4000) + whole[4100:])
        done = cli("check")
        assert done.returncode == 5
        assert str(path) in done.stderr
        assert "sqlalche.me" not in done.stderr
        assert done.stderr.count("\n") == 1
        path.write_bytes(whole)


def test_an_empty_name_of_a_settings_file_means_none(cli):
    assert cli("check", AHC_CONFIG="").returncode == 0


@pytest.mark.parametrize("kind", ["a file", "below a file", "agent is a file", "mail is a file"])
def test_a_demo_folder_that_cannot_be_used_is_named_with_what_helps(cli, tmp_path, kind):
    root = tmp_path / "demo"
    if kind.endswith("is a file"):
        root.mkdir()
        (root / kind.split()[0]).write_text("")
    else:
        root.write_text("")
    shown = root / "below" if kind == "below a file" else root
    done = cli("demo", "--state-dir", str(shown))
    assert done.returncode == 5
    assert str(shown) in done.stderr
    assert "--state-dir" in done.stderr
    assert "Traceback" not in done.stderr
    assert "all stopped" not in done.stdout


def test_an_interrupt_while_modules_load_is_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "ah_server", "settings"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    for text in process.stderr:
        said += text
        if "ah_server.errors" in text:  # the command line is loading
            process.send_signal(signal.SIGINT)
            break
    said += process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 130
    assert "Traceback" not in said
    assert "ah-server: stopped" in said


def test_a_role_without_shared_backends_is_refused_with_what_to_do(cli):
    done = cli("run", "--role", "ingest")
    assert done.returncode == 3
    assert "--role all" in done.stderr


def test_a_mail_server_that_cannot_be_reached_is_named_by_the_check(cli):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = str(closed.getsockname()[1])
        done = cli(
            "check",
            AHC_NOTIFY_MAIL_HOST="127.0.0.1",
            AHC_NOTIFY_MAIL_PORT=port,
            AHC_NOTIFY_MAIL_SENDER="a@example.test",
        )
    assert done.returncode == 3
    assert f"notify.mail.host: 127.0.0.1:{port} cannot be reached" in done.stderr


def test_commands_on_a_server_that_never_ran_say_so(cli):
    for command in (("hub", "agents", "list"), ("notify", "tenant", "new", "--tenant", "a")):
        done = cli(*command)
        assert done.returncode == 5
        assert "start the server once" in done.stderr


def test_the_settings_are_listed_as_json(cli):
    listed = json.loads(cli("settings", "--json").stdout)
    assert [line["name"] for line in listed] == [line.name for line in setting_lines()]


def test_the_exit_codes_of_the_readme_are_those_of_the_program():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", readme, flags=re.MULTILINE))
    assert {int(code): text for code, text in rows.items()} == EXIT_CODES


def test_a_server_runs_is_looked_into_and_stops_in_order(cli, tmp_path):
    ports = {}
    for name in ("ADMIN", "INGEST"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports[f"AHC_{name}_LISTEN"] = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, **FREE, **ports, "AHC_STATE_DIR": str(tmp_path / "state")}
    environment["AHC_LOG_FORMAT"] = "json"
    server = subprocess.Popen(
        [sys.executable, "-m", "ah_server", "run"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for text in server.stderr:
            said = json.loads(text)
            assert {"time", "level", "msg", "collector_id"} <= set(said)
            if said["msg"] == "ready":
                break
        assert cli("presence", "list", **ports).stdout.strip() == "no agent is known yet"
        assert json.loads(cli("outbox", "stats", "--json", **ports).stdout)["depth"] == 0
        for part in ("outbox", "bus", "worker"):
            assert cli(part, "dead", "list", **ports).stdout.strip() == "no dead letter"
            for verb in ("replay", "purge"):
                done = cli(part, "dead", verb, "--all", "--json", **ports)
                assert json.loads(done.stdout)["left"] == 0
            assert cli(part, "dead", "purge").returncode == 2
        second = cli("run")
        assert second.returncode == 5
        assert f"is in use by process {server.pid}" in second.stderr
        made = cli("hub", "license", "new", "--company", "acme", "--server", "web1")
        assert made.stdout.startswith("ahl_")
        bad = cli("hub", "license", "new", "--company", "acme", "--server", "../x")
        assert bad.returncode == 3
        assert "'../x' is not an id" in bad.stderr
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        rest = server.stderr.read()
        assert server.wait(timeout=30) == 0
        assert time.monotonic() - began < 30
        assert "Traceback" not in rest
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
    assert "no agent has enrolled yet" in cli("hub", "agents", "list").stdout
    assert "web1" in cli("hub", "license", "list").stdout
    assert "no event yet" in cli("hub", "events", "list").stdout
    assert cli("notify", "tenant", "new", "--tenant", "acme").returncode == 0
    key = cli("notify", "key", "new", "--tenant", "acme")
    assert key.returncode == 0
    assert len(key.stdout.strip()) > 20
    gone = cli("outbox", "stats", AHC_ADMIN_LISTEN="127.0.0.1:1")
    assert gone.returncode == 3
    assert "is the server running" in gone.stderr


def test_rules_and_silences_are_imported_into_the_development_hub(cli, tmp_path):
    async def begin():
        await (await open_database(tmp_path / "state" / "hub" / "hub.sqlite")).aclose()

    anyio.run(begin)
    rules = {
        "rules": [
            {
                "rule_id": "cpu",
                "version": 1,
                "metric": "cpu_usage_percent",
                "op": "gt",
                "threshold": 90,
                "severity": "warning",
            }
        ]
    }
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rules))
    done = cli("hub", "rules", "import", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 rule; collectors have the list within their alerting.rules_")
    listed = cli("hub", "rules", "list", "--json")
    assert json.loads(listed.stdout) == rules["rules"]
    assert "cpu_usage_percent" in cli("hub", "rules", "list").stdout
    rules["rules"][0]["op"] = "about"
    path.write_text(json.dumps(rules))
    refused = cli("hub", "rules", "import", str(path))
    assert refused.returncode == 3
    assert "rules[0]: op" in refused.stderr
    assert "nothing was imported" in refused.stderr
    path.write_text("{")
    assert cli("hub", "silences", "import", str(path)).returncode == 3
    assert "there are no silences" in cli("hub", "silences", "list").stdout


SERIES = 'ah_disk_used_percent{mount="/"}'


def told_event(number, **changes):
    return {
        "event_id": f"0190b6f2-0000-7000-8000-{number:012}",
        "type": "alert.reminder",
        "seq": number,
        "occurred_at": "2026-11-30T10:00:00Z",
        "company_id": "acme",
        "server_id": "web1",
        "rule_id": "disk-full",
        "series_key": SERIES,
        "severity": "warning",
        "value": 95.5,
        "threshold": 90.0,
        "suppressed": False,
        "labels": {"mount": "/"},
        **changes,
    }


@pytest.fixture
def with_events(tmp_path):
    def fill(*events):
        async def begin():
            read = [Event.from_json(json.dumps(one).encode()) for one in events]
            database = await open_database(tmp_path / "state" / "hub" / "hub.sqlite")
            await EventLog(database=database, clock=time).record(read)
            await database.aclose()

        anyio.run(begin)

    return fill


def test_the_list_of_events_tells_alerts_apart_and_says_what_hides_one(cli, with_events):
    hidden = told_event(2, suppressed=True, suppress_reason="silence:nightly")
    group = told_event(3, type="group.down", group_key="g1", labels={"members": ["a1"]})
    for name in ("server_id", "series_key", "value"):
        del group[name]
    with_events(told_event(1, series_key='ah_x{a="' + "y" * 200 + '"}'), hidden, group)
    done = cli("hub", "events", "list")
    titles, *lines = done.stdout.splitlines()
    for title in ("type", "severity", "rule", "series", "value", "suppressed by"):
        assert f"  {title}" in f"  {titles}"
    assert len(lines) == 3
    newest, by_silence, longest = lines
    assert "group.down" in newest
    for told in ("warning", "disk-full", SERIES, "95.5", "silence:nightly"):
        assert told in by_silence
    assert "silence:nightly" not in longest
    assert "\u2026" in longest
    assert len(longest) < 250
    listed = json.loads(cli("hub", "events", "list", "--json").stdout)
    assert [{**hidden, **one} for one in listed if one["seq"] == 2] == [listed[1]]
    assert listed[1]["suppress_reason"] == "silence:nightly"
    assert listed[1]["labels"] == {"mount": "/"}
    assert listed[0]["group_key"] == "g1"
    assert listed[1]["received"]


def test_the_directory_of_a_demo_leads_to_that_of_its_server(cli, tmp_path, with_events):
    with_events(told_event(1))
    (tmp_path / "demo").mkdir()
    (tmp_path / "state").rename(tmp_path / "demo" / "server")
    refused = cli("hub", "events", "list", AHC_STATE_DIR=str(tmp_path / "demo"))
    assert refused.returncode == 5
    assert f"set state_dir to {tmp_path / 'demo' / 'server'}" in refused.stderr
    refused = cli("hub", "events", "list", AHC_STATE_DIR=str(tmp_path / "none"))
    assert "start the server once with this state_dir" in refused.stderr
    found = cli("hub", "events", "list", AHC_STATE_DIR=str(tmp_path / "demo" / "server"))
    assert "disk-full" in found.stdout


def test_a_command_whose_output_is_closed_ends_with_its_own_code(tmp_path):
    state = {"AHC_STATE_DIR": str(tmp_path / "none")}
    for arguments, code in ((["settings"], 0), (["--version"], 0), (["hub", "events", "list"], 5)):
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "ah_server", *arguments],
            env={**os.environ, **state},
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_a_reader_who_goes_away_ends_a_command_quietly(tmp_path, with_events):
    with_events(*(told_event(number) for number in range(1, 150)))
    for arguments in (["hub", "events", "list", "--json"], ["settings"], ["--help"]):
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = subprocess.run(
            [sys.executable, "-m", "ah_server", *arguments],
            # Unbuffered, argparse sees that nobody reads its help, and calls that done.
            env={**os.environ, "PYTHONUNBUFFERED": "", "AHC_STATE_DIR": str(tmp_path / "state")},
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=60,
        )
        os.close(write_end)
        assert (done.returncode, done.stderr) == (141, b"")
