"""C1 to C7 at the remote write door: bodies that mean harm, and harmless ones that look like it."""

import math
import subprocess
import sys
import tracemalloc

import anyio
import cramjam
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from remote_write_sender import (
    ONE,
    TWO,
    block,
    chunk,
    headers,
    message_1,
    message_2,
    sample,
    varint,
    write,
)

from ahcollector.ingest._snappy import inflate
from ahcollector.store.memory import MemoryStore
from ahwire import BadBodyError, TooLargeError
from ahwire.remote_write_pb2 import WriteRequest

pytestmark = pytest.mark.anyio

MIB = 1 << 20
PLAIN_MAX = 8 * MIB


def copies(count):
    """Elements that repeat a byte: 64 bytes for 3."""
    return b"\x00x" + b"\xfe\x01\x00" * count


BOMB = varint(1 + 64 * 340_000) + copies(340_000)  # 1 MiB that holds 21 MiB
LYING = {
    "4 GiB": varint(2**32 - 1) + copies(10),
    "over 32 bits": varint(2**32) + copies(10),
    "more than a limit": varint(PLAIN_MAX + 1) + copies(340_000),
}


async def post(world, body, content_type=ONE, token=None, **more):
    return await world.client.post(
        "/api/v1/write",
        content=body,
        headers=headers(token or world.token, content_type, **more),
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (BOMB, 413),
        (LYING["4 GiB"], 413),
        (LYING["over 32 bits"], 400),
        (LYING["more than a limit"], 413),
        (varint(PLAIN_MAX) + copies(10), 400),
        (bytes(MIB + 1), 413),
    ],
    ids=["bomb", "4 GiB", "over 32 bits", "over the limit", "cannot hold it", "over 1 MiB"],
)
async def test_c1_a_bomb_is_judged_by_what_it_declares_and_never_inflated(world, body, status):
    await post(world, block(message_1()))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        response = await post(world, body)
        grown = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert response.status_code == status
    # What arrives is held, at most 1 MiB and a copy, and nothing of what is declared.
    assert grown <= 4 * MIB


async def test_c1_an_unknown_token_is_answered_before_a_byte_is_read(world):
    read = []

    async def body():
        read.append(1)
        yield BOMB

    response = await post(world, body(), token="nobody")
    assert response.status_code == 401
    assert read == []


async def test_c1_a_declared_length_over_the_limit_is_refused_unread(world):
    read = []

    async def body():
        read.append(1)
        yield b"x"

    response = await post(world, body(), Content_Length="99999999")
    assert response.status_code == 413
    assert read == []


async def test_c1_an_endless_body_without_a_length_is_bounded(world):
    sent = []

    async def endless():
        for number in range(100):
            sent.append(number)
            yield bytes(100_000)

    response = await post(world, endless())
    assert response.status_code == 413
    assert len(sent) <= 12


