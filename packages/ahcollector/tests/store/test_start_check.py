"""Whether the door and VictoriaMetrics' limits fit together, before a byte is written."""

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.bus import SampleBatch
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.store._lines import SERIES_BYTES_MAX, check_labels, series_bytes
from ahcollector.store._start_check import Probe, StartCheck, check_limits
from ahcollector.store.base import RangeSeries
from ahcollector.testing import FakeClock
from ahwire.limits import DEFAULT, Limits

NOW = 1_796_000_000_000
DAY = 86_400.0


def test_the_protocols_limits_fit():
    check_limits(DEFAULT, held_seconds=7_200, retention_seconds=31 * DAY)
    check_limits(DEFAULT)


@pytest.mark.parametrize(
    ("changed", "options", "why"),
    [
        ({"labels_per_series": 28}, {}, "31 with its name and tenant, over 30"),
        ({"name_bytes": 257}, {}, "over 256: lower ingest.name_bytes_max"),
        ({"label_value_bytes": 4_097}, {}, "over 4096: lower ingest.label_value_bytes_max"),
        ({"label_value_bytes": 1_200}, {}, "over 64000: lower ingest.label_value_bytes_max"),
        ({"point_future_seconds": 2 * DAY + 1}, {}, "lower ingest.point_future_seconds_max"),
        ({}, {"retention_seconds": DAY}, "lower ingest.point_age_hours_max"),
        ({}, {"retention_seconds": 1.1 * DAY, "held_seconds": 0.2 * DAY}, "103680 s old"),
    ],
)
def test_a_door_that_takes_more_is_refused_with_the_way_out(changed, options, why):
    """C4, C7."""
    with pytest.raises(PermanentStoreError, match="the door takes what") as caught:
        check_limits(attrs.evolve(DEFAULT, **changed), **options)
    assert why in str(caught.value)


@given(
    labels=st.integers(1, 40),
    name_bytes=st.integers(16, 300),
    value_bytes=st.integers(16, 5_000),
)
def test_what_the_limits_allow_the_writer_takes(labels, name_bytes, value_bytes):
    """C4: no series within the door's limits is refused later, when it was acknowledged."""
    limits = Limits(labels_per_series=labels, name_bytes=name_bytes, label_value_bytes=value_bytes)
    probe = Probe(limits=limits)
    batch = SampleBatch(
        company_id=probe.company_id,
        server_id=probe.server_id,
        agent_id="agent-1",
        request_id="00000000000000aa",
        received_at_ms=NOW,
        series=(probe.series(probe.points(NOW, held_seconds=0)),),
    )
    try:
        check_limits(limits)
    except PermanentStoreError:
        return
    check_labels(batch)
    assert series_bytes(probe.labels) <= SERIES_BYTES_MAX


@given(limits=st.sampled_from([DEFAULT, Limits(labels_per_series=3, label_value_bytes=64)]))
def test_the_probe_is_the_longest_series_and_the_widest_time(limits):
    probe = Probe(limits=limits)
    own = probe.labels[3:]
    assert len(own) == limits.labels_per_series
    assert {len(name) for name, _ in own} == {limits.name_bytes}
    assert {len(value.encode()) for _, value in own} == {limits.label_value_bytes}
    assert len(probe.company_id) == len(probe.server_id) == 128
    assert len(probe.labels[0][1]) == limits.name_bytes + len("ah_")
    times = [timestamp_ms for timestamp_ms, _ in probe.points(NOW, held_seconds=60)]
    assert times == sorted(set(times))
    assert 0 <= NOW - (limits.point_age_seconds + 60 + 60) * 1_000 - times[0] < 1_000
    assert 0 <= times[-1] - (NOW + limits.point_future_seconds * 1_000) < 1_000
    assert all(0 < NOW - near < 120_000 for near in times[1:-1])


class Keeper:
    """A store that shows the probe as it likes."""

    def __init__(self, change):
        self.change = change
        self.written = None

    async def write(self, series):
        [self.written] = series

    async def samples(self, expression, at_ms):
        series = self.written
        return [RangeSeries(labels=series.labels, points=tuple(self.change(series.points * 2)))]

    async def flush(self):
        pass

    async def page(self):
        raise TemporaryStoreError("locked")

    async def check(self):
        clock = FakeClock()
        check = StartCheck(
            write=self.write,
            flush=self.flush,
            samples=self.samples,
            page=self.page,
            clock=clock,
            limits=DEFAULT,
            held_seconds=0.0,
            retention_seconds=None,
            line_bytes_max=0,
            body_bytes_max=0,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.run_for, 5)
            try:
                return await check.run(timeout_seconds=30.0)
            except PermanentStoreError as error:
                return error


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda points: points[1:5], "over 86400 s old"),
        (lambda points: points[0:4], "300 s ahead"),
        (lambda points: [points[0], points[4]], "the newest samples"),
        (
            lambda points: [(at, 553.0 if value == 3.0 else value) for at, value in points],
            "shows 553 where 3 was written",
        ),
    ],
)
async def test_what_is_read_back_otherwise_is_an_error(change, why):
    found = await Keeper(change).check()
    assert isinstance(found, PermanentStoreError)
    assert why in str(found)


@pytest.mark.anyio
async def test_what_is_read_back_twice_or_not_at_all_is_a_warning():
    [warning] = await Keeper(lambda points: points).check()
    assert "counts a sample that is written again once more" in warning
    [warning] = await Keeper(lambda points: [points[0], *points[3:5]]).check()
    assert "only one of several samples" in warning
    assert await Keeper(lambda points: points[:5]).check() == ()
