"""A door with a certificate speaks TLS 1.2 or newer, and nothing else."""

import datetime as dt
import ipaddress
import ssl

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ah_server.parts import Supervisor
from ah_server.settings import Address
from ah_server.web_server import WebServer, bind, bound_address

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that signs itself, with its key, as one PEM file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ingest.test")])
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
    path = tmp_path_factory.mktemp("tls") / "ingest.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(pem) + secret)
    return path


@pytest.fixture
async def address(certificate):
    async def scheme(request):
        return PlainTextResponse(request.url.scheme)

    listener = bind(Address("127.0.0.1", 0), "test")
    server = WebServer(
        name="door",
        app=Starlette(routes=[Route("/", scheme)]),
        listener=listener,
        tls_cert=certificate,
        tls_key=certificate,
    )
    supervisor = Supervisor([server])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        yield bound_address(listener)
        supervisor.request_stop()


def context_of(certificate, version):
    context = ssl.create_default_context(cafile=certificate)
    # Today's OpenSSL offers the old versions at this level only.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_door_speaks_tls(address, certificate, version):
    async with httpx.AsyncClient(verify=context_of(certificate, version)) as client:
        answer = await client.get(f"https://{address.netloc}/")
    assert (answer.status_code, answer.text) == (200, "https")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("name", ["TLSv1", "TLSv1_1"])
async def test_an_older_version_is_refused_by_the_door(address, certificate, name):
    context = context_of(certificate, ssl.TLSVersion[name])
    # It is the door that hangs up: what the client does not want to speak is another error.
    with pytest.raises(anyio.BrokenResourceError) as caught:
        await anyio.connect_tcp(address.host, address.port, tls=True, ssl_context=context)
    assert isinstance(caught.value.__cause__, ssl.SSLEOFError)


async def test_a_request_in_clear_gets_no_answer(address):
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"http://{address.netloc}/")