GOOD = message_1(({"__name__": "m", "job": "x"}, [(1_790_000_000_000, 1.0)]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"\xff" * 10,
        b"\x80",
        block(GOOD)[:-1],
        block(GOOD)[: len(block(GOOD)) // 2],
        block(GOOD)[:1],
        block(GOOD) + b"x",
        b"\x00x",
        varint(len(GOOD) + 1) + block(GOOD)[1:],
        varint(len(GOOD) - 1) + block(GOOD)[1:],
        varint(5) + b"\x01\x05",
        GOOD,
        bytes(cramjam.snappy.compress(GOOD)),
        bytes(cramjam.gzip.compress(GOOD)),
        block(b"\xff\xff\xff\xff"),
        block(b"\x0a\x7f" + GOOD[:20]),
        block(b"{}"),
        block(b"\x00" * 100),
    ],
    ids=[
        "empty",
        "no varint",
        "endless varint",
        "cut varint",
        "cut",
        "half",
        "length alone",
        "trailing",
        "nothing and more",
        "declares one more",
        "declares one less",
        "copies from nowhere",
        "no snappy",
        "snappy of frames",
        "gzip",
        "no protobuf",
        "cut protobuf",
        "JSON",
        "zeros",
    ],
)
async def test_c1_broken_bodies_are_400_and_the_next_is_taken(world, body):
    response = await post(world, body)
    assert response.status_code == 400
    assert response.headers["x-ah-code"] == "bad_request"
    assert response.text.isprintable()
    assert (await write(world, GOOD)).status_code == 204


@pytest.mark.parametrize("coding", ["br", "gzip", "zstd", "snappy, snappy", "x-snappy-framed"])
async def test_c1_other_codings_are_415(world, coding):
    response = await post(world, block(GOOD), Content_Encoding=coding)
    assert response.status_code == 415


@given(plain=st.binary(max_size=2000), most=st.integers(0, 3000))
@example(plain=b"", most=0)
@example(plain=bytes(2000), most=2000)
@example(plain=bytes(2001), most=2000)
def test_c1_inflating_gives_back_what_was_packed_or_refuses_what_is_over(plain, most):
    if len(plain) > most:
        with pytest.raises(TooLargeError):
            inflate(block(plain), most)
    else:
        assert inflate(block(plain), most) == plain


@given(body=st.binary(max_size=200))
@example(body=b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 10)
def test_c1_inflating_junk_gives_at_most_the_limit_or_a_clear_error(body):
    try:
        made = inflate(body, 100)
    except (TooLargeError, BadBodyError) as error:
        said = str(error)
    else:
        assert len(made) <= 100
        return
    assert "send" in said or "use" in said


def repeated(piece, size):
    return piece * (size // len(piece))


FULL = PLAIN_MAX - 64
MANY = {
    "empty series": (ONE, repeated(b"\x0a\x00", FULL)),
    "empty labels": (ONE, chunk(1, repeated(b"\x0a\x00", FULL - 8))),
    "empty samples": (ONE, chunk(1, repeated(b"\x12\x00", FULL - 8))),
    "a million labels": (ONE, chunk(1, b"\x0a\x06\x0a\x01a\x12\x01b" * 1_000_000)),
    "empty metadata": (ONE, repeated(b"\x1a\x00", FULL)),
    "empty symbols": (TWO, repeated(b"\x22\x00", FULL)),
    "empty series of 2.0": (TWO, repeated(b"\x2a\x00", FULL)),
    "packed references": (TWO, chunk(5, chunk(1, repeated(b"\x01", FULL - 16)))),
    "references one by one": (TWO, chunk(5, repeated(b"\x08\x01", FULL - 8))),
}


@pytest.mark.parametrize("case", MANY)
async def test_a_million_pieces_are_refused_unparsed(world, case):
    content_type, body = MANY[case]
    response = await write(world, body, content_type)
    assert (response.status_code, response.headers["x-ah-code"]) == (413, "too_large")


async def test_a_million_pieces_with_tags_written_at_length_are_refused_unparsed(world):
    body = repeated(b"\x8a\x80\x80\x80\x00\x80\x00", FULL)
    response = await write(world, body)
    assert (response.status_code, response.headers["x-ah-code"]) == (400, "bad_request")
    assert "no readable WriteRequest" in response.text


def series_of_symbols(references, ts_ms, samples=1):
    return chunk(
        5, chunk(1, b"".join(map(varint, references))) + chunk(2, sample(ts_ms, 1.0)) * samples
    )


def table(*texts):
    return b"".join(chunk(4, text) for text in ("", "__name__", "m", *texts))


def amplified(ts_ms):
    """Bodies of 2.0 of some hundred KiB that stand for gigabytes."""
    own, huge = [1, 2], [1, 2, 3, 4]
    return {
        "many series of a long text": table("n", "x" * 1000)
        + series_of_symbols(huge, ts_ms) * 20_000,
        "many labels of a long text": table(*(f"n{number}" for number in range(26)), "x" * 1000)
        + series_of_symbols(own + [text for name in range(3, 29) for text in (name, 29)], ts_ms)
        * 2_000,
    }


@pytest.mark.parametrize("case", ["many series of a long text", "many labels of a long text"])
async def test_what_symbols_stand_for_is_counted_before_it_is_copied(world, case):
    body = amplified(world.now_ms)[case]
    assert len(body) < PLAIN_MAX
    tracemalloc.start()
    try:
        response = await write(world, body, TWO)
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (response.status_code, response.headers["x-ah-code"]) == (413, "too_large")
    assert "over 8388608 bytes of names and labels: send less at once" in response.text
    assert grown < 24 * MIB
    assert world.bus.batches == []


async def test_symbols_too_long_for_their_place_refuse_their_series_and_no_other(world):
    now = world.now_ms
    texts = ("n", "x" * 1024, "x" * 1025, "n" * 201, "é" * 512 + "x", "company_id", "x" * 6_000_000)
    n, fits, over, long_name, wide, reserved, huge = range(3, 10)
    rows = [
        ([1, 2, n, fits], True),
        ([1, 2, n, over], False),
        ([1, long_name], False),
        ([1, 2, long_name, n], False),
        ([1, 2, n, wide], False),
        ([1, 2, n, huge], False),
        ([1, 2, reserved, huge], True),
    ]
    body = table(*texts) + b"".join(series_of_symbols(row, now) for row, _ in rows)
    response = await write(world, body, TWO)
    assert response.status_code == 400
    assert response.text.startswith("5 of 7 points refused")
    assert "too_long" in response.text
    (batch,) = world.bus.batches
    assert [dict(one.labels).get("n") for one in batch.series] == ["x" * 1024, None]
    assert 'dropped_points_total{code="too_long"} 5.0' in world.metrics.exposition().decode()


@pytest.mark.parametrize("case", ["many series", "one series"])
async def test_a_long_symbol_named_a_million_times_costs_no_more_than_its_body(world, case):
    """Some KiB that killed the process: they stood for gigabytes."""
    now, text = world.now_ms, "x" * 6_000_000
    row, times = ([1, 2, 3, 4], 20_000) if case == "many series" else ([1, 2, *[3, 4] * 100_000], 1)
    body = table("n", text) + series_of_symbols(row, now) * times
    assert len(block(body)) < MIB
    tracemalloc.start()
    try:
        response = await write(world, body, TWO)
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert response.status_code == 400
    code = "too_long" if case == "many series" else "too_many_labels"
    assert f"({code}, {times} point" in response.text
    assert grown < 48 * MIB
    assert world.bus.batches == []


@pytest.mark.parametrize("content_type", [ONE, TWO])
async def test_a_series_with_several_times_the_labels_is_refused_and_no_other(world, content_type):
    now = world.now_ms
    message = message_1 if content_type == ONE else message_2

    def named(name, labels):
        return ({"__name__": name, **{f"l{at}": "" for at in range(labels)}}, [(now, 1.0)])

    response = await write(world, message(named("fits", 54), named("wide", 55)), content_type)
    assert response.status_code == 400
    assert "'wide': it has too many labels: drop some" in response.text
    assert "(too_many_labels, 1 point)" in response.text
    ((series,),) = [batch.series for batch in world.bus.batches]
    assert series.labels[0] == ("__name__", "ah_fits")


CHILD = """
import resource, sys
import anyio
from starlette.requests import Request
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest import IngestLimits
from ahcollector.ingest._body import BodyReader
from ahcollector.ingest._remote_write import RemoteWriteDoor

content_type, body = sys.argv[1], sys.stdin.buffer.read()

class Door:
    async def take(self, request, translate):
        await translate(request, lambda size: None)

async def receive():
    return {"type": "http.request", "body": body, "more_body": False}

async def main():
    headers = [(b"content-type", content_type.encode()), (b"content-encoding", b"snappy")]
    request = Request({"type": "http", "headers": headers}, receive)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        door = RemoteWriteDoor(door=Door(), reader=BodyReader(), limits=IngestLimits())
        await door.write(request)
    except RequestRefusedError as refusal:
        print(refusal.code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

anyio.run(main)
"""


@pytest.mark.parametrize(
    "case", ["empty metadata", "a million labels", "empty series of 2.0", "packed references"]
)
def test_a_million_pieces_cost_the_process_no_more_than_their_own_bytes(case):
    content_type, body = MANY[case]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, content_type],
        input=block(body),
        capture_output=True,
        check=True,
        timeout=60,
    )
    code, grown_kib = done.stdout.split()
    assert code == b"too_large"
    # The plain body twice, while it is copied out, and some; parsed it would be 60 to 310 MiB.
    assert int(grown_kib) <= 24 << 10


