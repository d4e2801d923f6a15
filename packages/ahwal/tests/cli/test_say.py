"""What others wrote neither steers the terminal nor ends the command."""

import io
import json
import sys
from datetime import UTC, datetime

import pytest

from ahwal.agent._credentials import Credentials, CredentialStore
from ahwal.cli import main
from ahwal.cli._say import say, say_field


def printed(monkeypatch, encoding, text):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    say(text)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("code", [*range(9), 11, 13, 27, 0x7F, 0x9B, 0x202E, 0xD800, 0xDC80])
def test_what_steers_a_terminal_or_is_no_text_is_shown_by_its_number(monkeypatch, code):
    assert printed(monkeypatch, "utf-8", f"a{chr(code)}é") == f"a\\u{code:04x}é\n"


@pytest.mark.parametrize("text", ["é", "\U0001f600", "\x1b[31m", "\x9b", "\u2028", "\ud800"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_stays_the_same_json(monkeypatch, encoding, text):
    document = json.dumps({"name": text}, ensure_ascii=False)
    assert json.loads(printed(monkeypatch, encoding, document)) == {"name": text}


def test_a_field_is_one_line(capsys):
    say_field("error", "one\ntwo\r\nthree")
    assert capsys.readouterr().out == "error: one\\ntwo\\u000d\\nthree\n"


def test_status_shows_a_hostile_status_file_by_its_numbers(tmp_path, capsys):
    now = datetime.now(UTC)
    CredentialStore(state_dir=tmp_path).save(
        Credentials(
            agent_id="a", company_id="c", server_id="s", agent_token="t",
            token_issued_at=now, enrolled_at=now,
        )
    )  # fmt: skip
    hostile = {"line": "\x1b[2Jdelivery=ok\nrunning: yes", "storage": "\ud800", "error": "\u009b2J"}
    (tmp_path / "status.json").write_text(json.dumps(hostile))
    assert main(["status", "--state-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "last known: \\u001b[2Jdelivery=ok\\nrunning: yes storage=\\ud800\n" in out


def test_a_state_directory_that_cannot_be_written_is_a_problem_and_no_traceback(capsys):
    arguments = ["check-config", "--collector-url", "http://127.0.0.1:1", "--state-dir", "/a\ud800"]
    assert main(arguments) == 3
    assert "a path that this system can write" in capsys.readouterr().err
