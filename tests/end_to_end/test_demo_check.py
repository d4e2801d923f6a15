"""The main job on real input, as `make demo-check` runs it, and that the check can fail."""

import io
import subprocess
import sys
import time

import pytest

from ah_server.demo import DemoFolders, Voice, check
from ah_server.errors import CheckFailedError
from ah_server.wiring import Seams


def test_the_demo_check_proves_every_step_within_90_seconds():
    done = subprocess.run(
        [sys.executable, "-m", "ah_server", "demo", "--check"],
        capture_output=True,
        text=True,
        timeout=270,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    proved = [line.split("ok    ")[1] for line in done.stdout.splitlines() if " ok    " in line]
    expected = (
        "enrolled",
        "samples queryable",
        "CPU, memory and disk are drawn by the console",
        "exactly one agent.down at the hub",
        "exactly one e-mail, to you@demo.example, with",
        "exactly one agent.up at the hub",
        "no sample missing:",
        "still one agent.down, one agent.up and one e-mail",
    )
    assert len(proved) == len(expected)
    for line, beginning in zip(proved, expected, strict=True):
        assert line.startswith(beginning)
    assert "samples missing           0" in done.stdout


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("detector", "agent.down at the hub: not within"),
        ("outbox sender", "agent.down at the hub: not within"),
        ("bridge", "an e-mail in the SMTP sink: not within"),
        ("sending", "an e-mail in the SMTP sink: not within"),
    ],
)
async def test_the_demo_check_fails_when_a_part_is_broken(tmp_path, broken, told):
    def without(parts):
        kept = tuple(part for part in parts if part.name != broken)
        assert len(kept) == len(parts) - 1
        return kept

    said = io.StringIO()
    voice = Voice(clock=time, out=said)
    with pytest.raises(CheckFailedError, match=told):
        await check(DemoFolders(root=tmp_path), voice, seams=Seams(parts=without), patience=0.5)
    print(said.getvalue())
    assert "FAIL" in said.getvalue()
