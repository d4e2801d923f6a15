"""What a request costs at the doors of other protocols, whether it has points in it or not."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_exports import export, gauge
from remote_write_sender import ONE, TWO, block, headers, message_1, message_2, write
from starlette.requests import ClientDisconnect

from ahcollector._buckets import Buckets
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest import IngestLimits
from ahcollector.ingest._remote_write_bodies import translate_1, translate_2
from ahcollector.ingest._toll import Toll
from ahcollector.testing import FakeClock
from ahwire.limits import Limits
from ahwire.remote_write_pb2 import Request
from ahwire.status import Code

pytestmark = pytest.mark.anyio

KIB = 1 << 10
MIB = 1 << 20
PER_MINUTE = 6000
LIMITS = IngestLimits(points_per_minute=PER_MINUTE, batch=Limits(points_per_batch=1000))


def toll(rate, clock, limits=LIMITS):
    return Toll(rate=rate, agent_id="agent-1", clock=clock, limits=limits)


requests = st.tuples(
    st.floats(0, 20),  # seconds since the one before
    st.integers(0, 8 * MIB),
    st.integers(0, 1000),
    st.sampled_from([None, Code.BAD_REQUEST, Code.TOO_LARGE]),
)


@given(sent=st.lists(requests, max_size=40))
def test_what_is_done_for_an_agent_is_bounded_by_its_rate_whatever_it_sends(sent):
    clock, rate = FakeClock(1_790_000_000.0), Buckets()
    stored_bytes = refused_bytes = points_taken = inflated = 0
    seconds = 0.0
    for wait, body_bytes, points, refused in sent:
        clock.advance(wait)
        seconds += wait
        one = toll(rate, clock)
        try:
            one.enter()
            inflated += body_bytes // (16 * KIB)
            one.read(body_bytes)
            if refused is None:
                one.understood(points)
        except RequestRefusedError as refusal:
            one.refused(refusal.code)
            continue
        # What alone costs more than can come at once counts as that much.
        if refused is None:
            points_taken += points
            stored_bytes += min(body_bytes, PER_MINUTE * KIB)
        else:
            one.refused(refused)
            refused_bytes += min(body_bytes, PER_MINUTE * 256)
    most = PER_MINUTE * (1 + seconds / 60) + 1
    assert points_taken <= most
    assert stored_bytes <= most * KIB
    assert refused_bytes <= most * 256
    # The last may be owed.
    assert inflated <= most + 8 * MIB // (16 * KIB)


@given(
    body_bytes=st.integers(0, 8 * MIB),
    points=st.integers(0, 1000),
    code=st.sampled_from([Code.UNAVAILABLE, Code.RATE_LIMITED, Code.TIMEOUT]),
)
def test_what_comes_again_costs_no_more_than_to_have_been_inflated(body_bytes, points, code):
    clock, rate = FakeClock(1_790_000_000.0), Buckets()
    one = toll(rate, clock)
    one.enter()
    one.read(body_bytes)
    one.understood(points)
    one.refused(code)
    left = PER_MINUTE - body_bytes // (16 * KIB)
    assert not rate.take(
        "agent-1", now=clock.monotonic(), per_second=1.0, burst=PER_MINUTE, amount=left
    )


@pytest.mark.parametrize("code", [Code.BAD_REQUEST, Code.TOO_LARGE, Code.TIMEOUT])
@pytest.mark.parametrize("wait_seconds", [0.0, 0.02])
def test_bodies_that_are_not_read_to_their_end_cost_what_full_ones_do(code, wait_seconds):
    """Also for who has next to nothing left: it was once enough for a bomb that cost 1."""
    clock, rate = FakeClock(1_790_000_000.0), Buckets()
    begun = 0
    for _ in range(1_000):
        clock.advance(wait_seconds)
        one = toll(rate, clock)
        try:
            one.enter()
        except RequestRefusedError:
            continue
        begun += 1
        one.refused(code)
    # 513 each, of 6,000 at once and 100 a second; the last may be owed.
    assert 11 <= begun <= (PER_MINUTE + 100 * 1_000 * wait_seconds) // 513 + 1


def test_who_has_nothing_left_pays_for_what_is_inflated_and_then_over_the_rate():
    clock, rate = FakeClock(1_790_000_000.0), Buckets()
    rate.take("agent-1", now=clock.monotonic(), per_second=100.0, burst=PER_MINUTE, amount=5_999)
    one = toll(rate, clock)
    one.enter()
    with pytest.raises(RequestRefusedError) as refusal:
        one.read(8 * MIB)
    one.refused(refusal.value.code)
    clock.advance(5.0)  # 500 of the 511 that are owed
    with pytest.raises(RequestRefusedError):
        toll(rate, clock).enter()
    clock.advance(0.13)
    toll(rate, clock).enter()


async def test_a_sender_that_goes_away_in_its_body_pays_for_what_may_have_been_inflated(make_world):
    world = make_world(limits=IngestLimits(points_per_minute=600, batch=Limits(points_per_batch=1)))
    world.hub.active("agent-1", world.token)
    good = message_1(({"__name__": "m"}, [(world.now_ms, 1.0)]))

    async def cut():
        yield block(good)
        raise ClientDisconnect

    for status in (400, 400, 503):
        response = await world.client.post(
            "/api/v1/write", content=cut(), headers=headers(world.token)
        )
        assert response.status_code == status


def without_samples(message):
    labels = {f"label_{number}": "x" * 20 for number in range(10)}
    return message(*[({"__name__": f"m{at}", **labels}, []) for at in range(100)])


def junk(_message):
    return b"\xff" * 50_000


@pytest.mark.parametrize("make", [without_samples, junk], ids=["no samples", "refused"])
@pytest.mark.parametrize(
    ("content_type", "message"), [(ONE, message_1), (TWO, message_2)], ids=["1.0", "2.0"]
)
async def test_no_body_is_free(make_world, make, content_type, message):
    limits = IngestLimits(points_per_minute=200, batch=Limits(points_per_batch=200))
    world = make_world(limits=limits)
    world.hub.active("agent-1", world.token)
    body = make(message)
    found = [(await write(world, body, content_type)).status_code for _ in range(60)]
    assert found[0] == (204 if make is without_samples else 400)
    assert found[-1] == 503
    world.clock.advance(60)
    good = message(({"__name__": "m"}, [(world.now_ms, 1.0)]))
    assert (await write(world, good, content_type)).status_code == 204


async def test_an_export_without_points_is_not_free(make_world):
    limits = IngestLimits(points_per_minute=20, batch=Limits(points_per_batch=20))
    world = make_world(limits=limits)
    world.hub.active("agent-1", world.token)
    body = export(*[gauge(f"metric.of.no.point.{at}") for at in range(20)]).SerializeToString()
    statuses = [
        (
            await world.client.post(
                "/v1/metrics",
                content=body,
                headers={
                    "Authorization": f"Bearer {world.token}",
                    "Content-Type": "application/x-protobuf",
                },
            )
        ).status_code
        for _ in range(25)
    ]
    assert (statuses[0], statuses[-1]) == (200, 503)


async def test_who_is_over_the_rate_is_answered_before_a_byte_is_read(make_world):
    limits = IngestLimits(points_per_minute=2, batch=Limits(points_per_batch=2))
    world = make_world(limits=limits)
    world.hub.active("agent-1", world.token)
    good = message_1(({"__name__": "m"}, [(world.now_ms, 1.0)] * 2))
    assert (await write(world, good)).status_code == 204
    read = []

    async def body():
        read.append(1)
        yield block(good)

    response = await world.client.post(
        "/api/v1/write", content=body(), headers=headers(world.token)
    )
    assert (response.status_code, response.headers["x-ah-code"]) == (503, "rate_limited")
    assert int(response.headers["retry-after"]) > 0
    assert read == []


async def test_metadata_of_an_ordinary_prometheus_passes_beside_its_samples(world):
    """Once a minute, some thousand metrics in two requests; what they cost is not felt."""
    metadata = message_1(metadata=[f"metric_of_some_length_{at}" for at in range(1000)])
    samples = message_1(
        *[({"__name__": f"m{at}", "job": "x"}, [(world.now_ms, 1.0)]) for at in range(2000)]
    )
    for body in [metadata, metadata, *[samples] * 49]:
        assert (await write(world, body)).status_code == 204


class Carried(SimpleNamespace):
    """A series of which nobody may read the labels."""

    samples = histograms = exemplars = ()

    @property
    def labels(self):
        raise AssertionError("read")

    labels_refs = labels


def test_labels_of_a_series_without_samples_are_not_read():
    one = translate_1(SimpleNamespace(timeseries=[Carried()]), limits=Limits(), bytes_max=1000)
    assert not one.batch.series


def test_symbols_that_only_series_without_samples_name_are_no_fault():
    body = message_2(({"__name__": "m", "l": "x" * 5000, "n" * 300: "x"}, []))
    two = translate_2(Request.FromString(body), limits=Limits(), bytes_max=1000)
    assert (two.batch.series[:], two.refused) == ([], ())
