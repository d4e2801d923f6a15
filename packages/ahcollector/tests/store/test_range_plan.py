"""From what a range is answered, at the edges."""

import json
from urllib.parse import parse_qs

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.store import Aggregate
from ahcollector.store._range_plan import Source, range_expression, range_sources
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing import FakeClock

NOW = 1_796_000_000_000
DAY = 86_400_000
MINUTE = 60_000
HOUR = 3_600_000
RAW, FIVE, LONG = Source.RAW, Source.FIVE_MINUTES, Source.HOUR


@pytest.mark.parametrize(
    ("age_ms", "step_ms", "expected"),
    [
        (-MINUTE, HOUR, [RAW]),
        (HOUR, 30_000, [RAW]),
        (7 * DAY, 24 * HOUR, [RAW]),
        (7 * DAY + 1, 5 * MINUTE, [FIVE, RAW]),
        (7 * DAY + 1, 5 * MINUTE - 1, [RAW]),
        (30 * DAY, 24 * HOUR, [FIVE, RAW]),
        (30 * DAY + 1, HOUR, [LONG, RAW]),
        (30 * DAY + 1, HOUR - 1, [FIVE, RAW]),
        (30 * DAY + 1, 5 * MINUTE - 1, [RAW]),
        (60 * DAY, 8 * HOUR, [LONG, RAW]),
        (3_650 * DAY, 10 * DAY, [LONG, RAW]),
    ],
)
def test_the_age_of_the_beginning_and_the_step_choose_the_source(age_ms, step_ms, expected):
    found = range_sources(
        start_ms=NOW - age_ms, step_ms=step_ms, aggregate=Aggregate.AVG, now_ms=NOW
    )
    assert list(found) == expected


@given(
    age_ms=st.integers(0, 3_650 * DAY),
    step_ms=st.integers(1_000, 30 * DAY),
    aggregate=st.sampled_from(list(Aggregate)),
)
def test_a_rollup_is_never_coarser_than_the_step_and_samples_are_always_the_last_resort(
    age_ms, step_ms, aggregate
):
    found = range_sources(start_ms=NOW - age_ms, step_ms=step_ms, aggregate=aggregate, now_ms=NOW)
    assert found[-1] is RAW
    assert FIVE not in found or step_ms >= 5 * MINUTE
    assert LONG not in found or step_ms >= HOUR
    assert aggregate is not Aggregate.LAST or found == (RAW,), "rollups have no newest value"


def answers_every_step(request):
    """Answer as VictoriaMetrics does for a series that has a sample in each step."""
    form = {name: value for name, [value] in parse_qs(request.content.decode()).items()}
    start, end, step = (int(float(form[name]) * 1_000) for name in ("start", "end", "step"))
    values = [[at / 1_000, "1"] for at in range(start, end + 1, step)]
    result = [{"metric": {"company_id": "acme"}, "values": values}]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return httpx.Response(200, content=json.dumps(answer).encode())


@pytest.mark.anyio
@settings(max_examples=40)
@given(
    age_ms=st.integers(0, 100 * DAY),
    steps=st.one_of(st.integers(1, 12_000), st.sampled_from([11_000, 11_001])),
    more_ms=st.integers(0, 29_999),
    step_ms=st.one_of(st.integers(29_000, 60_000), st.integers(1, DAY)),
    aggregate=st.sampled_from(list(Aggregate)),
)
async def test_a_range_is_at_most_eleven_thousand_points_in_its_bounds_or_refused(
    age_ms, steps, more_ms, step_ms, aggregate
):
    start = NOW - age_ms
    span_ms = (steps - 1) * step_ms + more_ms % step_ms
    store = VictoriaMetricsStore(
        url="http://victoria.test",
        transport=httpx.MockTransport(answers_every_step),
        clock=FakeClock(NOW / 1_000),
    )
    asked = {"start_ms": start, "end_ms": start + span_ms, "step_ms": step_ms}
    if step_ms < 30_000 or steps > 11_000:
        with pytest.raises(ValueError, match=r"at least 30000|at most 11000"):
            await store.range("acme", "web-1", "x", **asked, aggregate=aggregate)
        return
    [series] = await store.range("acme", "web-1", "x", **asked, aggregate=aggregate)
    assert [at for at, _ in series.points] == [start + n * step_ms for n in range(steps)]


def expression(source, aggregate):
    return range_expression(
        "acme", "web-1", "ah_x", source=source, step_ms=HOUR, aggregate=aggregate
    )


TENANT = 'company_id="acme",server_id="web-1"'


@pytest.mark.parametrize("aggregate", list(Aggregate))
def test_samples_are_aggregated_over_the_step(aggregate):
    assert expression(RAW, aggregate) == (
        f'{aggregate}_over_time({{__name__="ah_x",{TENANT}}}[3600000ms])'
    )


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (Aggregate.SUM, 'sum_over_time({__name__="ah_x:1h_sum",%}[3600000ms])'),
        (Aggregate.COUNT, 'sum_over_time({__name__="ah_x:1h_count",%}[3600000ms])'),
        (Aggregate.MIN, 'min_over_time({__name__="ah_x:1h_min",%}[3600000ms])'),
        (Aggregate.MAX, 'max_over_time({__name__="ah_x:1h_max",%}[3600000ms])'),
        (
            Aggregate.AVG,
            (
                'sum_over_time({__name__="ah_x:1h_sum",%}[3600000ms]) / '
                'sum_over_time({__name__="ah_x:1h_count",%}[3600000ms])'
            ),
        ),
    ],
)
def test_rollups_are_put_together_so_that_nothing_is_counted_wrongly(aggregate, expected):
    assert expression(LONG, aggregate) == expected.replace("%", TENANT)