async def test_long_honest_bodies_are_taken(world):
    now = world.now_ms
    wide = {f"label_{number:02}": "v" * 100 for number in range(26)}
    sent = [({"__name__": f"m{number}", **wide}, [(now, 1.0)]) for number in range(2000)]
    for content_type, message in ((ONE, message_1), (TWO, message_2)):
        assert (await write(world, message(*sent), content_type)).status_code == 204


@pytest.mark.parametrize("piece", [b"ab\xff\xfe", "äö".encode()[:3] + b"a"])
async def test_c2_invalid_utf8_is_400_never_500(world, piece):
    for content_type, message in ((ONE, message_1), (TWO, message_2)):
        body = message(({"__name__": "m", "k": "abcd"}, [(world.now_ms, 1.0)]))
        response = await write(world, body.replace(b"abcd", piece), content_type)
        assert response.status_code == 400
        assert response.headers["x-ah-code"] == "bad_request"
    assert world.bus.batches == []


async def test_c3_of_all_values_the_finite_are_stored(world):
    now = world.now_ms
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 1.0]
    sent = [(now + place, value) for place, value in enumerate(values)]
    response = await write(world, message_1(({"__name__": "m"}, sent)))
    assert response.status_code == 400
    assert "not_finite, 2 points" in response.text
    (series,) = world.bus.batches[0].series
    assert series.points == tuple(sent[3:])


