"""Fixtures of all tests of this package."""

import datetime as dt
import ipaddress
import uuid

import anyio
import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def keys_of():
    """Find the keys behind a client's prefix, which is taken off: `await keys_of(client)`."""

    async def keys_of(client):
        found, cursor = set(), 0
        while True:
            cursor, keys = await client.call(
                "SCAN", cursor, "MATCH", f"{client.prefix}*", "COUNT", 1_000
            )
            found |= {key.decode().removeprefix(client.prefix) for key in keys}
            if not int(cursor):
                return found

    return keys_of


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that signs itself, with its key, as one PEM file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "service.test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "service.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(pem) + secret)
    return path


@pytest.fixture(scope="module")
def mortal(testkit_session):
    """A Redis to be killed, which loses nothing that it answered."""
    from testkit import RedisServer

    service = testkit_session.start(RedisServer, appendfsync="always")
    yield service
    service.close()


@pytest.fixture
def full_departures():
    """Departures that nobody can note, as in a file on a full disk."""
    from ahcollector.departures import MemoryDepartures
    from ahcollector.errors import DeparturesError

    class Full(MemoryDepartures):
        async def note(self, departure):
            raise DeparturesError("no space left")

    return Full()


@pytest.fixture(scope="session")
def client_of():
    """Make a client behind a prefix of its own, which is yours to close: `client_of(port)`."""
    from ahcollector.redis import RedisClient, RedisConfig

    def client_of(port, *, timeout_seconds=5.0):
        prefix = f"test-{uuid.uuid4().hex}:"
        return RedisClient(
            config=RedisConfig(port=port, prefix=prefix, timeout_seconds=timeout_seconds)
        )

    return client_of


@pytest.fixture
async def client(redis_server, client_of, anyio_backend):
    """A client of the Redis that tests share."""
    client = client_of(redis_server.port)
    yield client
    await client.aclose()


class Killed:
    """Passes every call on, kills Redis before some of them, and repeats what got no answer.

    Args:
        target: Of whose contract it is.
        server: Killed and started again.
        failure: What a call raises then.
        kill_at: Before which calls, from 1.
    """

    def __init__(self, target, server, *, failure, kill_at):
        self._target, self._server, self._failure = target, server, failure
        self._kill_at = kill_at
        self._calls = 0

    def __getattr__(self, name):
        method = getattr(self._target, name)

        async def call(*args, **kwargs):
            self._calls += 1
            if self._calls in self._kill_at:
                self._server.kill()
                with pytest.raises(self._failure):
                    await method(*args, **kwargs)
                self._server.start()
            with anyio.fail_after(30):
                while True:
                    try:
                        return await method(*args, **kwargs)
                    except self._failure as error:
                        if "gave no answer" not in str(error):
                            raise
                        await anyio.sleep(0.01)

        return call


@pytest.fixture(scope="session")
def killed():
    """Make something over Redis that is killed in between; see `Killed`."""
    return Killed


class LossyLine:
    """A port that passes all on to Redis, and ends in the place of one reply when told so."""

    def __init__(self, port):
        self._port = port
        self.loses = False
        self.lost = 0

    async def serve(self, *, task_status):
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            task_status.started(listener.extra(anyio.abc.SocketAttribute.local_port))
            await listener.serve(self._pass)

    async def _pass(self, near):
        async with (
            near,
            await anyio.connect_tcp("127.0.0.1", self._port) as far,
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._requests, near, far, group.cancel_scope)
            async for data in far:
                if self.loses:
                    self.loses = False
                    self.lost += 1
                    break
                await near.send(data)
            group.cancel_scope.cancel()

    async def _requests(self, near, far, scope):
        try:
            async for data in near:
                await far.send(data)
        except anyio.BrokenResourceError:
            pass
        scope.cancel()


@pytest.fixture
async def line(private_redis, anyio_backend):
    """A line to the private Redis that loses a reply: set `loses`."""
    async with anyio.create_task_group() as group:
        line = LossyLine(private_redis.port)
        line.port = await group.start(line.serve)
        yield line
        group.cancel_scope.cancel()
