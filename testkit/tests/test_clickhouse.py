"""ClickHouse without a server: clickhouse-connect on the embedded engine.

The engine takes one path a process and keeps it until the process ends, so each step is a process.
"""

import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.service

_OPEN = """
import os, signal, sys
from clickhouse_connect import get_client
client = get_client(interface="chdb", path=sys.argv[1])
"""


def _run(code, directory):
    return subprocess.run(
        [sys.executable, "-c", _OPEN + textwrap.dedent(code), str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_row_survives_the_kill_of_the_process_that_wrote_it(tmp_path):
    written = _run(
        """
        client.command("create table line (id UInt32, word String) engine=MergeTree order by id")
        client.insert("line", [[1, "kept"], [2, "other"]], column_names=["id", "word"])
        assert client.query("select count() from line").result_rows == [(2,)]
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert written.returncode == -signal.SIGKILL, written.stderr

    read = _run(
        """
        found = client.query(
            "select word from line where word in {words:Array(String)}",
            parameters={"words": ["kept", "unknown"]},
        )
        print(found.result_rows)
        """,
        tmp_path,
    )
    assert read.returncode == 0, read.stderr
    assert read.stdout.strip() == "[('kept',)]"
