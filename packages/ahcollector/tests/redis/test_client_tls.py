"""The Redis client over TLS: the certificate is checked, always."""

import asyncio
import ssl

import anyio
import attrs
import pytest

from ahcollector.errors import RedisError
from ahcollector.redis import RedisClient, RedisConfig

pytestmark = [pytest.mark.service, pytest.mark.anyio]


@pytest.fixture
async def tls_port(redis_server, certificate):
    """A port that speaks TLS and passes everything on to Redis."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def pump(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader, writer):
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", redis_server.port)
        await asyncio.gather(pump(reader, back_writer), pump(back_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
def config(tls_port, certificate):
    return RedisConfig(port=tls_port, tls=True, tls_ca_file=certificate, timeout_seconds=2)


async def test_a_redis_with_a_certificate_of_the_trusted_authority_is_spoken_to(config):
    client = RedisClient(config=config)
    await client.ping()
    await client.aclose()
    await anyio.sleep(0)


async def test_a_certificate_of_an_unknown_authority_is_refused(config):
    client = RedisClient(config=attrs.evolve(config, tls_ca_file=None))
    with pytest.raises(RedisError, match=r"(?i)certificate"):
        await client.ping()
    await client.aclose()


async def test_a_certificate_for_another_name_is_refused(config):
    client = RedisClient(config=attrs.evolve(config, host="localhost"))
    with pytest.raises(RedisError, match=r"(?i)certificate|mismatch"):
        await client.ping()
    await client.aclose()


async def test_a_redis_without_tls_is_not_spoken_to_in_plain_text(redis_server, certificate):
    plain = RedisConfig(
        port=redis_server.port, tls=True, tls_ca_file=certificate, timeout_seconds=0.5
    )
    client = RedisClient(config=plain)
    with pytest.raises(RedisError, match="gave no answer"):
        await client.ping()
    await client.aclose()
