"""The store in VictoriaMetrics: what it asks, how answers are judged, and what it never tells."""

import gzip
import json
import logging
import random
from collections import Counter
from urllib.parse import parse_qs

import anyio
import cramjam
import httpx
import pytest

from ahcollector import metrics as names
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import NullMetrics
from ahcollector.store import Aggregate
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.store import samples
from ahwire.remote_write_pb2 import WriteRequest

pytestmark = pytest.mark.anyio

SECRET = "canary-password"
NOTHING = {"status": "success", "data": {"resultType": "matrix", "result": []}}
DAY = 86_400_000


class Script:
    """Answers with what it is given, in turn, the last one for ever; keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers) or [(200, NOTHING)]
        self.asked = []

    def __call__(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body, *headers = answer
        content = json.dumps(body).encode() if isinstance(body, dict | list) else body
        return httpx.Response(status, content=content, headers=headers[0] if headers else {})

    def form(self, number=-1):
        found = parse_qs(self.asked[number].content.decode(), strict_parsing=True)
        return {name: value for name, [value] in found.items()}


class Counting(NullMetrics):
    def __init__(self):
        self.counts = Counter()

    def inc(self, metric, amount=1.0, /, **labels):
        self.counts[(metric.name, *labels.values())] += amount


def store_with(script, **options):
    options = {"url": "http://victoria.test/base/", "clock": FakeClock()} | options
    return VictoriaMetricsStore(transport=httpx.MockTransport(script), **options)


def now_ms(store):
    return store._now_ms()


def row(points, name="ah_cpu_percent", **labels):
    return {
        "metric": {"company_id": "acme", "server_id": "web-1", "__name__": name, **labels},
        "values": [[at / 1000, str(value)] for at, value in points],
    }


def matrix(*rows):
    return 200, {"status": "success", "data": {"resultType": "matrix", "result": list(rows)}}


async def calls(store):
    """Every call there is, by name."""
    return {
        "write": lambda: store.write([samples([(now_ms(store), 1.0)])]),
        "range": lambda: store.range("acme", "web-1", "x", start_ms=0, end_ms=0, step_ms=30_000),
        "latest": lambda: store.latest("acme", "web-1"),
        "series": lambda: store.series("acme"),
        "delete_server": lambda: store.delete_server("acme", "web-1"),
        "delete_company": lambda: store.delete_company("acme"),
        "ping": store.ping,
        "check": store.check,
    }


CALLS = ["write", "range", "latest", "series", "delete_server", "delete_company", "ping", "check"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "status", [301, 302, 307, 401, 403, 404, 408, 429, 500, 502, 503, 504, 599]
)
async def test_what_says_nothing_about_the_samples_is_temporary(call, status):
    async with store_with(Script((status, b"<html>", {"Location": "http://evil.test/"}))) as store:
        with pytest.raises(TemporaryStoreError, match=f"answered {status} to"):
            await (await calls(store))[call]()


MARKED = {"X-Server-Hostname": "vm-1"}
LONG = b"cannot   parse\n" + b"x" * 9_000


@pytest.mark.parametrize("call", [name for name in CALLS if name != "ping"])
@pytest.mark.parametrize("status", [400, 405, 415, 422])
@pytest.mark.parametrize(
    ("said", "headers"),
    [
        (LONG, MARKED),
        (b'remoteAddr: "127.0.0.1:4"; requestURI: /; ' + LONG, {}),
        (b'{"status":"error","error":"cannot parse x"}', {}),
    ],
    ids=["header", "text", "json"],
)
async def test_any_other_4xx_is_permanent_and_says_what_the_store_said(call, status, said, headers):
    async with store_with(Script((status, said, headers))) as store:
        with pytest.raises(PermanentStoreError, match=r"it says: .*cannot parse x") as caught:
            await (await calls(store))[call]()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [400, 405, 415, 422])
@pytest.mark.parametrize("said", [b"", b"<html>no", b'{"error":"no"}', b"[" * 4_000], ids=len)
async def test_a_4xx_of_something_in_between_is_temporary(call, status, said):
    """It says nothing about the samples, so they are not set aside for it."""
    async with store_with(Script((status, said))) as store:
        with pytest.raises(TemporaryStoreError, match=f"answered {status}, not by VictoriaMetrics"):
            await (await calls(store))[call]()


@pytest.mark.parametrize("said", [b'unsupported path requested: "/x"', b'missing route for "/x"'])
async def test_a_path_that_it_does_not_have_is_a_fault_of_a_setting(said):
    async with store_with(Script((400, said, MARKED))) as store:
        with pytest.raises(TemporaryStoreError, match="check its url"):
            await store.write([samples([(now_ms(store), 1.0)])])


@pytest.mark.parametrize("call", ["write", "delete_server", "delete_company", "flush", "ping"])
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (200, b"<html>please log in"),
        (200, b"{}"),
        (202, b""),
        (202, b"queued"),
        (201, b""),
        (206, b""),
        (299, b""),
        (200, b"x" * 9_000),
    ],
)
@pytest.mark.parametrize("protocol", ["import", "remote_write"])
async def test_a_success_that_is_not_the_stores_says_nothing(call, status, said, protocol):
    """What is acknowledged for it would be lost, and nobody would know."""
    script = Script((status, said, MARKED))
    if call.startswith("delete"):
        listed = {"status": "success", "data": [{"__name__": "ah_x"}]}
        script = Script((200, b""), (200, listed), (status, said))
    metrics = Counting()
    async with store_with(
        script, write_protocol=protocol, metrics=metrics, response_bytes_max=1_000
    ) as store:
        with pytest.raises(TemporaryStoreError, match="so nothing says that it was done"):
            await ((await calls(store)) | {"flush": store.flush})[call]()
    assert not metrics.counts


@pytest.mark.parametrize("call", ["write", "delete_server"])
async def test_an_empty_success_is_not_the_stores_either(call):
    listed = {"status": "success", "data": []}
    script = (
        Script((200, b"")) if call == "write" else Script((200, b""), (200, listed), (200, b""))
    )
    async with store_with(script) as store:
        with pytest.raises(TemporaryStoreError, match="where VictoriaMetrics answers 204"):
            await (await calls(store))[call]()


async def test_an_answer_to_a_write_that_never_ends_is_not_read():
    async def endless():
        while True:
            yield b"x" * 1_000

    async with store_with(lambda _: httpx.Response(200, content=endless())) as store:
        with pytest.raises(TemporaryStoreError, match="so nothing says"):
            await store.write([samples([(now_ms(store), 1.0)])])


# --- bodies that something in between does not let through


class Narrow:
    """A proxy that lets only so many bytes through, and what is behind it."""

    def __init__(self, most):
        self.most = most
        self.sizes = []
        self.refused = 0
        self.lines = set()

    def __call__(self, request):
        self.sizes.append(len(request.content))
        if len(request.content) > self.most:
            self.refused += 1
            return httpx.Response(413, content=b"<html>413 Request Entity Too Large")
        if request.headers["content-encoding"] == "gzip":
            for line in gzip.decompress(request.content).splitlines():
                found = json.loads(line)
                self.lines |= {(found["metric"]["n"], at) for at in found["timestamps"]}
        else:
            plain = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(request.content)))
            for one in plain.timeseries:
                [name] = [label.value for label in one.labels if label.name == "n"]
                self.lines |= {(name, sample.timestamp) for sample in one.samples}
        return httpx.Response(204)


@pytest.mark.parametrize("protocol", ["import", "remote_write"])
@pytest.mark.parametrize("most", [1_000_000, 20_000, 2_000])
async def test_what_is_too_large_for_a_proxy_goes_in_parts(protocol, most, caplog):
    rng, proxy, clock = random.Random(1), Narrow(most), FakeClock()
    async with store_with(proxy, write_protocol=protocol, clock=clock) as store:
        t = now_ms(store)
        batches = [
            samples([(t + n, rng.random()) for n in range(200)], labels=(("n", str(number)),))
            for number in range(20)
        ]
        await store.write(batches)
        assert proxy.lines == {(str(n), t + at) for n in range(20) for at in range(200)}
        assert ("takes no body of full length" in caplog.text) == bool(proxy.refused)
        refused = proxy.refused
        await store.write(batches)
        assert proxy.refused == refused, "what was learnt is kept for a while"
        proxy.most = 10_000_000
        proxy.sizes.clear()
        await clock.run_for(601)
        await store.write(batches)
        assert len(proxy.sizes) == 1


async def test_one_point_that_is_too_large_waits_for_the_operator():
    proxy = Narrow(10)
    async with store_with(proxy) as store:
        with pytest.raises(TemporaryStoreError, match=r"413.*let what stands in between take"):
            await store.write([samples([(now_ms(store), 1.0)], labels=(("n", "0"),))])
    assert proxy.refused < 20


async def test_a_ping_that_is_refused_says_that_the_store_is_not_there():
    async with store_with(Script((400, b"unsupported path"))) as store:
        with pytest.raises(TemporaryStoreError, match="unsupported path"):
            await store.ping()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "error",
    [httpx.ConnectError("no"), httpx.ReadTimeout("late"), httpx.RemoteProtocolError("cut")],
    ids=lambda error: type(error).__name__,
)
async def test_a_broken_network_is_temporary(call, error):
    async with store_with(Script(error)) as store:
        with pytest.raises(TemporaryStoreError, match="cannot be reached"):
            await (await calls(store))[call]()


async def test_a_call_that_hangs_ends_in_time():
    class Hanging(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            await anyio.sleep_forever()

    store = VictoriaMetricsStore(
        url="http://victoria.test", transport=Hanging(), timeout_seconds=0.01
    )
    with pytest.raises(
        TemporaryStoreError, match=r"no answer to POST /api/v1/import within 0\.01 s"
    ):
        await store.write([samples([(1_700_000_000_000, 1.0)])])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"status":"error"}',
        b'{"status":"success"}',
        b'{"status":"success","data":{"result":7}}',
        b'{"status":"success","data":{"result":[{"metric":{}}]}}',
        b'{"status":"success","data":{"result":[{"metric":[],"value":[1,"2"]}]}}',
        b'{"status":"success","data":{"result":[{"metric":{"a":1},"value":[1,"2"]}]}}',
        b'{"status":"success","data":{"result":[{"metric":{},"value":["x","y"]}]}}',
        b'{"status":"success","data":{"result":[{"metric":{},"value":7}]}}',
        b'{"status":"success","data":{"result":[{"metric":{},"values":[]}]}}',
        b'{"status":"success","data":{"result":[{"metric":{},"value":[1e400,"2"]}]}}',
        b'{"status":"success","data":{"result":[{"metric":{},"value":[NaN,"2"]}]}}',
        b'{"status":"success","data":[7]}',
        b"\xff",
    ],
)
@pytest.mark.parametrize("call", ["range", "latest", "series", "delete_server"])
async def test_an_answer_that_makes_no_sense_is_temporary(call, body):
    async with store_with(Script((200, body))) as store:
        with pytest.raises(TemporaryStoreError, match="makes no sense"):
            await (await calls(store))[call]()


async def test_of_an_answer_only_so_much_is_read():
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 1_000
            yield b"x" * 1_000

    def answer(request):
        return httpx.Response(200, content=endless())

    async with store_with(answer, response_bytes_max=10_000) as store:
        with pytest.raises(PermanentStoreError, match="over 10000 bytes: ask for a shorter range"):
            await store.series("acme")
    assert read <= 12_000


async def test_a_coding_that_nobody_asked_for_is_not_inflated():
    bomb = gzip.compress(b"0" * 1_000_000)
    script = Script((200, bomb, {"Content-Encoding": "gzip"}))
    async with store_with(script, response_bytes_max=10_000) as store:
        with pytest.raises(TemporaryStoreError, match="in coding 'gzip'"):
            await store.series("acme")
    assert script.asked[0].headers["accept-encoding"] == "identity"


# --- writing


async def test_a_write_is_gzip_of_lines():
    script, metrics = Script((204, b"")), Counting()
    async with store_with(script, metrics=metrics) as store:
        t = now_ms(store)
        await store.write([samples([(t, 1.5), (t, float("nan")), (t + 3 * DAY, 1.0)])])
    [request] = script.asked
    assert str(request.url) == "http://victoria.test/base/api/v1/import"
    assert request.headers["content-encoding"] == "gzip"
    [line] = gzip.decompress(request.content).splitlines()
    assert json.loads(line)["values"] == [1.5]
    assert store.dropped == {"non_finite": 1, "in_future": 1}
    assert metrics.counts == {
        (names.TSDB_SAMPLES_WRITTEN.name,): 1,
        (names.TSDB_SAMPLES_DROPPED.name, "non_finite"): 1,
        (names.TSDB_SAMPLES_DROPPED.name, "in_future"): 1,
    }


async def test_a_write_that_fails_counts_nothing_because_it_comes_again():
    """The ledger would have its drops twice."""
    script, metrics = Script((503, b""), (204, b"")), Counting()
    async with store_with(script, metrics=metrics) as store:
        batch = samples([(now_ms(store), 1.0), (now_ms(store), float("inf"))])
        with pytest.raises(TemporaryStoreError):
            await store.write([batch])
        assert not store.dropped
        assert not metrics.counts
        await store.write([batch])
    assert store.dropped == {"non_finite": 1}


async def test_what_the_retention_will_not_keep_is_counted_and_not_sent():
    script = Script((204, b""))
    async with store_with(script, retention_seconds=3_600) as store:
        t = now_ms(store)
        await store.write([samples([(t - 3_600_001, 1.0), (t - 3_600_000, 2.0)])])
        await store.write([samples([(t - 3_600_001, 1.0)])])
    assert len(script.asked) == 1
    assert store.dropped == {"too_old": 2}


async def test_many_samples_are_several_requests():
    script = Script((204, b""))
    async with store_with(script, body_bytes_max=1_000) as store:
        t = now_ms(store)
        await store.write([samples([(t, 1.0)], labels=(("n", str(n)),)) for n in range(30)])
    assert len(script.asked) > 2


@pytest.mark.parametrize(
    "bad",
    [
        samples([(1, 1.0)], company_id=""),
        samples([(1, 1.0)], server_id=""),
        samples([(1, 1.0)], labels=tuple((f"l{n:02}", "v") for n in range(28))),
        samples([(1, 1.0)], labels=(("l", "\ud800"),)),
    ],
    ids=["company", "server", "labels", "surrogate"],
)
async def test_what_is_refused_is_refused_before_any_call(bad):
    """C4."""
    script = Script((204, b""))
    async with store_with(script) as store:
        with pytest.raises(PermanentStoreError):
            await store.write([samples([(now_ms(store), 1.0)]), bad])
    assert script.asked == []


async def test_remote_write_has_its_door_and_its_headers():
    script = Script((204, b""))
    async with store_with(script, write_protocol="remote_write") as store:
        await store.write([samples([(now_ms(store), 1.0)])])
    [request] = script.asked
    assert request.url.path == "/base/api/v1/write"
    assert request.headers["content-encoding"] == "snappy"
    assert request.headers["content-type"] == "application/x-protobuf"


# --- queries


async def test_a_range_asks_for_exact_instants_and_no_cache():
    script = Script(matrix(row([(1_700_000_000_123, 2.5)], zone="a", alpha="b")))
    async with store_with(script) as store:
        [series] = await store.range(
            "acme",
            "web-1",
            "cpu.percent",
            start_ms=1_699_999_940_123,
            end_ms=1_700_000_000_124,
            step_ms=60_000,
            aggregate=Aggregate.MAX,
        )
    assert script.form() == {
        "query": 'max_over_time({__name__="ah_cpu_percent",company_id="acme",server_id="web-1"}'
        "[60000ms])",
        "start": "1699999940.12325",
        "end": "1700000000.12325",
        "step": "60.00025",
        "nocache": "1",
    }
    assert script.asked[0].url.query == b""
    assert series.points == ((1_700_000_000_123, 2.5),)
    assert [name for name, _ in series.labels] == [
        "__name__",
        "company_id",
        "server_id",
        "alpha",
        "zone",
    ]


async def test_a_range_that_ends_now_is_asked_for_beyond_its_end():
    """The store would hide its newest half minute; what was not asked for is left out."""
    async with store_with(Script()) as store:
        t = now_ms(store)
    script = Script(matrix(row([(t, 1.0), (t + 30_000, 9.0)])))
    async with store_with(script) as store:
        [series] = await store.range(
            "acme", "web-1", "x", start_ms=t - 30_000, end_ms=t, step_ms=30_000
        )
    assert series.points == ((t, 1.0),)
    assert script.form()["end"] == "1700000090.00025"


async def test_a_step_below_the_least_is_refused_with_its_value():
    script = Script()
    async with store_with(script) as store:
        with pytest.raises(ValueError, match="step_ms is 29999; it must be at least 30000"):
            await store.range("acme", "web-1", "x", start_ms=0, end_ms=0, step_ms=29_999)
    assert script.asked == []


async def test_sixty_days_come_from_the_hourly_rollups_of_the_long_store():
    script = Script()

    async with store_with(script, long_url="http://long.test") as store:
        t = now_ms(store)
        script.answers = [matrix(row([(t, 3.0)], name="ah_x:1h_max"))]
        [series] = await store.range(
            "acme",
            "web-1",
            "x",
            start_ms=t - 60 * DAY,
            end_ms=t,
            step_ms=DAY,
            aggregate=Aggregate.MAX,
        )
    [request] = script.asked
    assert request.url.host == "long.test"
    assert series.labels[0] == ("__name__", "ah_x"), "whoever asks sees the metric, not the rollup"


async def test_without_rollups_the_samples_answer():
    script = Script()
    async with store_with(script, long_url="http://long.test") as store:
        t = now_ms(store)
        script.answers = [(200, NOTHING), matrix(row([(t, 3.0)]))]
        [series] = await store.range(
            "acme", "web-1", "x", start_ms=t - 60 * DAY, end_ms=t, step_ms=DAY
        )
    assert [request.url.host for request in script.asked] == ["long.test", "victoria.test"]
    assert "ah_x:1h_sum" in script.form(0)["query"]
    assert script.form(1)["query"].startswith('avg_over_time({__name__="ah_x",')
    assert series.points == ((t, 3.0),)


@pytest.mark.parametrize("call", ["range", "latest", "series", "delete_server", "delete_company"])
async def test_a_query_without_a_company_is_refused_before_any_call(call):
    script = Script()
    async with store_with(script) as store:
        asked = {
            "range": lambda: store.range("", "w", "x", start_ms=0, end_ms=0, step_ms=30_000),
            "latest": lambda: store.latest("", "w"),
            "series": lambda: store.series(""),
            "delete_server": lambda: store.delete_server("", "w"),
            "delete_company": lambda: store.delete_company(""),
        }[call]
        with pytest.raises(ValueError, match="company_id is empty"):
            await asked()
        if call == "delete_server":
            with pytest.raises(ValueError, match="server_id is empty"):
                await store.delete_server("acme", "")
    assert script.asked == []


async def test_a_deletion_goes_on_where_nothing_can_be_flushed(caplog):
    """The operator may have locked that door, or a proxy may not have it."""
    listed = {"status": "success", "data": [{"__name__": "ah_x"}, {"__name__": "ah_y"}]}
    script = Script((403, b""), (200, listed), (204, b""), (204, b""))
    async with store_with(script, long_url="http://long.test") as store:
        assert await store.delete_company("acme") == 2
    assert [(one.url.host, one.url.path) for one in script.asked] == [
        ("victoria.test", "/base/internal/force_flush"),
        ("victoria.test", "/base/api/v1/series"),
        ("victoria.test", "/base/api/v1/admin/tsdb/delete_series"),
        ("long.test", "/api/v1/admin/tsdb/delete_series"),
    ]
    assert "may outlive their deletion" in caplog.text


# --- who asks


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({}, None),
        ({"username": "u", "password": SECRET}, "Basic dTpjYW5hcnktcGFzc3dvcmQ="),
        ({"username": "u"}, "Basic dTo="),
        ({"bearer": SECRET}, f"Bearer {SECRET}"),
    ],
    ids=["none", "basic", "no password", "bearer"],
)
async def test_who_asks_shows_it_with_every_call(options, header):
    script = Script((200, NOTHING), (200, b"OK"))
    async with store_with(script, **options) as store:
        await store.latest("acme", "web-1")
        await store.ping()
    assert [request.headers.get("authorization") for request in script.asked] == [header, header]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "victoria:8428"}, "is not an http"),
        ({"url": "ftp://victoria"}, "is not an http"),
        ({"url": "http://victoria/?a=b"}, "is not an http"),
        ({"url": f"http://u:{SECRET}@victoria"}, "give the user in username"),
        ({"long_url": "long"}, "'long' is not an http"),
        ({"password": SECRET}, "password is set without username"),
        ({"username": "a:b", "password": SECRET}, "'a:b' has a colon"),
        ({"bearer": f"{SECRET}\n"}, "characters that no header can carry"),
        ({"bearer": SECRET, "username": "u"}, "are both set"),
        (
            {"write_protocol": "carrier_pigeon"},
            "'carrier_pigeon': it may be import or remote_write",
        ),
    ],
)
async def test_settings_that_cannot_work_are_refused_without_telling_secrets(options, why):
    with pytest.raises(ValueError, match=why) as caught:
        store_with(Script(), **options)
    assert SECRET not in str(caught.value)


async def test_a_missing_ca_file_is_told_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        VictoriaMetricsStore(url="https://victoria.test", tls_ca_file=tmp_path / "none.pem")


async def test_no_log_line_error_or_repr_has_a_secret_or_a_query(caplog):
    caplog.set_level(logging.DEBUG)
    async with store_with(Script((500, b"")), username="u", password=SECRET) as store:
        for call in (await calls(store)).values():
            with pytest.raises(TemporaryStoreError) as caught:
                await call()
            assert SECRET not in str(caught.value)
        assert SECRET not in repr(store)
    assert "api/v1" in caplog.text
    assert "acme" not in "".join(
        record.getMessage() for record in caplog.records if record.name == "httpx"
    )
    assert SECRET not in caplog.text
    assert "Basic" not in caplog.text


@pytest.mark.parametrize("call", ["latest", "series"])
async def test_a_time_that_is_none_makes_no_sense(call):
    kinds = {"latest": ("value", "time"), "series": ("first", "last")}[call]
    rows = [{"metric": {"__ah": kind}, "value": [1, "+Inf"]} for kind in kinds]
    async with store_with(Script((200, matrix(*rows)[1]))) as store:
        with pytest.raises(TemporaryStoreError, match="inf is no time"):
            await {
                "latest": lambda: store.latest("acme", "web-1", since_ms=0),
                "series": lambda: store.series("acme"),
            }[call]()


# --- the check at the start


async def test_a_probe_that_never_shows_is_told_with_the_time_it_had():
    """The page of metrics is locked, and so is the door that would show all at once."""
    script = Script((403, b""), (204, b""), (204, b""), (403, b""), (200, NOTHING))
    clock = FakeClock()
    failed = []

    async with store_with(script, clock=clock) as store, anyio.create_task_group() as tasks:

        async def check():
            with pytest.raises(TemporaryStoreError, match=r"did not show it in 30 s") as caught:
                await store.check()
            failed.append(caught)

        tasks.start_soon(check)
        await clock.run_for(29)
        assert not failed
        await clock.run_for(2)
    assert failed
