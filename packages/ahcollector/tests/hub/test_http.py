"""The hub over HTTP: what is asked, how answers are judged, and that no secret is told."""

import json
import logging
from datetime import UTC, datetime

import anyio
import anyio.abc
import attrs
import httpx
import pytest

from ahcollector.errors import FencedHubError, PermanentHubError, TemporaryHubError
from ahcollector.hub import HttpHub
from ahcollector.testing import FakeClock
from ahwire import AgentRecord, Event, EventType
from ahwire.agent_pb2 import EnrollRequest, Inventory
from ahwire.hub import AgentState, Heartbeat, Seen, SeenReport

pytestmark = pytest.mark.anyio

TOKEN = "canary-hub-token"
RECORD = AgentRecord(
    agent_id="a1",
    company_id="acme",
    server_id="s",
    state=AgentState.ACTIVE,
    token_hash="ab" * 32,
    version=1,
)
EVENT = Event(
    event_id="01890a5d-ac96-774b-bcce-b302099a8057",
    type=EventType.AGENT_DOWN,
    seq=1,
    occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
    company_id="acme",
    server_id="s",
    suppressed=False,
)


class Script:
    """Answers with what it is given, and keeps what it was asked."""

    def __init__(self, status=200, body=b"{}", headers=None):
        self.answer = (status, body, headers or {})
        self.asked: list[httpx.Request] = []

    def __call__(self, request):
        self.asked.append(request)
        status, body, headers = self.answer
        content = json.dumps(body).encode() if isinstance(body, dict | list) else body
        return httpx.Response(status, content=content, headers=headers)


def hub_with(script, **options):
    return HttpHub(
        base_url="http://hub.test/base/",
        token=TOKEN,
        clock=FakeClock(),
        transport=httpx.MockTransport(script),
        **options,
    )


def wrapped(text):
    return {"data": json.loads(text)}


@pytest.mark.parametrize("wrap", [False, True])
async def test_look_up_by_hash(wrap):
    body = json.loads(RECORD.to_json())
    script = Script(body={"data": body} if wrap else body)
    async with hub_with(script) as hub:
        assert await hub.agent_by_token_hash("ab" * 32) == RECORD
    (request,) = script.asked
    assert str(request.url) == (
        "http://hub.test/base/api/v1/monitoring/collector/agents?token_hash=" + "ab" * 32
    )
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


async def test_404_is_the_hubs_word_that_it_has_no_such_token():
    async with hub_with(Script(404, {"code": "not_found"})) as hub:
        assert await hub.agent_by_token_hash("00" * 32) is None


async def test_pages_carry_the_cursor_as_it_is():
    body = {"agents": [json.loads(RECORD.to_json())], "more": True, "next_since": "b&c=1"}
    script = Script(body=body)
    async with hub_with(script) as hub:
        page = await hub.agents_since("a b&c", 500)
    assert page.agents == (RECORD,)
    assert page.next_since == "b&c=1"
    assert dict(httpx.QueryParams(script.asked[0].url.query.decode())) == {
        "since": "a b&c",
        "limit": "500",
    }


async def test_one_bad_record_does_not_stop_the_others(caplog):
    good = json.loads(RECORD.to_json())
    vague = {**good, "prev_token_hash": "cd" * 32, "prev_token_expires_at": "soon"}
    bad = {**good, "agent_id": "\ud800"}
    body = {"data": {"agents": [bad, 7, vague, good], "more": False, "next_since": "c3"}}
    async with hub_with(Script(body=body)) as hub:
        page = await hub.agents_since("", 500)
    expired = attrs.evolve(RECORD, prev_token_hash="cd" * 32)
    assert page.agents == (expired, RECORD), "an expiry that cannot be read means expired"
    assert page.next_since == "c3"
    assert caplog.text.count("left out") == 2
    async with hub_with(Script(body={"data": vague})) as hub:
        assert await hub.agent_by_token_hash("ab" * 32) == expired
    for body in ({"agents": 3}, {"agents": [bad]}, b"nonsense"):
        async with hub_with(Script(body=body)) as hub:
            with pytest.raises(TemporaryHubError):
                await hub.agents_since("", 500)


@pytest.mark.parametrize("fence", [None, 0, 17])
async def test_events_carry_the_fence_when_a_lease_is_held(fence):
    script = Script(body={"accepted": [EVENT.event_id], "rejected": []})
    async with hub_with(script) as hub:
        reply = await hub.send_events([EVENT], fence)
    assert reply.accepted == (EVENT.event_id,)
    assert script.asked[0].headers.get("x-ah-fence") == (None if fence is None else str(fence))
    sent = json.loads(script.asked[0].content)["events"]
    assert [one["event_id"] for one in sent] == [EVENT.event_id]


