"""Token and license are found nowhere but in the request: W24."""

import copy
import gc
import json
import logging
import os
import pickle
import signal
import ssl
import subprocess
import sys
import traceback
from datetime import UTC, datetime

import anyio
import pytest

from ahwal import Agent, AgentConfig, AhwalError, Client, TokenError, TransportError, enroll
from ahwal.agent import Credentials, CredentialStore
from ahwal.testing import ScriptedAnswer, protobuf, refuse
from ahwal.transport._token import Secret
from ahwire.agent_pb2 import EnrollRequest, EnrollResponse, Inventory

CANARY = "canary-c0ffee-token"


def shown(error, own_frames=1):
    """Everything that a traceback with the values of variables shows, but the test's own frame."""
    whole = traceback.TracebackException.from_exception(error, capture_locals=True)
    del whole.stack[:own_frames]
    return "".join(whole.format()) + repr(error) + repr(vars(error))


@pytest.fixture
def all_logs(caplog):
    """The log of every logger that there is, at DEBUG."""
    for name in ("", "httpx", "httpcore", "hpack"):  # another test may have left them quiet
        caplog.set_level(logging.DEBUG, name)
    for name in list(logging.root.manager.loggerDict):
        caplog.set_level(logging.DEBUG, logger=name)

    def text():
        assert caplog.records, "nothing was logged, so nothing could be shown"
        return caplog.text + "".join(str(vars(record)) for record in caplog.records)

    return text


BROKEN = ["a\nb", "a\r\nX: y", "a\0b", "tøken", "токен", "a b", "", "x" * 5000, "\x7f", "\udc80"]


@pytest.mark.parametrize("damage", BROKEN)
def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(damage):
    # W24.
    given = {"token": f"{CANARY}{damage}{CANARY}" if damage else " \n"}
    with pytest.raises(TokenError, match="enrol again") as caught:
        Client(collector_url="http://127.0.0.1:1", **given)
    assert CANARY not in shown(caught.value)
    client = Client(collector_url="http://127.0.0.1:1")
    with pytest.raises(TokenError) as caught:
        client.set_token(given["token"])
    assert CANARY not in shown(caught.value)
    assert not client.has_token


def _says(answer):
    def handle(sock):
        sock.recv(65536)
        sock.sendall(answer)

    return handle


