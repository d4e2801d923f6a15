"""Recovery on arbitrary directories: by hypothesis always, by a coverage-guided fuzzer at night."""

import importlib.util
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import wal_fuzz
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "ahwal.wal")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=600))
@example(b"")
def test_any_directory_opens_and_yields_only_what_was_written(data):
    """W1, W3 to W6: checkpoints, journals, segments and strangers of any bytes."""
    wal_fuzz.check(data)


@pytest.mark.nightly
@pytest.mark.skipif(
    not importlib.util.find_spec("atheris"),
    reason="atheris is not installed: it is in the group `fuzz`",
)
def test_a_coverage_guided_fuzzer_finds_nothing(tmp_path, tally):
    """AH_FUZZ_SECONDS says how long it looks; a minute else."""
    seconds = int(os.environ.get("AH_FUZZ_SECONDS", "60"))
    program = Path(__file__).with_name("wal_fuzz.py")
    done = subprocess.run(
        [
            *(sys.executable, str(program), f"-max_total_time={seconds}", "-timeout=30"),
            *("-max_len=600", f"-artifact_prefix={tmp_path}/", str(tmp_path)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    runs = re.search(r"Done (\d+) runs in (\d+) second", done.stdout)
    assert runs is not None, done.stdout[-2_000:]
    tally.note(
        f"atheris opened {int(runs[1]):,} directories of arbitrary bytes in {runs[2]} s; "
        "none did what it must not."
    )