@pytest.mark.parametrize(
    ("body", "newest"),
    [
        ({"newest": 9}, 9),
        ({"data": {"newest": 9}}, 9),
        ({"newest": 2**52 - 1}, 2**52 - 1),
        ({"newest": None}, None),
        (b"", None),
    ],
)
async def test_412_is_fenced(body, newest):
    async with hub_with(Script(412, body)) as hub:
        with pytest.raises(FencedHubError) as caught:
            await hub.send_events([EVENT], 3)
    assert caught.value.newest == newest
    assert not caught.value.is_senseless


@pytest.mark.parametrize(
    "newest", ["9", "", -1, 2**52, 2**63 - 1, 2**64, 10**4_000, True, 9.0, 1e300, [], {}, "x" * 999]
)
async def test_a_newest_fence_that_none_can_be_above_is_the_hubs_fault(newest):
    async with hub_with(Script(412, {"code": "fenced", "newest": newest})) as hub:
        with pytest.raises(FencedHubError, match="set the hub's counter of fences back") as caught:
            await hub.send_events([EVENT], 3)
    assert caught.value.is_senseless
    assert caught.value.newest is None
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 502, 503, 504, 599])
async def test_what_a_retry_can_help_is_temporary(status):
    async with hub_with(Script(status, b"<html>", {"Retry-After": "7"})) as hub:
        with pytest.raises(TemporaryHubError) as caught:
            await hub.send_seen(SeenReport(seen=()))
    assert caught.value.status == status
    assert caught.value.retry_after_seconds == 7


@pytest.mark.parametrize("status", [400, 404, 405, 409, 410, 413, 422])
@pytest.mark.parametrize(
    "body", [b"", b"<html>nginx</html>", {"error": "Not Found"}, {"detail": "x"}, {"code": 404}]
)
async def test_a_4xx_without_the_hubs_code_is_temporary(status, body):
    """A proxy or a wrong address said it; nothing may be dropped, and no token called unknown."""
    async with hub_with(Script(status, body)) as hub:
        with pytest.raises(TemporaryHubError, match="check the hub's base_url") as caught:
            await hub.send_events([EVENT])
        assert (caught.value.status, caught.value.code) == (status, None)
        with pytest.raises(TemporaryHubError):
            await hub.agent_by_token_hash("00" * 32)


@pytest.mark.parametrize("status", [404, 422])
async def test_the_code_may_be_in_the_header(status):
    async with hub_with(Script(status, b"", {"X-AH-Code": "because"})) as hub:
        with pytest.raises(PermanentHubError) as caught:
            await hub.send_events([EVENT])
    assert caught.value.code == "because"


@pytest.mark.parametrize("status", [400, 404, 405, 409, 410, 413, 422])
async def test_any_other_4xx_with_a_code_is_permanent(status):
    script = Script(status, {"error": {"code": "because"}})
    async with hub_with(script) as hub:
        with pytest.raises(PermanentHubError) as caught:
            await hub.send_events([EVENT])
    assert (caught.value.status, caught.value.code) == (status, "because")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (301, b""),
        (302, b""),
        (304, b""),
        (200, b""),
        (200, b"<html>captive portal</html>"),
        (200, b"[]"),
        (200, b"[" * 100_000),
        (200, b'{"accepted": 3}'),
        (204, b""),
    ],
)
async def test_what_makes_no_sense_is_temporary_and_no_redirect_is_followed(status, body):
    script = Script(status, body, {"Location": "http://evil.test/"})
    async with hub_with(script) as hub:
        with pytest.raises(TemporaryHubError):
            await hub.send_events([EVENT])
    assert len(script.asked) == 1


async def test_an_answer_over_the_limit_is_not_read_to_its_end():
    read = []

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self):
            for number in range(1_000):
                read.append(number)
                yield bytes(100_000)

    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Endless()))
    async with HttpHub(base_url="http://h", token="t", transport=transport) as hub:
        with pytest.raises(TemporaryHubError, match="over"):
            await hub.agent_by_token_hash("00" * 32)
    assert len(read) <= 85


async def test_a_compressed_answer_was_not_asked_for():
    script = Script(200, b"", {"Content-Encoding": "gzip"})
    async with hub_with(script) as hub:
        with pytest.raises(TemporaryHubError, match="coding"):
            await hub.agent_by_token_hash("00" * 32)
    assert script.asked[0].headers["accept-encoding"] == "identity"