async def test_c4_labels_names_and_values_at_their_limits_and_over(world):
    now = world.now_ms
    fits = {f"l{number:02}": "x" for number in range(27)}
    sent = [
        ({"__name__": "fits", **fits}, [(now, 1.0)]),
        ({"__name__": "wide", **fits, "l27": "x"}, [(now, 1.0)]),
        ({"__name__": "n" * 200}, [(now, 1.0)]),
        ({"__name__": "n" * 201}, [(now, 1.0)]),
        ({"__name__": "m", "l": "é" * 512}, [(now, 1.0)]),
        ({"__name__": "m", "l": "é" * 512 + "x"}, [(now, 1.0)]),
        ({"__name__": "m", "l" * 201: "x"}, [(now, 1.0)]),
        ({"__name__": "m", "l": "a\0b"}, [(now, 1.0)]),
    ]
    response = await write(world, message_1(*sent))
    assert response.status_code == 400
    assert response.text.startswith("5 of 8 points refused")
    (batch,) = world.bus.batches
    assert len(batch.series) == 3


RESERVED = ("company_id", "server_id", "agent_id", "vm_account_id", "vm_project_id")
SPELLED = [
    spelled
    for name in RESERVED
    for spelled in (
        name,
        name.title(),
        name.upper(),
        name.replace("_", "-"),
        name.replace("_", "é"),
    )
]
label_names = st.sampled_from([*SPELLED, "", "__x__", "__name__", "a", "A", "0"]) | st.text(
    max_size=10
)
label_values = st.sampled_from(["globex", 'x",company_id="globex', "}", ""]) | st.text(max_size=9)


