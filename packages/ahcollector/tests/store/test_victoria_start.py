"""Which start of VictoriaMetrics answers: told from its metrics, in fake time and by real ones."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.clock import SystemClock
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.store import Restarts
from ahcollector.store._victoria_start import StartWatch
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing import FakeClock

pytestmark = pytest.mark.anyio

PAGE = """\
# HELP vm_app_start_timestamp
vm_rows{{type="storage/small"}} 12
vm_free_disk_space_bytes{{path="/a b/{{data"}} 8.3756638208e+10
process_start_time_seconds {start}
vm_app_start_timestamp {start}
vm_app_uptime_seconds {uptime}
"""


class Machine:
    """A VictoriaMetrics with a clock of its own, which an operator may set."""

    def __init__(self):
        self.clock = FakeClock()
        self.wall_offset = 0.0
        self.lives = 0
        self.slow = 0.0
        self.start()

    def start(self):
        self.lives += 1
        self.born = self.clock.monotonic()
        self.stamp = int(self.clock.time() + self.wall_offset)

    async def page(self):
        # Half of the time before it is written, half of it after.
        self.clock.advance(self.slow / 2)
        uptime = int(self.clock.monotonic() - self.born)
        self.clock.advance(self.slow / 2)
        return PAGE.format(start=self.stamp, uptime=uptime).encode()


async def test_one_life_has_one_epoch_from_its_third_second_on():
    machine = Machine()
    watch = StartWatch(ask=machine.page, clock=machine.clock)
    for _ in range(3):
        with pytest.raises(TemporaryStoreError, match=r"started [0-2] s ago; after 3 s"):
            await watch.epoch()
        machine.clock.advance(1.0)
    epochs = set()
    for seconds in (0, 0.9, 5, 100_000):
        machine.clock.advance(seconds)
        epochs.add(await watch.epoch())
    assert len(epochs) == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["live on", "restart", "restart in the same second"]),
        st.floats(-30, 30),
        st.floats(0, 10),
        st.floats(0, 1),
    ),
    min_size=3,
    max_size=30,
)


@given(steps=STEPS)
async def test_two_lives_never_have_the_same_epoch_whatever_their_clock_says(steps):
    """Also where a machine without a clock of its own begins at the same second each time."""
    machine = Machine()
    watch = StartWatch(ask=machine.page, clock=machine.clock)
    lives_of = {}
    for what, step, wait, slow in steps:
        machine.wall_offset += step
        machine.slow = slow
        if what != "live on":
            stamp = machine.stamp
            machine.start()
            if what == "restart in the same second":
                machine.stamp = stamp
        machine.clock.advance(wait)
        try:
            epoch = await watch.epoch()
        except TemporaryStoreError:
            continue
        assert lives_of.setdefault(epoch, machine.lives) == machine.lives


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>welcome</html>",
        PAGE.format(start=7, uptime=9).replace("vm_free_disk", "vmauth_disk").encode(),
        PAGE.format(start=7, uptime="1.2.3").encode(),
        PAGE.format(start=7, uptime="").encode(),
    ],
)
async def test_what_is_no_single_node_victoria_metrics_tells_no_start(page):
    async def ask():
        return page

    watch = StartWatch(ask=ask, clock=FakeClock())
    with pytest.raises(TemporaryStoreError, match="let its url lead to it"):
        await watch.epoch()
    with pytest.raises(PermanentStoreError, match=r"let its url lead to it.*_seconds to 0"):
        await watch.check()


async def test_a_refused_question_is_a_start_that_is_not_told():
    async def ask():
        raise PermanentStoreError("400 to GET /metrics")

    watch = StartWatch(ask=ask, clock=FakeClock())
    with pytest.raises(TemporaryStoreError, match="400 to GET /metrics"):
        await watch.epoch()
    with pytest.raises(PermanentStoreError, match=r"is refused \(400 to GET /metrics\), so nobody"):
        await watch.check()


async def test_a_start_of_a_moment_ago_will_be_told_and_is_no_fault():
    machine = Machine()
    watch = StartWatch(ask=machine.page, clock=machine.clock)
    await watch.check()
    with pytest.raises(TemporaryStoreError):
        await watch.epoch()


async def test_where_nobody_answers_the_check_may_be_repeated():
    async def ask():
        raise TemporaryStoreError("nobody there")

    with pytest.raises(TemporaryStoreError, match="nobody there"):
        await StartWatch(ask=ask, clock=FakeClock()).check()


@pytest.mark.service
async def test_real_starts_have_epochs_of_their_own(start_service):
    kind = pytest.importorskip("testkit.victoria_metrics").VictoriaMetricsServer
    server = start_service(kind)
    async with VictoriaMetricsStore(url=server.url, clock=SystemClock()) as store:
        restarts: Restarts = store
        epochs = []
        for _ in range(2):
            with anyio.fail_after(20):
                while True:
                    try:
                        epochs.append(await restarts.epoch())
                        break
                    except TemporaryStoreError:
                        await anyio.sleep(0.1)
            assert await restarts.epoch() == epochs[-1]
            await anyio.to_thread.run_sync(server.kill)
            with pytest.raises(TemporaryStoreError, match="cannot be reached for GET /metrics"):
                await restarts.epoch()
            await anyio.to_thread.run_sync(server.start)
    assert len(set(epochs)) == 2
