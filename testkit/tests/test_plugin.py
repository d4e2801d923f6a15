"""A missing service: skipped loudly here, a failure under CI."""

import os
import subprocess
import sys

_TEST = """
import attrs, pytest
from testkit import RedisServer

class Missing(RedisServer):
    program = attrs.evolve(RedisServer.program, name="Nowhere", executables=("nowhere",))

def test_needs_it(start_service):
    start_service(Missing)

def test_needs_nothing():
    pass
"""


def _pytest(tmp_path, *, ci):
    (tmp_path / "test_it.py").write_text(_TEST)
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    environ |= {"AH_APT": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if ci:
        environ["CI"] = "true"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "testkit.plugin", "-rs", "test_it.py"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_service_is_skipped_and_named_at_the_end(tmp_path):
    done = _pytest(tmp_path, ci=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    summary = done.stdout.split("services missing: their tests did not run")[1]
    assert "Nowhere is not on this machine" in summary
    assert "AH_APT=0 forbids it" in summary


def test_ci_turns_the_skip_into_a_failure(tmp_path):
    done = _pytest(tmp_path, ci=True)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "CI has every service: Nowhere is not on this machine" in done.stdout
