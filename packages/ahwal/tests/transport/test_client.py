"""The client against a real server: bounds, secrets, TLS, proxies, names that hang."""

import logging
import ssl
import subprocess
import sys
import threading
import time
import traceback

import anyio
import pytest

from ahwal import Client, ConfigError, TokenError, TransportError
from ahwal.testing import ScriptedAnswer, ScriptedCollector, protobuf, refuse
from ahwire.agent_pb2 import AgentConfig, EnrollRequest, Inventory

CANARY = "canary-c0ffee-token"


@pytest.mark.anyio
async def test_the_whole_api_is_spoken(collector):
    async with Client(collector_url=collector.url + "/", token=CANARY) as client:
        assert await client.ping()
        reply = await client.get_config()
        assert reply.status == 200
        answer, response = await client.enroll(EnrollRequest(license="L", machine_id="m" * 32))
        assert answer.status == 200
        assert response is not None
        assert response.agent_id
        _, renewed = await client.renew()
        assert renewed is not None
        assert renewed.agent_token
        assert (await client.post_inventory(Inventory(hostname="h"))).status == 202
    by_path = {request.path: request for request in collector.requests()}
    assert "authorization" not in by_path["/ping"].headers
    assert "authorization" not in by_path["/enroll"].headers
    assert "x-ah-proto" not in by_path["/ping"].headers
    assert by_path["/credentials/renew"].headers["authorization"] == f"Bearer {CANARY}"


@pytest.mark.anyio
async def test_a_known_etag_is_answered_with_304(collector):
    collector.config = AgentConfig(etag="v1", interval_seconds=60)
    async with Client(collector_url=collector.url, token=CANARY) as client:
        first = await client.get_config()
        assert first.config is not None
        assert first.config.etag == "v1"
        assert (await client.get_config("v1")).status == 304


@pytest.mark.anyio
async def test_redirects_are_not_followed_and_cookies_not_kept(collector):
    with ScriptedCollector() as other:
        collector.script(
            ScriptedAnswer(
                status=307,
                headers={"Location": other.url + "/agent/v1/config", "Set-Cookie": "id=1; Path=/"},
            ),
            path="/config",
        )
        async with Client(collector_url=collector.url, token=CANARY) as client:
            assert (await client.get_config()).status == 307
            await client.get_config()
        assert other.requests() == []
    assert all("cookie" not in request.headers for request in collector.requests())


@pytest.mark.parametrize(
    "token", ["a\nb", "a\r\nX: y", "a\0b", "tøken", "токен", "a b", "", "x" * 5000, "\x7f"]
)
def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(token):
    # W24.
    with pytest.raises(TokenError) as caught:
        Client(collector_url="http://127.0.0.1:1", token=token)
    text = "".join(traceback.format_exception(caught.value))
    assert token == "" or token not in text.replace('token="', "")


@pytest.mark.anyio
async def test_the_token_is_in_no_log_line_repr_or_traceback(collector, caplog):
    # W24: a canary at DEBUG, through success, refusal, and a broken connection.
    caplog.set_level(logging.DEBUG)
    seen = []
    collector.script(
        refuse(401, "unauthorized", message=f"the token {CANARY} is wrong"), path="/config"
    )
    async with Client(collector_url=collector.url, token=CANARY) as client:
        seen += [repr(client), str(vars(client)["_http"])]
        seen.append(repr(await client.get_config()))
        answer = await client.post_inventory(Inventory())
        seen.append(repr(answer))
        collector.always(ScriptedAnswer(reset=True), "/config")
        with pytest.raises(TransportError) as caught:
            await client.get_config()
        seen += ["".join(traceback.format_exception(caught.value)), repr(caught.value)]
    assert caplog.records
    assert CANARY not in caplog.text
    assert CANARY not in "".join(str(vars(record)) for record in caplog.records)
    assert CANARY not in "".join(seen)


@pytest.mark.anyio
async def test_a_license_that_the_server_repeats_is_masked(collector):
    collector.script(
        refuse(401, "license_invalid", message="license SECRET-LICENSE unknown"), path="/enroll"
    )
    async with Client(collector_url=collector.url) as client:
        answer, response = await client.enroll(EnrollRequest(license="SECRET-LICENSE"))
    assert response is None
    assert answer.error == ("license_invalid", "license *** unknown")


@pytest.mark.anyio
async def test_error_text_is_cut_and_made_printable(collector):
    collector.script(refuse(500, "server_error", message="a\n\x1b[31m" + "b" * 500), path="/config")
    async with Client(collector_url=collector.url) as client:
        answer = await client._request("GET", "/config")
    code, text = answer.error
    assert code == "server_error"
    assert len(text) == 200
    assert text.isprintable()


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [1.0])
async def test_a_server_that_drips_ends_at_the_time_limit(collector, seconds):
    collector.script(ScriptedAnswer(delay_seconds=5), path="/config")
    started = time.monotonic()
    async with Client(collector_url=collector.url, send_timeout_seconds=seconds) as client:
        with pytest.raises(TransportError, match="no whole answer within 1 s"):
            await client.get_config()
    assert time.monotonic() - started < 3


