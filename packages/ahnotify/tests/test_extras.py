"""A part whose extra is not installed says which one it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: `sys.modules[name] = None` makes Python's import say that the module is not there.
PROGRAM = """
import sys
sys.modules[{module!r}] = None
import ahnotify
try:
    {use}
except {error} as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("module", "use", "error", "extra"),
    [
        ("starlette", "ahnotify.rules_app", "ImportError", "ahnotify[web]"),
        ("starlette", "from ahnotify.api import rules_app", "ImportError", "ahnotify[web]"),
        ("aiosmtplib", "import ahnotify.providers.email", "ImportError", "ahnotify[email]"),
        (
            "aiosqlite",
            "ahnotify.Database.open('sqlite:///x.db')",
            "ahnotify.errors.ConfigurationError",
            "ahnotify[sqlite]",
        ),
        (
            "asyncpg",
            "ahnotify.Database.open('postgresql://u@h/d')",
            "ahnotify.errors.ConfigurationError",
            "ahnotify[postgres]",
        ),
    ],
)
def test_a_part_without_its_extra_names_it(module, use, error, extra, tmp_path):
    program = PROGRAM.format(module=module, use=use, error=error)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(error.rpartition(".")[2] + " ")
    assert f"install {extra}" in run.stdout
    assert module in run.stdout
