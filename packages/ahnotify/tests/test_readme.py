"""The README's example is the program that it says it is."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from ahnotify import Database, SqlBroker, publish_incidents
from ahnotify.testing import incident

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.anyio
async def test_the_readmes_example_sends_a_mail(tmp_path, monkeypatch, smtp_port, sink):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    database = Database.open("sqlite:///notify.db")
    await publish_incidents(SqlBroker(database=database), [incident()])
    await database.aclose()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(names["main"], "notify.db", smtp_port)
        with anyio.fail_after(20):
            while not sink.mails:
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
