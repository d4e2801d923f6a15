"""The client of NATS: requests that are bounded, cancelled at will, and never mixed up."""

import importlib.util
import socket
import ssl
import time

import anyio
import pytest

from ahcollector._nats_line import _tls
from ahcollector.errors import NatsError
from ahcollector.nats import NatsClient, NatsConfig

testkit = pytest.importorskip("testkit")
pytestmark = [pytest.mark.anyio, pytest.mark.service]


@pytest.fixture
async def client(nats_server, anyio_backend):
    client = NatsClient(config=NatsConfig(servers=(nats_server.url,), timeout_seconds=5.0))
    yield client
    await client.aclose()


async def echo(client, subject, *, delay=0.0):
    """Answer to a subject with what was sent there; return when it is heard."""
    line = await client._connected()

    async def answer(message):
        if delay:
            await anyio.sleep(delay)
        await message.respond(message.data)

    await line._nats.subscribe(subject, cb=answer)
    await line._nats.flush()


def test_a_password_is_in_no_text():
    config = NatsConfig(password="secret-1", token="secret-2")
    assert "secret" not in repr(config)
    with pytest.raises(ValueError, match="holds a user or a password") as error:
        NatsConfig(servers=("nats://me:secret-3@host:4222",))
    assert "secret" not in str(error.value)


def test_one_address_is_no_tuple_of_addresses():
    with pytest.raises(ValueError, match="takes a tuple of addresses") as error:
        NatsConfig(servers="nats://me:secret-4@host:4222")
    assert "secret" not in str(error.value)
    assert NatsConfig(servers=["nats://a:1"]) == NatsConfig(servers=("nats://a:1",))


@pytest.mark.parametrize("prefix", ["", "a.b", "a b", "a*", "x" * 65])
def test_a_prefix_that_is_no_name_is_refused(prefix):
    with pytest.raises(ValueError, match="names of streams"):
        NatsConfig(prefix=prefix)


@pytest.mark.fault
async def test_cancelled_at_every_await_each_answer_matches_its_request(client):
    """C13: ten thousand requests, a part of them cancelled anywhere, and the next one is quick."""
    await echo(client, "echo")
    answered = 0

    async def ask(number, wait):
        nonlocal answered
        with anyio.move_on_after(wait):
            data = f"{number}".encode()
            assert (await client.request("echo", data)).data == data
            answered += 1

    for turn in range(100):
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                # From before it is sent to long after it was answered.
                wait = 5.0 if number % 10 == 9 else (number % 10) * 0.003
                tasks.start_soon(ask, turn * 100 + number, wait)
    assert 1_000 <= answered < 10_000
    begun = time.monotonic()
    assert (await client.request("echo", b"next")).data == b"next"
    assert time.monotonic() - begun < 1.0
    assert not (await client._connected())._heard
    # Nothing runs on.
    used = time.process_time()
    await anyio.sleep(0.5)
    assert time.process_time() - used < 0.1


@pytest.mark.fault
async def test_a_server_restarted_again_and_again_is_found_again_at_once(start_service):
    """C13."""
    server = start_service(testkit.NatsServer)
    client = NatsClient(
        config=NatsConfig(servers=(server.url,), timeout_seconds=5.0), retry_seconds=0.01
    )
    lost = 0

    def count():
        nonlocal lost
        lost += 1

    for _ in range(3):
        inbox = await client.inbox(lambda _: None, count)
        await anyio.to_thread.run_sync(server.kill)
        with pytest.raises(NatsError):
            await client.request("$JS.API.INFO")
        await anyio.to_thread.run_sync(server.start)
        begun = time.monotonic()
        assert (await client.request("$JS.API.INFO")).data
        assert time.monotonic() - begun < 1.0
        assert inbox.is_lost
        with pytest.raises(NatsError, match="gave no answer"):
            await inbox.send("echo", b"")
    assert lost == 3
    await client.aclose()
    with pytest.raises(NatsError, match="the client of NATS is closed"):
        await client.request("$JS.API.INFO")


async def test_who_waits_is_told_when_the_connection_is_lost(client):
    await echo(client, "slow", delay=60)
    with anyio.fail_after(2):
        async with anyio.create_task_group() as tasks:

            async def ask():
                with pytest.raises(NatsError, match="the connection was lost"):
                    await client.request("slow", b"")

            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            await (await client._connected()).aclose()


async def test_nobody_there_and_too_late_are_told_apart(client, nats_server):
    with pytest.raises(NatsError, match=r"nobody answers to no\.such") as error:
        await client.request("no.such", b"")
    assert error.value.is_nobody
    await echo(client, "late", delay=1)
    quick = NatsClient(config=NatsConfig(servers=(nats_server.url,), timeout_seconds=0.1))
    with pytest.raises(NatsError, match="gave no answer to late: TimeoutError") as error:
        await quick.request("late", b"")
    assert not error.value.is_nobody
    with pytest.raises(NatsError, match="max_payload"):
        await client.request("late", bytes(2 << 20))
    await quick.aclose()


