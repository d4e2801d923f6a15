"""What readiness says of the states of alerts: what failed last, of which unit, until when."""

import pytest

from ahcollector.alerts import (
    AlertChange,
    FileAlertStateStore,
    MemoryAlertStateStore,
    MemoryKeptLists,
    RulePuller,
    SilencePuller,
    UnitKey,
    WatchedAlertStates,
)
from ahcollector.errors import AlertStateError, FencedAlertStateError, TemporaryHubError
from ahcollector.testing import FakeClock, FakeHub
from ahcollector.testing.contracts import AlertStateContract

pytestmark = pytest.mark.anyio

ACME = UnitKey(shard=3, company_id="acme")
BLUE = UnitKey(shard=4, company_id="blue")


class TestWatchedAlertState(AlertStateContract):
    """It is the store that it watches."""

    async def new(self):
        return WatchedAlertStates(store=MemoryAlertStateStore(), clock=FakeClock())

    async def reopen(self, store):
        return store


class World:
    def __init__(self, **settings):
        self.clock = FakeClock()
        self.states = WatchedAlertStates(store=self, clock=self.clock, **settings)
        self.full = set()
        self.error = AlertStateError("No space left on device: make room or repair the disk")

    async def commit(self, key, epoch, change):
        if key in self.full:
            raise self.error

    async def claim(self, key):
        await self.commit(key, 0, None)

    async def units(self, shards):
        await self.commit(None, 0, None)

    async def tried(self, *keys):
        for key in keys:
            try:
                await self.states.commit(key, 1, AlertChange(seq=1))
            except AlertStateError as error:
                assert error is self.error  # noqa: PT017 - it passes as it is

    async def said(self):
        try:
            await self.states.check()
        except AlertStateError as error:
            return str(error)
        return "ok"


async def test_a_commit_that_failed_is_told_with_its_cause_until_one_of_that_unit_is_done():
    world = World()
    assert await world.said() == "ok"
    world.full = {ACME}
    await world.tried(ACME, BLUE)
    assert await world.said() == (
        "states of alerts cannot be kept or read (acme in shard 3): "
        "No space left on device: make room or repair the disk"
    )
    await world.tried(BLUE)
    assert await world.said() != "ok", "another unit's commit says nothing of this one"
    world.full = set()
    await world.tried(ACME)
    assert await world.said() == "ok"


async def test_other_calls_count_each_for_itself():
    world = World()
    world.full = {ACME, None}
    with pytest.raises(AlertStateError):
        await world.states.claim(ACME)
    with pytest.raises(AlertStateError):
        await world.states.units([3])
    assert "(the list of them, and 1 more)" in await world.said()
    world.full = {ACME}
    await world.states.units([3])
    assert "(acme in shard 3)" in await world.said()


async def test_a_unit_that_another_process_has_by_now_holds_nothing_up():
    world = World()
    world.full = {ACME}
    await world.tried(ACME)
    world.error = FencedAlertStateError("taken over")
    await world.tried(ACME)
    assert await world.said() == "ok"


async def test_a_failure_that_nobody_repeats_is_over_after_a_while():
    """The unit went to another process, and nobody here will ever commit it again."""
    world = World(lasting_seconds=60)
    world.full = {ACME, BLUE}
    await world.tried(ACME, BLUE)
    world.clock.advance(40)
    await world.tried(BLUE)
    world.clock.advance(30)
    assert "(blue in shard 4)" in await world.said()
    world.clock.advance(31)
    assert await world.said() == "ok"


async def test_it_is_bounded():
    world = World()
    keys = [UnitKey(shard=number % 64, company_id=f"c{number}") for number in range(1_500)]
    world.full = set(keys)
    await world.tried(*keys)
    assert "(c1499 in shard 27, and 999 more)" in await world.said()


async def test_a_full_directory_is_named_and_what_to_do(tmp_path, monkeypatch):
    store = await FileAlertStateStore.open(tmp_path / "rules")
    states = WatchedAlertStates(store=store, clock=FakeClock())
    epoch = (await states.claim(ACME)).epoch
    (tmp_path / "rules").rename(tmp_path / "away")
    with pytest.raises(AlertStateError):
        await states.commit(ACME, epoch, AlertChange(seq=1, base={"rules": "r"}))
    with pytest.raises(
        AlertStateError, match=r"cannot be kept or read.*acme in shard 3.*make room"
    ):
        await states.check()
    (tmp_path / "away").rename(tmp_path / "rules")
    await states.commit(ACME, epoch, AlertChange(seq=1, base={"rules": "r"}))
    await states.check()
    await store.close()


@pytest.mark.parametrize(
    ("kind", "costs"),
    [(RulePuller, "nothing is judged"), (SilencePuller, "nothing is silenced")],
)
async def test_a_list_that_was_never_read_nor_kept_is_told_with_what_the_hub_said(kind, costs):
    clock, hub, kept = FakeClock(), FakeHub(), MemoryKeptLists()
    puller = kind(hub=hub, kept=kept, clock=clock)
    await puller.recall()
    with pytest.raises(AlertStateError, match=rf"not asked yet.*{costs}"):
        await puller.check()
    hub.fails = TemporaryHubError("hub answered 401: check its token")
    with pytest.raises(TemporaryHubError):
        await puller.pull()
    with pytest.raises(AlertStateError, match=rf"check its token.*{costs}"):
        await puller.check()
    hub.fails = None
    await puller.pull()
    await puller.check()
    # With what is kept, a hub that is away holds up nothing.
    hub.fails = TemporaryHubError("away")
    after = kind(hub=hub, kept=kept, clock=clock)
    await after.recall()
    with pytest.raises(TemporaryHubError):
        await after.pull()
    await after.check()
