"""What the tests beside a real VictoriaMetrics share."""

import time

from ahcollector.store import Aggregate


def now_ms():
    return round(time.time() * 1000)


async def counted(store, company, at_ms, *, step_ms):
    """How many samples web-1's series has in the one step that ends there."""
    [series] = await store.range(
        company,
        "web-1",
        "cpu_percent",
        start_ms=at_ms,
        end_ms=at_ms,
        step_ms=step_ms,
        aggregate=Aggregate.COUNT,
    )
    [(found_ms, count)] = series.points
    assert found_ms == at_ms
    return count