# Answers that repeat what was sent where the libraries quote it.
REPEATING = {
    "status line": f"HTTP/1.1 200 {CANARY}\r\nContent-Length: 0\r\n\r\n",
    "header": f"HTTP/1.1 500 X\r\nX-Echo: Bearer {CANARY}\r\nContent-Length: 0\r\n\r\n",
    "code": f"HTTP/1.1 500 X\r\nX-AH-Code: {CANARY}\r\nContent-Length: 0\r\n\r\n",
    "no header": f"HTTP/1.1 200 OK\r\nBearer {CANARY}\r\n\r\n",
    "nonsense": f"Authorization: Bearer {CANARY}\r\n\r\n",
    "cut": f"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{CANARY}",
    "too large": f"HTTP/1.1 200 {CANARY}\r\nContent-Length: 9999999\r\n\r\n" + CANARY * 100_000,
    "nothing": "",
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", REPEATING)
async def test_the_token_is_in_no_log_line_or_traceback_though_the_answer_repeats_it(
    raw_server, all_logs, kind
):
    seen = []
    with raw_server(_says(REPEATING[kind].encode())) as server:
        async with Client(collector_url=server.url, token=CANARY) as client:
            try:
                seen.append(repr(await client.get_config()))
            except TransportError as error:
                seen.append(shown(error))
            seen += [repr(client), repr(vars(client))]
    assert len(seen) == 3
    assert CANARY not in "".join(seen)
    assert CANARY not in all_logs()


@pytest.mark.anyio
async def test_the_token_is_in_no_log_line_repr_or_traceback(collector, raw_server, all_logs):
    # W24: through success, refusal, a reset, a time limit, and a cancellation.
    seen = []
    collector.script(
        refuse(401, "unauthorized", message=f"the token {CANARY} is wrong"), path="/config"
    )
    async with Client(collector_url=collector.url, token=CANARY) as client:
        seen.append(repr(await client.get_config()))
        seen.append(repr(await client.post_inventory(Inventory())))
        seen.append(repr(await client.renew()))
        collector.always(ScriptedAnswer(reset=True), "/config")
        with pytest.raises(TransportError) as caught:
            await client.get_config()
        seen.append(shown(caught.value))
    with raw_server(lambda sock: [sock.recv(65536) for _ in range(2)]) as server:
        async with Client(
            collector_url=server.url, token=CANARY, send_timeout_seconds=0.3
        ) as client:
            with pytest.raises(TransportError) as caught:
                await client.get_config()
            seen.append(shown(caught.value))
            with anyio.move_on_after(0.1):
                try:
                    await client.get_config()
                except anyio.get_cancelled_exc_class() as error:
                    seen.append(shown(error))
                    raise
    assert len(seen) == 6
    assert CANARY not in "".join(seen)
    assert CANARY not in all_logs()


@pytest.mark.anyio
async def test_no_object_of_the_package_shows_the_token(collector):
    # Kept, so that no new object gets the id of an old one.
    before = gc.get_objects()
    old = {id(thing) for thing in before}
    async with Client(collector_url=collector.url, token=CANARY) as client:
        answers = [await client.get_config(), await client._request("GET", "/config")]
        credentials = Credentials(
            agent_id="a",
            company_id="c",
            server_id="s",
            agent_token=CANARY,
            token_issued_at=datetime(2026, 1, 1, tzinfo=UTC),
            collector_url="",
            enrolled_at=datetime(2026, 1, 1, tzinfo=UTC),
            machine_id="m",
        )
        own = [
            thing
            for thing in gc.get_objects()
            # The scripted collector is the other side, and records what it got for the test.
            if id(thing) not in old
            and (module := str(type(thing).__module__)).startswith("ahwal.")
            and not module.startswith("ahwal.testing")
        ]
        assert {type(client), type(answers[1]), type(credentials), Secret} <= set(map(type, own))
        for thing in own:
            assert CANARY not in repr(thing), type(thing)
            assert CANARY not in str(thing), type(thing)
            assert CANARY not in f"{thing}", type(thing)


@pytest.mark.anyio
async def test_what_holds_the_token_is_not_pickled(collector):
    async with Client(collector_url=collector.url, token=CANARY) as client:
        answer = await client._request("GET", "/config")
        for thing in (client, answer, Secret(CANARY)):
            with pytest.raises(TypeError):
                pickle.dumps(thing)
        with pytest.raises(TypeError):
            copy.deepcopy(answer)


@pytest.mark.anyio
async def test_a_license_that_the_server_repeats_is_masked(collector):
    collector.script(
        refuse(401, "license_invalid", message="license SECRET-LICENSE unknown"), path="/enroll"
    )
    async with Client(collector_url=collector.url) as client:
        answer, response = await client.enroll(EnrollRequest(license="SECRET-LICENSE"))
    assert response is None
    assert answer.error == ("license_invalid", "license *** unknown")


INCOMPLETE = EnrollResponse(agent_id="a", agent_token=CANARY).SerializeToString()
ENROLMENTS = {
    "reset": ScriptedAnswer(reset=True),
    "refused": refuse(401, "license_invalid", message=f"{CANARY} is unknown"),
    "portal": ScriptedAnswer(body=CANARY.encode(), headers={"X-AH-Code": CANARY}),
    "incomplete": protobuf(INCOMPLETE),
    "disk": None,
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ENROLMENTS)
async def test_neither_license_nor_new_token_is_shown_by_a_failed_enrolment(
    collector, tmp_path, all_logs, kind
):
    collector.always(ENROLMENTS[kind], "/enroll")
    if kind == "disk":
        (tmp_path / "credentials.json.tmp").mkdir()
        whole = EnrollResponse(agent_id="a", company_id="c", server_id="s", agent_token=CANARY)
        collector.always(protobuf(whole.SerializeToString()), "/enroll")
    config = AgentConfig(collector_url=collector.url, state_dir=tmp_path)
    with pytest.raises(AhwalError) as caught:
        await enroll(config, CANARY)
    assert len(collector.requests("/enroll")) == 1
    assert CANARY not in shown(caught.value)
    assert CANARY not in all_logs()


def _identity(path, token):
    now = datetime.now(UTC)
    CredentialStore(state_dir=str(path)).save(
        Credentials(
            agent_id="agent-1",
            company_id="company-1",
            server_id="server-1",
            agent_token=token,
            token_issued_at=now,
            collector_url="https://127.0.0.1:1",
            enrolled_at=now,
            machine_id="",
        )
    )


def test_a_stored_token_that_cannot_be_sent_or_read_is_not_shown(tmp_path):
    # W24, through the agent.
    config = AgentConfig(state_dir=tmp_path)
    _identity(tmp_path, f"{CANARY}\0")
    with pytest.raises(TokenError) as caught:
        Agent(config, list)
    assert CANARY not in shown(caught.value)
    (tmp_path / "credentials.json").write_text(json.dumps({"agent_token": CANARY}))
    with pytest.raises(AhwalError, match="damaged") as caught:
        Agent(config, list)
    assert CANARY not in shown(caught.value)


def test_no_command_and_no_file_but_the_credentials_shows_the_token(tmp_path, collector):
    _identity(tmp_path, CANARY)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AH_")},
        "AH_STATE_DIR": str(tmp_path),
        "AH_COLLECTOR_URL": collector.url,
        "AH_ALLOW_SHORT_INTERVAL": "true",
        "AH_INTERVAL": "1s",
        "AH_LOG_LEVEL": "debug",
    }
    collector.script(refuse(401, "unauthorized", message=f"{CANARY} is unknown"))
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environ}
    ahagent = [sys.executable, "-m", "ahwal"]
    running = subprocess.Popen([*ahagent, "run"], **options)
    try:
        collector.wait_for(1)
    finally:
        running.send_signal(signal.SIGTERM)
        outputs = [running.communicate(timeout=60)[0]]
    for command in (["status", "--json"], ["check-config"], ["wal", "dump"]):
        outputs.append(subprocess.run([*ahagent, *command], check=False, **options).stdout)
    assert all(outputs), outputs
    assert CANARY.encode() not in b"".join(outputs)
    holders = {
        path.name
        for path in tmp_path.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    }
    assert (tmp_path / "status.json").exists()
    assert holders == {"credentials.json"}


@pytest.mark.anyio
async def test_the_token_is_in_no_traceback_of_a_failed_handshake(
    raw_server, server_context, ca_file, all_logs
):
    context = server_context("expired")
    with raw_server(_says(b""), context) as server:
        async with Client(collector_url=server.url, ca_file=ca_file, token=CANARY) as client:
            with pytest.raises(TransportError, match="expired") as caught:
                await client.get_config()
    assert isinstance(context, ssl.SSLContext)
    assert CANARY not in shown(caught.value)
    assert CANARY not in all_logs()
