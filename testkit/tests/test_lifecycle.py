"""Nothing is left behind: no process, no directory, no port, however the end comes."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from testkit import NatsServer, PostgresServer, RabbitmqServer, RedisServer, StartError, wait_until
from testkit.errors import KeeperError

pytestmark = pytest.mark.service


def _processes_of(directory):
    """Every process that names the directory on its command line or works below it."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        words = [*(process.info["cmdline"] or []), *(process.info["environ"] or {}).values()]
        if any(str(directory) in word for word in words):
            found.append(process.pid)
    return found


def _refuses(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("kind", [RedisServer, NatsServer, PostgresServer])
def test_close_leaves_no_process_no_directory_and_no_listener(start_service, kind):
    server = start_service(kind)
    assert _processes_of(server.directory), "the search must see a running service"
    server.close()
    assert _processes_of(server.directory) == []
    assert not server.directory.exists()
    assert _refuses(server.port)
    server.close()  # twice is no error


def test_kill_ends_the_port_mapper_of_rabbitmq_too(start_service):
    server = start_service(RabbitmqServer)
    mine = str(server.directory)
    mappers = [
        process
        for process in psutil.process_iter(["name", "environ"])
        if process.info["name"] == "epmd" and mine in str(process.info["environ"])
    ]
    assert len(mappers) == 1
    server.kill()
    assert not mappers[0].is_running()
    server.close()
    assert _processes_of(server.directory) == []


_SLEEPER = """
import json, sys, time
import testkit
kind = getattr(testkit, sys.argv[1])
server = kind()
server.start()
print(json.dumps([server.pid, server.port, str(server.directory)]), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", [RedisServer, PostgresServer, RabbitmqServer])
def test_a_service_goes_when_the_process_that_started_it_is_killed(testkit_session, kind):
    testkit_session.start(RedisServer).close()  # skips when the machine may not have services
    owner = subprocess.Popen(
        [sys.executable, "-c", _SLEEPER, kind.__name__], stdout=subprocess.PIPE, text=True
    )
    with owner:
        pid, port, directory = json.loads(owner.stdout.readline())
        assert psutil.pid_exists(pid)
        owner.send_signal(signal.SIGKILL)
    wait_until(
        lambda: not Path(directory).exists() and not _processes_of(directory),
        what="the keeper to clean up",
        timeout_seconds=20,
    )
    assert _refuses(port)


def test_a_service_goes_when_its_keeper_is_killed(start_service):
    server = start_service(RedisServer)
    psutil.Process(psutil.Process(server.pid).ppid()).kill()
    wait_until(lambda: _refuses(server.port), what="Redis to end")
    with pytest.raises(KeeperError, match="the keeper of the service is gone"):
        server.restart()


def test_a_service_that_ends_at_once_shows_its_log(start_service):
    with pytest.raises(StartError) as caught:
        start_service(RedisServer, appendfsync="sometimes")
    text = str(caught.value)
    assert "before it was ready" in text
    assert "appendfsync" in text.split("the end of its log:")[1]


def test_a_service_that_does_not_answer_in_time_is_ended(start_service):
    class Deaf(RedisServer):
        def _answers(self):
            return False

    started = time.monotonic()
    with pytest.raises(StartError, match=r"did not answer within 0\.3 s"):
        start_service(Deaf, start_timeout_seconds=0.3)
    assert time.monotonic() - started < 10


def test_starting_twice_is_refused(start_service):
    server = start_service(RedisServer)
    with pytest.raises(KeeperError, match="still running"):
        server.start()
