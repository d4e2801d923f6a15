"""Enrolment that fails: the way out in a sentence, the documented code, no trace of a secret."""

import pytest
from world import Mailbox, World

pytestmark = pytest.mark.fault
CANARY = "ahl_canary-4711"


def test_an_unknown_license_is_refused_and_stands_nowhere(tmp_path):
    with Mailbox() as mailbox, World(tmp_path, mailbox) as world:
        enroll = ("ahwal", "enroll", "--config", str(world.agent_config), "--license-file", "-")
        nobody = world.run(*enroll, stdin=CANARY + "\n")
        assert nobody.returncode == 6
        assert "did not answer" in nobody.stderr
        world.start_server()
        refused = world.run(*enroll, stdin=CANARY + "\n")
        assert refused.returncode == 5
        assert "license_unknown; get a new one" in refused.stderr
        started = world.run("ahwal", "run", "--config", str(world.agent_config))
        assert started.returncode == 4
        assert "run `ahagent enroll`" in started.stderr
        assert not (tmp_path / "agent" / "credentials.json").exists()
        said = nobody.stderr + refused.stderr + (tmp_path / "server.log").read_text()
        assert CANARY not in said
