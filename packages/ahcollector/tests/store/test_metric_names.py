"""The names of metrics that a VictoriaMetrics has, for its operator."""

import json
import time

import httpx
import pytest

from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing._contracts.store import samples

pytestmark = pytest.mark.anyio


def store_that_says(answer, status=200):
    def handle(request):
        assert request.url.path == "/api/v1/label/__name__/values"
        return httpx.Response(status, content=json.dumps(answer).encode())

    return VictoriaMetricsStore(url="http://victoria.test", transport=httpx.MockTransport(handle))


async def test_rollups_strangers_and_what_the_check_wrote_are_not_among_them():
    names = [
        "ah_x",
        "ah_a",
        "ah_a:5m_sum",
        "ah_start_check_mmm",
        "up",
        "",
        "ah_",
        "ah_a b",
    ]
    async with store_that_says({"status": "success", "data": names}) as store:
        assert await store.metric_names() == ("ah_a", "ah_x")


async def test_more_than_can_be_meant_are_refused():
    names = [f"ah_{n}" for n in range(11)]
    async with store_that_says({"status": "success", "data": names}) as store:
        assert len(await store.metric_names(most=11)) == 11
        with pytest.raises(PermanentStoreError, match="11 metrics, over 10"):
            await store.metric_names(most=10)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"status": "success", "data": "ah_x"},
        {"status": "success", "data": [1]},
        {"status": "error", "data": ["ah_x"]},
    ],
)
async def test_an_answer_of_another_form_makes_no_sense(answer):
    async with store_that_says(answer) as store:
        with pytest.raises(TemporaryStoreError, match="makes no sense"):
            await store.metric_names()


@pytest.mark.service
async def test_a_real_one_tells_those_of_all_companies(start_service):
    testkit = pytest.importorskip("testkit.victoria_metrics")
    server = start_service(testkit.VictoriaMetricsServer)
    now = round(time.time() * 1000)
    async with VictoriaMetricsStore(url=server.url) as store:
        assert await store.metric_names() == ()
        await store.check()
        await store.write(
            [
                samples([(now, 1.0)], company_id="acme", name="ah_b"),
                samples([(now - 86_400_000, 1.0)], company_id="bolt", name="ah_a"),
                samples([(now, 1.0)], company_id="bolt", name="ah_a:1h_sum"),
            ]
        )
        await store.flush()
        assert await store.metric_names() == ("ah_a", "ah_b")
