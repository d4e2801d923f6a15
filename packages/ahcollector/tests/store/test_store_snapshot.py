"""A memory store comes back from its file."""

import anyio
import pytest

from ahcollector._sealed import seal
from ahcollector.errors import SnapshotError, TemporaryStoreError
from ahcollector.store import MemoryStore, StoreSnapshot
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.store import samples

pytestmark = pytest.mark.anyio


class World:
    def __init__(self, path):
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.path = path / "state" / "store.jsonl"
        self.snapshot = StoreSnapshot(store=self.store, path=self.path, clock=self.clock)
        self.t = round(self.clock.time() * 1000)

    async def write(self, count=3):
        for n in range(count):
            points = [(self.t - 1_000 * k, k / 7) for k in range(50)]
            await self.store.write([samples(points, labels=(("core", f'"{n}\n'),))])

    async def loaded(self):
        store = MemoryStore(clock=self.clock)
        snapshot = StoreSnapshot(store=store, path=self.path, clock=self.clock)
        count = await snapshot.load()
        return store, count


async def everything(store):
    return {labels: (series.timestamps, series.values) for labels, series in store.image()}


async def test_a_store_comes_back_to_the_bit(tmp_path):
    world = World(tmp_path)
    await world.write()
    await world.snapshot.save()
    assert world.path.stat().st_mode & 0o777 == 0o600
    store, count = await world.loaded()
    assert count == 3
    assert await everything(store) == await everything(world.store)


async def test_without_a_file_there_is_nothing(tmp_path):
    store, count = await World(tmp_path).loaded()
    assert (count, store.points) == (0, 0)


async def test_run_saves_what_changed_and_once_more_at_the_end(tmp_path):
    world = World(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.snapshot.run)
        await world.clock.run_for(60)
        assert not world.path.exists()
        await world.write(1)
        await anyio.wait_all_tasks_blocked()
        await world.clock.run_for(31)
        while not world.path.exists():
            await anyio.sleep(0.001)
        await world.write(2)
        tasks.cancel_scope.cancel()
    store, _ = await world.loaded()
    assert await everything(store) == await everything(world.store)


async def test_damaged_series_are_set_aside(tmp_path):
    world = World(tmp_path)
    await world.write()
    await world.snapshot.save()
    lines = world.path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"acme", b"evil")
    lines[2] = seal({"labels": [["a", "b"]], "points": 1, "timestamps": "", "values": ""})
    lines.append(seal({"labels": [], "points": 10**12, "timestamps": "", "values": ""}))
    world.path.write_bytes(b"".join(lines))
    store, count = await world.loaded()
    assert count == 1
    assert len(await store.series("acme")) == 1
    assert world.path.with_name("store.jsonl.damaged").read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("lines_left", [0, 1, 2])
async def test_a_file_that_lost_its_series_is_damage(tmp_path, caplog, lines_left):
    """Also when it is empty, or was cut just between two lines."""
    world = World(tmp_path)
    await world.write()
    await world.snapshot.save()
    lines = world.path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    world.path.write_bytes(b"".join(lines[:lines_left]))
    await world.loaded()
    assert "damaged lines of the store's snapshot" in caplog.text
    assert world.path.with_name("store.jsonl.damaged").exists()


async def test_another_version_and_a_bad_place_are_refused(tmp_path):
    world = World(tmp_path)
    world.path.parent.mkdir()
    world.path.write_bytes(seal({"format": "ah-store", "version": 2}))
    with pytest.raises(SnapshotError, match="version 2"):
        await world.loaded()
    world.path.unlink()
    world.path.mkdir()
    with pytest.raises(SnapshotError, match="cannot be read"):
        await world.loaded()
    await world.write(1)
    with pytest.raises(SnapshotError):
        await world.snapshot.save()


@pytest.mark.fault
@pytest.mark.parametrize("whole", [False, True], ids=["server", "company"])
async def test_what_was_deleted_is_not_back_after_a_kill(tmp_path, whole):
    """C18: the file of before would bring it back, so the answer waits for the new one."""
    world = World(tmp_path)
    await world.write()
    await world.snapshot.save()
    labels = dict(next(iter(await everything(world.store))))
    names = (labels["company_id"], labels["server_id"])
    if whole:
        assert await world.snapshot.delete_company(names[0]) == 3
    else:
        assert await world.snapshot.delete_server(*names) == 3
    store, count = await world.loaded()
    assert (count, store.points) == (0, 0)


async def test_deletion_whose_file_could_not_be_written_is_to_be_repeated(tmp_path):
    world = World(tmp_path)
    await world.write()
    await world.snapshot.save()
    labels = dict(next(iter(await everything(world.store))))
    names = (labels["company_id"], labels["server_id"])
    whole, world.snapshot._path = world.path, tmp_path / "state" / "store.jsonl" / "no"
    with pytest.raises(TemporaryStoreError, match=r"may be back after a crash.*make room"):
        await world.snapshot.delete_server(*names)
    world.snapshot._path = whole
    assert (await world.loaded())[1] == 3
    assert await world.snapshot.delete_server(*names) == 0
    assert (await world.loaded())[1] == 0
