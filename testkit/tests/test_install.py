"""Finding programs, and installing them only where that is allowed."""

import os
import subprocess

import pytest

from testkit import Installer, MissingProgramError, Program
from testkit.install import find, no_daemons

NOWHERE = Program(name="Nowhere", executables=("nowhere-server",), package="nowhere")


def _program(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_apt_forbidden_and_a_missing_program_give_a_clear_message(tmp_path):
    said = []
    environ = {"PATH": str(tmp_path), "AH_APT": "0"}
    with pytest.raises(MissingProgramError) as caught:
        Installer(environ=environ, say=said.append).require([NOWHERE])
    assert str(caught.value) == (
        "Nowhere is not on this machine: no nowhere-server in PATH; "
        "install it (Debian: apt-get install nowhere); not installed for you: AH_APT=0 forbids it"
    )
    assert said == []


def test_every_missing_program_is_named(tmp_path):
    other = Program(name="Elsewhere", executables=("a", "b"), package="elsewhere")
    with pytest.raises(MissingProgramError) as caught:
        Installer(environ={"PATH": str(tmp_path), "AH_APT": "0"}).require([NOWHERE, other])
    first, second = str(caught.value).splitlines()
    assert first.startswith("Nowhere is not")
    assert second.startswith("Elsewhere is not on this machine: no a or b in PATH")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs")
def test_a_missing_program_is_installed_once_quietly_and_announced(tmp_path):
    _program(tmp_path, "apt-get")
    commands, said = [], []

    def run(command, *, env, **_options):
        commands.append((command, env["DEBIAN_FRONTEND"]))
        return subprocess.CompletedProcess(command, 100, stdout="reading\nE: no such package")

    installer = Installer(environ={"PATH": str(tmp_path)}, say=said.append, run=run)
    for _ in range(2):
        with pytest.raises(MissingProgramError, match="ended with 100: E: no such package"):
            installer.require([NOWHERE])
    assert [(command[0], command[3], front) for command, front in commands] == [
        ("apt-get", "DPkg::Lock::Timeout=300", "noninteractive")
    ]
    assert said == ["testkit: installing with apt: nowhere (AH_APT=0 forbids this)"]


def test_a_program_outside_path_is_found_in_its_newest_version(tmp_path):
    for version in ("9.6", "15", "17"):
        _program(tmp_path / version / "bin", "server")
    program = Program(
        name="S", executables=("server",), package="s", folders=(f"{tmp_path}/*/bin",)
    )
    assert find(program, path="") == tmp_path / "17" / "bin" / "server"


def test_a_wrapper_is_passed_over(tmp_path):
    _program(tmp_path / "real", "server")
    wrapper = _program(tmp_path / "real", "wrapper-script")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "server").symlink_to(wrapper)
    program = Program(
        name="S",
        executables=("server",),
        package="s",
        folders=(f"{tmp_path}/real",),
        wrappers=("wrapper-script",),
    )
    assert find(program, path=f"{tmp_path}/path") == tmp_path / "real" / "server"


def _asked(policy):
    return subprocess.run([policy, "redis-server", "start"], check=False).returncode


def test_daemons_are_forbidden_during_an_installation_and_the_old_policy_comes_back(tmp_path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 42\n")
    policy.chmod(0o755)
    with no_daemons(policy):
        assert _asked(policy) == 101
    assert _asked(policy) == 42
    assert list(tmp_path.iterdir()) == [policy]


def test_without_an_old_policy_none_is_left(tmp_path):
    policy = tmp_path / "policy-rc.d"
    with no_daemons(policy):
        assert _asked(policy) == 101
    assert list(tmp_path.iterdir()) == []


def test_a_policy_left_by_a_killed_process_forbids_nothing_and_the_old_one_is_asked(tmp_path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 42\n")
    policy.chmod(0o755)
    child = os.fork()
    if child == 0:
        with no_daemons(policy):
            os._exit(0)  # gone without a farewell
    os.waitpid(child, 0)
    assert _asked(policy) == 42
    with no_daemons(policy):
        assert _asked(policy) == 101
    assert _asked(policy) == 42
