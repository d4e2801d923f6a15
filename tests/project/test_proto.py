"""The committed messages are what the schema generates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "packages" / "ahwire" / "src"
NO_COMPILER = 3


def test_the_generated_messages_are_up_to_date(tmp_path):
    script = Path(__file__).with_name("protogen.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False
    )
    if done.returncode == NO_COMPILER:
        if os.environ.get("CI"):
            pytest.fail(f"CI has the compiler: {done.stderr}", pytrace=False)
        pytest.skip(f"NOT COMPARED, the compiler cannot be had: {done.stderr}")
    assert done.returncode == 0, done.stderr
    modules = ("ahwire/agent_pb2", "ahwire/remote_write_pb2")
    for name in [f"{module}.{kind}" for module in modules for kind in ("py", "pyi")]:
        generated = (tmp_path / name).read_text(encoding="utf-8")
        committed = (SOURCES / name).read_text(encoding="utf-8")
        assert committed == generated, f"{name} is not what its schema makes: run nox -s proto"
