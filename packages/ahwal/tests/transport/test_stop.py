"""Stopping while the network hangs: W22."""

import socket
import subprocess
import sys
import time

import pytest

from ahwal import WAL
from ahwal.agent import Credentials, CredentialStore

# A name that takes a minute to resolve, and a program that is told to stop meanwhile.
_HANGING = """
import sys, time, anyio
from ahwal import Client
backend = sys.argv[1]
async def main():
    client = Client(collector_url="https://hangs.invalid", resolve=lambda h, p: time.sleep(60))
    with anyio.move_on_after(0.5):
        await client.get_config()
    await client.aclose()
anyio.run(main, backend=backend)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_name_look_up_that_hangs_does_not_hold_the_program(backend):
    # W22.
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", _HANGING, backend], check=True, timeout=30)
    assert time.monotonic() - started < 15


# A threaded host. It tells when it begins to stop, once the agent has been sending for a while.
_HOST = """
import sys, threading, time
from ahwal import Agent, AgentConfig, Client, Sample

url, state_dir, how = sys.argv[1:]
sending = threading.Event()

def resolve(host, port):
    sending.set()
    if how == "look-up":
        time.sleep(60)
    return ["127.0.0.1"]

config = AgentConfig(
    collector_url=url, state_dir=state_dir, interval_seconds=1, allow_short_interval=True,
    shutdown_flush_seconds=3, allow_plain_http=True,
)
client = Client(collector_url=url, token="t", allow_plain_http=True, resolve=resolve)
with Agent(config, lambda: [Sample("work", 1)], client=client):
    assert sending.wait(30)
    time.sleep(0.2)
    print("stop", flush=True)
print("stopped", flush=True)
"""


def _black_hole():
    """Return a listener whose queue is full, so that a connection to it is never made."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = []
    for _ in range(3):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
        waiting.append(client)
    return listener, waiting


def test_a_stop_with_3_seconds_ends_in_time_whatever_hangs_and_the_data_is_on_disk(
    raw_server, tmp_path
):
    # W22: a name look-up, a connection, an answer that never come. All at once, to save time.
    listener, waiting = _black_hole()
    with raw_server(lambda sock: [sock.recv(65536) for _ in range(9)]) as silent:
        ports = {
            "look-up": silent.port,
            "connection": listener.getsockname()[1],
            "answer": silent.port,
        }
        hosts = {}
        for how, port in ports.items():
            _store_identity(tmp_path / how)
            hosts[how] = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _HOST,
                    f"http://hangs.test:{port}",
                    str(tmp_path / how),
                    how,
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
        try:
            for host in hosts.values():
                assert host.stdout.readline() == "stop\n"
            started = time.monotonic()
            for host in hosts.values():
                assert host.stdout.readline() == "stopped\n"
            # 3.5 s on a quiet machine, and the interpreters end as well.
            assert [host.wait(timeout=10) for host in hosts.values()] == [0, 0, 0]
            assert time.monotonic() - started < 3 * 3.5
        finally:
            for host in hosts.values():
                host.kill()
                host.wait()
                host.stdout.close()
    for opened in (listener, *waiting):
        opened.close()
    for how in ports:
        with WAL.open(tmp_path / how / "wal") as left:
            assert left.stats().batches >= 1, how


def _store_identity(path):
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    CredentialStore(state_dir=str(path)).save(
        Credentials(
            agent_id="agent-1",
            company_id="company-1",
            server_id="server-1",
            agent_token="token",
            token_issued_at=now,
            collector_url="",
            enrolled_at=now,
            machine_id="",
        )
    )