async def test_a_hub_that_hangs_is_given_up_in_time():
    async def hang(request):
        await anyio.sleep_forever()

    hub = HttpHub(
        base_url="http://h", token="t", timeout_seconds=0.01, transport=httpx.MockTransport(hang)
    )
    async with hub:
        with pytest.raises(TemporaryHubError, match=r"within 0\.01 s"):
            await hub.heartbeat(
                Heartbeat(
                    collector_id="c",
                    version="1",
                    at=datetime(2026, 1, 1, tzinfo=UTC),
                    agents=0,
                    agents_down=0,
                    companies={},
                    batches_per_second=0.0,
                    samples_per_second=0.0,
                    outbox_depth=0,
                )
            )


async def test_nobody_listening_is_temporary():
    async with HttpHub(base_url="http://127.0.0.1:9", token="t") as hub:
        with pytest.raises(TemporaryHubError, match="cannot be reached"):
            await hub.agent_by_token_hash("00" * 32)


async def test_enrolment_passes_the_address_on_and_reads_the_grant():
    grant = {
        "agent_id": "a1",
        "company_id": "acme",
        "server_id": "s",
        "token_hash": "ab" * 32,
        "agent_token": "secret-1",
        "version": 3,
        "config": {"interval_seconds": 15},
    }
    script = Script(body={"data": grant})
    async with hub_with(script) as hub:
        request = EnrollRequest(license="L", machine_id="m", hostname="h", labels={"a": "b"})
        reply = await hub.enroll(request, client_ip="192.0.2.7", request_id="r1")
    assert (reply.agent_token, reply.version, reply.config.interval_seconds) == ("secret-1", 3, 15)
    assert script.asked[0].headers["x-forwarded-for"] == "192.0.2.7"
    assert script.asked[0].headers["x-request-id"] == "r1"
    assert json.loads(script.asked[0].content) == {
        "license": "L",
        "machine_id": "m",
        "hostname": "h",
        "labels": {"a": "b"},
    }


async def test_an_incomplete_grant_is_temporary():
    async with hub_with(Script(body={"agent_id": "a1"})) as hub:
        with pytest.raises(TemporaryHubError, match="makes no sense"):
            await hub.enroll(EnrollRequest(license="L"), client_ip="::1", request_id="r")


async def test_settings_are_asked_for_by_etag():
    script = Script(body={"agent": {"interval_seconds": 20}}, headers={"ETag": '"e1"'})
    async with hub_with(script) as hub:
        reply = await hub.settings("acme", etag=None)
        assert reply.settings.agent.interval_seconds == 20
        assert reply.etag == '"e1"'
        script.answer = (304, b"", {})
        again = await hub.settings("acme", etag=reply.etag)
    assert (again.settings, again.etag) == (None, '"e1"')
    assert script.asked[1].headers["if-none-match"] == '"e1"'
    assert script.asked[1].url.path.endswith("/settings/acme")


async def test_seen_and_inventory_are_sent_as_the_contract_says():
    script = Script(body={})
    async with hub_with(script) as hub:
        moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        await hub.send_seen(SeenReport(seen=(Seen(agent_id="a1", last_seen_at=moment),)))
        await hub.send_inventory("a1", Inventory(hostname="h", cpus=2), request_id="r")
    assert json.loads(script.asked[0].content) == {
        "seen": [{"agent_id": "a1", "last_seen_at": "2026-01-02T03:04:05Z"}]
    }
    assert json.loads(script.asked[1].content) == {
        "agent_id": "a1",
        "inventory": {"hostname": "h", "cpus": 2},
    }


async def test_no_secret_is_in_a_log_an_error_or_a_repr(caplog):
    caplog.set_level(logging.DEBUG)
    token_hash = "cd" * 32
    answers = [
        Script(body=json.loads(RECORD.to_json())),
        Script(500, {"message": TOKEN + token_hash}),
        Script(200, b"\xff" + token_hash.encode()),
    ]
    told = []
    for script in answers:
        hub = hub_with(script)
        told.append(repr(hub))
        async with hub:
            try:
                await hub.agent_by_token_hash(token_hash)
                await hub.enroll(
                    EnrollRequest(license="canary-license"), client_ip="", request_id=""
                )
            except TemporaryHubError as error:
                told.append(repr(error) + str(error))
    told.append(caplog.text)
    text = "".join(told)
    assert "HTTP Request" in text, "the client's own log line is among them"
    for secret in (TOKEN, token_hash, "canary-license"):
        assert secret not in text


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("ftp://h", "t"),
        ("hub.test", "t"),
        ("http://h?x=1", "t"),
        ("http://h", ""),
        ("http://h", "canary\n"),
        ("http://h", "canarÿ"),
        ("http://h", "canary token"),
    ],
)
def test_a_bad_address_or_token_is_refused_without_being_quoted(url, token):
    with pytest.raises(ValueError) as caught:
        HttpHub(base_url=url, token=token)
    assert "canar" not in str(caught.value)


