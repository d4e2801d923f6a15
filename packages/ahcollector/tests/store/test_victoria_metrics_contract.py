"""The store in VictoriaMetrics keeps the contract, beside a real VictoriaMetrics."""

import time

import pytest

from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing.contracts import StoreContract

pytest.importorskip("testkit.victoria_metrics")


@pytest.fixture(scope="module")
def server(testkit_session):
    testkit = pytest.importorskip("testkit.victoria_metrics")
    server = testkit_session.start(testkit.VictoriaMetricsServer)
    yield server
    server.close()


@pytest.mark.anyio
@pytest.mark.service
class TestVictoriaMetricsStore(StoreContract):
    protocol = "import"

    @pytest.fixture(autouse=True)
    async def _server(self, server):
        self.server = server
        self.stores = []
        yield
        for store in self.stores:
            await store.aclose()

    async def new(self):
        store = VictoriaMetricsStore(
            url=self.server.url, step_seconds_min=1, write_protocol=self.protocol
        )
        self.stores.append(store)
        for company_id in ("acme", "bolt"):
            await store.delete_company(company_id)
        return store

    def now_ms(self):
        return round(time.time() * 1000)

    async def visible(self, store):
        await store.flush()

    def same(self, found, sent):
        """To twelve digits, and what is next to nothing is nothing."""
        if abs(sent) < 1e-290:
            return found == 0
        return abs(found - sent) <= 1e-12 * abs(sent)


class TestVictoriaMetricsStoreByRemoteWrite(TestVictoriaMetricsStore):
    protocol = "remote_write"
