"""The client against a real server: the whole API, addresses, names."""

import threading
import time

import anyio
import pytest

from ahwal import Client, ConfigError, TransportError
from ahwal.testing import ScriptedAnswer, refuse
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
async def test_error_text_is_cut_and_made_printable(collector):
    collector.script(refuse(500, "server_error", message="a\n\x1b[31m" + "b" * 500), path="/config")
    async with Client(collector_url=collector.url) as client:
        answer = await client._request("GET", "/config")
    code, text = answer.error
    assert code == "server_error"
    assert len(text) == 200
    assert text.isprintable()


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
async def test_after_a_cancelled_request_nothing_spins(collector):
    collector.script(ScriptedAnswer(delay_seconds=1), path="/config")
    async with Client(collector_url=collector.url) as client:
        with anyio.move_on_after(0.1):
            await client.get_config()
        before = time.process_time()
        await anyio.sleep(0.3)
        assert time.process_time() - before < 0.2
