import logging
import os

import pytest

from ah_server.errors import StateDirectoryError
from ah_server.settings import Secret
from ah_server.state_directory import StateDirectory, stored_secret

GOOD = "canary-0123456789"


def refusal(folder, name="hub.token", **more):
    with pytest.raises(StateDirectoryError) as caught:
        stored_secret(folder, name, **more)
    assert caught.value.exit_code == 5
    return str(caught.value)


def test_a_secret_is_made_once_for_its_owner_only(tmp_path):
    made = stored_secret(tmp_path, "hub.token", make=True)
    assert stored_secret(tmp_path, "hub.token", make=True) == made
    assert len(made.reveal()) >= 16
    assert (tmp_path / "hub.token").stat().st_mode & 0o777 == 0o600


def test_a_configured_secret_wins(tmp_path):
    state = StateDirectory.open(tmp_path)
    assert state.secret("hub.token", Secret("mine")).reveal() == "mine"
    assert not (tmp_path / "hub.token").exists()
    state.close()


@pytest.mark.parametrize("name", ["hub.token", "admin.token"])
@pytest.mark.parametrize(
    "content",
    [
        b"canary-0123456789\ncanary-0123456789\n",
        b"canary-0123456789\0",
        b"canary\t0123456789abcdef",
        b"canary 0123456789abcdef",
        "canary-пароль-0123456789".encode(),
        b"canary-\xff\xfe-0123456789",
        b"canary-short",
        b"canary" * 10_000,
    ],
)
def test_a_secret_no_header_can_carry_is_refused_and_not_shown(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    for make in (True, False):
        told = refusal(tmp_path, name, make=make)
        assert str(tmp_path / name) in told
        assert "remove it, and a new one is made" in told
        assert "canary" not in told
    assert (tmp_path / name).read_bytes() == content


def test_the_end_of_the_line_is_no_part_of_the_secret(tmp_path):
    for content in (GOOD, GOOD + "\n", GOOD + "\r\n"):
        (tmp_path / "hub.token").write_text(content, newline="")
        assert stored_secret(tmp_path, "hub.token").reveal() == GOOD


def test_what_is_no_plain_file_is_named(tmp_path):
    (tmp_path / "hub.token").mkdir()
    os.mkfifo(tmp_path / "admin.token")
    for name in ("hub.token", "admin.token"):
        told = refusal(tmp_path, name, make=True)
        assert str(tmp_path / name) in told
        assert "not a plain file" in told


def test_a_missing_or_empty_secret_is_told_with_the_way_out(tmp_path):
    assert "start the server once" in refusal(tmp_path)
    (tmp_path / "hub.token").write_text("\n")
    assert "is empty: remove it" in refusal(tmp_path, make=True)


def test_a_secret_that_others_may_read_is_made_private_with_a_warning(tmp_path, caplog):
    path = tmp_path / "admin.token"
    path.write_text(GOOD)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert stored_secret(tmp_path, "admin.token").reveal() == GOOD
        assert stored_secret(tmp_path, "admin.token").reveal() == GOOD
    assert path.stat().st_mode & 0o777 == 0o600
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert GOOD not in record.getMessage()


def test_a_directory_has_one_process_at_a_time(tmp_path):
    state = StateDirectory.open(tmp_path)
    with pytest.raises(StateDirectoryError, match=f"in use by process {os.getpid()}"):
        StateDirectory.open(tmp_path)
    state.close()
    StateDirectory.open(tmp_path).close()


def test_a_directory_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "dir" / "lock").mkdir(parents=True)
    for path in (
        tmp_path / "file",
        tmp_path / "file" / "x",
        tmp_path / "dir",
        tmp_path / ("x" * 300),
    ):
        with pytest.raises(StateDirectoryError, match=r"state_dir .* cannot be used"):
            StateDirectory.open(path)