async def test_over_a_real_socket_the_query_and_the_token_arrive():
    received = []

    async def serve(stream):
        async with stream:
            received.append(await stream.receive(65_536))
            body = RECORD.to_json()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            await stream.send(head.encode() + body)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        async with HttpHub(base_url=f"http://127.0.0.1:{port}", token=TOKEN) as hub:
            assert await hub.agent_by_token_hash("ab" * 32) == RECORD
        group.cancel_scope.cancel()
    line, *headers = received[0].decode().split("\r\n")
    path = "/api/v1/monitoring/collector/agents?token_hash=" + "ab" * 32
    assert line == f"GET {path} HTTP/1.1"
    assert f"Authorization: Bearer {TOKEN}" in headers


RULE = {
    "rule_id": "cpu",
    "version": 1,
    "metric": "ah_cpu",
    "op": "gt",
    "threshold": 90,
    "severity": "warning",
}
SILENCE = {
    "silence_id": "s1",
    "company_id": "acme",
    "matchers": [{"label": "server_id", "op": "eq", "value": "web-1"}],
    "starts_at": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("wrap", [False, True])
async def test_rules_are_read_one_by_one_and_asked_for_by_etag(wrap):
    body = {"rules": [RULE, RULE | {"rule_id": "odd", "op": "about"}]}
    script = Script(body={"data": body} if wrap else body, headers={"ETag": '"r1"'})
    async with hub_with(script) as hub:
        reply = await hub.rules(None)
        script.answer = (304, b"", {})
        again = await hub.rules('"r1"')
    assert [rule.rule_id for rule in reply.rules] == ["cpu"]
    (refused,) = reply.refused
    assert (refused.rule_id, refused.errors[0].path) == ("odd", "rules[1].op")
    assert (reply.etag, again.rules, again.refused, again.etag) == ('"r1"', None, (), '"r1"')
    assert [one.url.path.rpartition("/")[2] for one in script.asked] == ["rules", "rules"]
    assert "if-none-match" not in script.asked[0].headers
    assert script.asked[1].headers["if-none-match"] == '"r1"'


@pytest.mark.parametrize("wrap", [False, True])
async def test_silences_are_read_one_by_one_and_asked_for_by_etag(wrap):
    bad = [SILENCE | {"silence_id": "all", "matchers": []}, 7, {"silence_id": 8}]
    body = {"silences": [*bad, SILENCE]}
    script = Script(body={"data": body} if wrap else body, headers={"ETag": '"s1"'})
    async with hub_with(script) as hub:
        reply = await hub.silences(None)
        script.answer = (304, b"", {})
        again = await hub.silences(reply.etag)
    assert [silence.silence_id for silence in reply.silences] == ["s1"]
    assert [(one.company_id, one.silence_id, one.errors[0].path) for one in reply.refused] == [
        ("acme", "all", "silences[0].matchers"),
        ("", "", "silences[1]"),
        ("", "", "silences[2].company_id"),
    ]
    assert (reply.etag, again.silences, again.etag) == ('"s1"', None, '"s1"')


@pytest.mark.parametrize("many", [1, 2_000])
async def test_number_of_more_digits_than_python_reads_spoils_its_own_silence(many):
    good = [SILENCE | {"silence_id": f"s{n}"} for n in range(many)]
    body = json.dumps({"silences": [SILENCE | {"company_id": "HUGE"}, *good]})
    script = Script(body=body.replace('"HUGE"', "9" * 5_000).encode())
    async with hub_with(script) as hub:
        reply = await hub.silences(None)
    assert len(reply.silences) == many
    assert [one.errors[0].path for one in reply.refused] == ["silences[0].company_id"]


@pytest.mark.parametrize("body", [b"", b"[]", {"rules": {}}, {"silences": 7}, {"data": []}])
@pytest.mark.parametrize("call", ["rules", "silences"])
async def test_answer_that_holds_no_list_is_temporary(call, body):
    async with hub_with(Script(body=body)) as hub:
        with pytest.raises(TemporaryHubError, match="makes no sense"):
            await getattr(hub, call)(None)