@pytest.mark.anyio
async def test_an_answer_with_an_unasked_coding_is_not_inflated(collector):
    body = AgentConfig(etag="v").SerializeToString()
    collector.script(protobuf(body, headers={"Content-Encoding": "gzip"}), path="/config")
    async with Client(collector_url=collector.url) as client:
        reply = await client.get_config()
    assert reply.config is None
    assert collector.requests()[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "collector",
        "ftp://x",
        "https://",
        "http://10.1.2.3",
        "https://user:pw@x",
        "http://[::1",
        "https://x?token=1",
        "https://x:99999",
    ],
)
def test_a_wrong_address_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        Client(collector_url=url)
    assert "pw" not in str(caught.value)


def test_plain_http_to_another_machine_needs_to_be_allowed():
    assert Client(collector_url="http://10.1.2.3", allow_plain_http=True)
    assert Client(collector_url="http://localhost:1")
    assert Client(collector_url="http://[::1]:1")


# A name that takes a minute to resolve, and a program that is told to stop meanwhile.
_HANGING = """
import sys, time, anyio
from ahwal import Client
import logging
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


@pytest.mark.anyio
async def test_look_ups_that_never_come_back_are_bounded():
    release = threading.Event()
    client = Client(
        collector_url="http://localhost:1",
        send_timeout_seconds=0.1,
        resolve=lambda host, port: [str(release.wait(30))],
    )
    for _ in range(10):
        with pytest.raises(TransportError):
            await client.get_config()
    hanging = [t for t in threading.enumerate() if t.name == "ahwal name look-up"]
    assert len(hanging) <= 8
    release.set()
    await client.aclose()


@pytest.mark.anyio
async def test_each_address_of_a_name_is_tried(collector):
    async with Client(
        collector_url=f"http://localhost:{collector.port}",
        # Nothing listens there, so it is refused at once.
        resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"],
    ) as client:
        assert await client.ping()


@pytest.mark.anyio
async def test_a_name_that_does_not_exist_is_a_transport_error():
    def unknown(host, port):
        raise OSError("Name or service not known")

    async with Client(collector_url="https://nowhere.invalid", resolve=unknown) as client:
        with pytest.raises(TransportError, match=r"cannot look up nowhere\.invalid"):
            await client.ping()


@pytest.mark.anyio
async def test_the_proxy_of_the_settings_is_used(collector, monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    # The scripted collector stands in for a proxy: it gets the whole address as its path.
    async with Client(
        collector_url="http://127.0.0.9:1", proxy_url=f"http://u:secret@127.0.0.1:{collector.port}"
    ) as client:
        await client.ping()
        assert "secret" not in repr(client)
    (request,) = collector.requests()
    assert request.path == "http://127.0.0.9:1/agent/v1/ping"
    assert request.headers["proxy-authorization"].startswith("Basic ")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    import datetime as dt
    import ipaddress

    pytest.importorskip("cryptography", reason="makes the test's certificates")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)

    def make(days):
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=30))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    folder = tmp_path_factory.mktemp("tls")
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for label, days in (("good", 30), ("expired", -1)):
        (folder / f"{label}.pem").write_bytes(make(days))
        (folder / f"{label}-key.pem").write_bytes(make(days) + private)
    (folder / "good-key.pem").write_bytes((folder / "good.pem").read_bytes() + private)
    (folder / "expired-key.pem").write_bytes((folder / "expired.pem").read_bytes() + private)
    return folder


def _server_context(path, maximum=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    if maximum is not None:
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = maximum
        context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.anyio
async def test_a_pinned_certificate_is_accepted_and_an_unknown_or_expired_one_refused(certificates):
    good = certificates / "good.pem"
    with ScriptedCollector(tls=_server_context(certificates / "good-key.pem")) as server:
        async with Client(collector_url=server.url, ca_file=str(good)) as client:
            assert await client.ping()
        async with Client(collector_url=server.url) as client:
            with pytest.raises(TransportError, match=r"(?i)certificate"):
                await client.ping()
        async with Client(collector_url=server.url, insecure_skip_verify=True) as client:
            assert await client.ping()
    with ScriptedCollector(tls=_server_context(certificates / "expired-key.pem")) as server:
        expired = str(certificates / "expired.pem")
        async with Client(collector_url=server.url, ca_file=expired) as client:
            with pytest.raises(TransportError, match="expired"):
                await client.ping()


@pytest.mark.anyio
async def test_tls_older_than_1_2_is_refused(certificates):
    with pytest.warns(DeprecationWarning, match="TLS"):
        context = _server_context(certificates / "good-key.pem", ssl.TLSVersion.TLSv1_1)
    with ScriptedCollector(tls=context) as server:
        ca_file = str(certificates / "good.pem")
        async with Client(collector_url=server.url, ca_file=ca_file) as client:
            with pytest.raises(TransportError):
                await client.ping()
        assert server.requests() == []


def test_a_missing_or_wrong_pem_file_is_named(tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for options in (
        {"ca_file": str(tmp_path / "missing.pem")},
        {"ca_file": str(wrong)},
        {"client_cert": str(wrong)},
    ):
        with pytest.raises(ConfigError, match=next(iter(options))):
            Client(collector_url="https://127.0.0.1:1", **options)


@pytest.mark.anyio
async def test_after_a_cancelled_request_nothing_spins(collector):
    collector.script(ScriptedAnswer(delay_seconds=1), path="/config")
    async with Client(collector_url=collector.url) as client:
        with anyio.move_on_after(0.1):
            await client.get_config()
        before = time.process_time()
        await anyio.sleep(0.3)
        assert time.process_time() - before < 0.2