# The fixture is a class, so the examples share nothing.
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(labels=st.lists(st.tuples(label_names, label_values), max_size=30))
@example(labels=[(name, "globex") for name in SPELLED])
@example(labels=[("__name__", 'm{company_id="globex"}'), ("__name__", "n")])
def test_c5_no_company_reads_what_anothers_sender_wrote(make_world, labels):
    async def scenario():
        for content_type, message in ((ONE, message_1), (TWO, message_2)):
            world = make_world()
            world.hub.active("agent-1", world.token)
            store = MemoryStore(clock=world.clock)
            points = [(world.now_ms, 1.0)]
            body = message(([("__name__", "plain")], points), (labels, points))
            response = await write(world, body, content_type)
            assert response.status_code in {204, 400}
            await store.write(world.bus.batches)
            for batch in world.bus.batches:
                for series in batch.series:
                    stored = dict(series.labels)
                    assert len(stored) == len(series.labels) <= 30
                    assert (stored["company_id"], stored["server_id"]) == ("acme", "web-1")
                    assert not any(
                        name.lower() in {"agent_id", "vm_account_id", "vm_project_id"}
                        for name in stored
                    )
            for company in ("globex", "", "ACME"):
                assert await store.series(company) == []
            assert await store.latest("acme", "web-1", since_ms=0) != []

    anyio.run(scenario)


@pytest.mark.parametrize("content_type", [ONE, TWO])
async def test_c6_the_same_body_three_times_is_one_sample_in_the_store(world, content_type):
    message = message_1 if content_type == ONE else message_2
    body = message(({"__name__": "m"}, [(world.now_ms, 1.0)]))
    for _ in range(3):
        assert (await write(world, body, content_type)).status_code == 204
    store = MemoryStore(clock=world.clock)
    await store.write(world.bus.batches)
    assert store.points == 1


async def test_c7_the_edges_of_the_time_window_are_exact_and_a_wrong_unit_is_named(world):
    now = world.now_ms
    day, five = 24 * 3600_000, 300_000
    stamps = [now - day, now - day - 1, now + five, now + five + 1, 0, -1, 2**63 - 1, -(2**63)]
    response = await write(
        world, message_1(({"__name__": "m"}, [(ts_ms, 1.0) for ts_ms in stamps]))
    )
    assert response.status_code == 400
    assert "too_old, 4 points" in response.text
    assert "in_future, 2 points" in response.text
    (series,) = world.bus.batches[0].series
    assert series.points == ((now - day, 1.0), (now + five, 1.0))
    for wrong, unit in [(now // 1000, "seconds"), (now * 10**6, "nanoseconds")]:
        response = await write(world, message_1(({"__name__": "m"}, [(wrong, 1.0)])))
        assert f"looks like {unit}" in response.text


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), content_type=st.sampled_from([ONE, TWO]))
def test_no_body_makes_the_door_fail(make_world, data, content_type):
    """Good bodies with bytes changed, and junk: an answer of the table, and never a 500."""
    message = message_1 if content_type == ONE else message_2
    good = message(
        ({"__name__": "m", "a": "b"}, [(1_790_000_000_000, 1.0)], 1, 1),
        ({"__name__": "n"}, [(1_790_000_000_000, 2.0)]),
    )
    plain = bytearray(data.draw(st.just(good) | st.binary(max_size=60)))
    for place in data.draw(st.lists(st.integers(0, max(0, len(plain) - 1)), max_size=4)):
        if plain:
            plain[place] = data.draw(st.integers(0, 255))

    async def scenario():
        world = make_world()
        world.hub.active("agent-1", world.token)
        response = await write(world, bytes(plain), content_type)
        assert response.status_code in {204, 400}, response.text

    anyio.run(scenario)


def test_the_sender_of_these_tests_writes_what_the_schema_says():
    body = message_1(({"__name__": "m"}, [(-1, 2.0)], 1, 1), metadata=["m"])
    message = WriteRequest.FromString(body)
    assert message.SerializeToString(deterministic=True)
    assert message.timeseries[0].samples[0].timestamp == -1
    assert sample(-1, 2.0) in body