async def test_a_server_without_tls_is_told_no_password_where_tls_is_set(nats_server):
    config = NatsConfig(servers=(nats_server.url,), tls=True, username="u", password="p")
    client = NatsClient(config=config)
    with pytest.raises(NatsError, match="the server speaks no TLS, and tls is set"):
        await client.request("x")
    # At once, and with the same words.
    with pytest.raises(NatsError, match="the server speaks no TLS"):
        await client.request("x")
    await client.aclose()


async def test_credentials_without_their_package_are_told(nats_server, tmp_path):
    if importlib.util.find_spec("nkeys") is not None:
        pytest.skip("the package is there")
    config = NatsConfig(servers=(nats_server.url,), credentials_file=tmp_path / "a.creds")
    client = NatsClient(config=config)
    with pytest.raises(NatsError, match=r"install nats-py\[nkeys\]"):
        await client.request("x")


async def test_a_failed_connection_is_not_tried_by_everybody():
    config = NatsConfig(servers=(f"nats://127.0.0.1:{testkit.free_port()}",))
    client = NatsClient(config=config, retry_seconds=60.0)
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(
            NatsError, match=r"gave no answer to connect.*(?i:refused|connect call)"
        ):
            await client.request("x")
    assert time.monotonic() - begun < 1.0
    await client.aclose()


def test_tls_is_checked_against_the_given_authority(tmp_path):
    assert _tls(NatsConfig()) == {}
    context = _tls(NatsConfig(tls=True))["tls"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(ssl.SSLError):
        _tls(NatsConfig(tls=True, tls_ca_file=tmp_path / "ca.pem"))


class Guarded(testkit.NatsServer):
    """A NATS that asks for a password, and with `certificate` speaks TLS."""

    certificate = None

    def _command(self):
        more = ["--user", "me", "--pass", "right"]
        if self.certificate is not None:
            pem = str(self.certificate)
            more += ["--tls", "--tlscert", pem, "--tlskey", pem]
        return [*super()._command(), *more]

    def _answers(self):
        with socket.create_connection((self.host, self.port), 1.0) as peer:
            return peer.recv(100).startswith(b"INFO")


async def test_a_wrong_password_is_told_as_such(start_service):
    server = start_service(Guarded)
    right = NatsConfig(servers=(server.url,), username="me", password="right")
    client = NatsClient(config=right)
    assert (await client.request("$JS.API.INFO")).data
    await client.aclose()
    for wrong in (
        NatsConfig(servers=(server.url,), username="me", password="wrong-1"),
        NatsConfig(servers=(server.url,), token="wrong-1"),
        NatsConfig(servers=(server.url,)),
    ):
        client = NatsClient(config=wrong)
        with pytest.raises(NatsError, match=r"(?i)authorization violation") as error:
            await client.request("$JS.API.INFO")
        assert "check username and password" in str(error.value)
        assert "wrong-1" not in str(error.value)
        await client.aclose()


async def test_over_tls_the_certificate_is_checked(start_service, certificate):
    kind = type("GuardedWithTls", (Guarded,), {"certificate": certificate})
    server = start_service(kind)
    login = {"servers": (server.url,), "username": "me", "password": "right", "tls": True}
    client = NatsClient(config=NatsConfig(tls_ca_file=certificate, **login))
    assert (await client.request("$JS.API.INFO")).data
    await client.aclose()
    client = NatsClient(config=NatsConfig(**login))
    with pytest.raises(NatsError, match=r"certificate|CERTIFICATE"):
        await client.request("$JS.API.INFO")
    await client.aclose()


class NarrowServer(testkit.NatsServer):
    """Its user may ask JetStream for nothing but what it is about."""

    def _command(self):
        settings = self.directory / "nats.conf"
        settings.write_text(
            'accounts { A { jetstream: enabled, users: [ { user: "me", password: "pw", '
            'permissions: { publish: ["$JS.API.INFO"], subscribe: [">"] } } ] } }\n'
            "no_auth_user: me\n"
        )
        return [*super()._command(), "-c", str(settings)]


async def test_what_this_user_has_no_right_to_is_told_as_such(start_service):
    server = start_service(NarrowServer)
    client = NatsClient(config=NatsConfig(servers=(server.url,), timeout_seconds=0.5))
    try:
        assert (await client.request("$JS.API.INFO")).data
        with pytest.raises(NatsError, match=r"refuses \$JS\.API\.STREAM\.INFO\.ah_bus") as error:
            await client.request("$JS.API.STREAM.INFO.ah_bus")
        assert "permissions violation for publish" in str(error.value).lower()
        assert "allow this user that" in str(error.value)
        assert error.value.is_refusal
    finally:
        await client.aclose()


def test_without_asyncio_there_is_a_sentence():
    async def ask():
        await NatsClient(config=NatsConfig(servers=("nats://127.0.0.1:1",))).request("x")

    with pytest.raises(RuntimeError, match="the client of NATS needs asyncio"):
        anyio.run(ask, backend="trio")
