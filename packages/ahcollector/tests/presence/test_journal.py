"""C18: what a memory presence decided is on disk before anybody gets it, at the price of a page."""

import errno
import itertools
import os
import stat

import pytest

from ahcollector._sealed import read_sealed
from ahcollector.errors import PresenceError
from ahcollector.presence import AgentRef, MemoryPresence, TransitionKind
from ahcollector.presence._journal import JournalFile, decode, with_journal
from ahcollector.presence._snapshot import PresenceImage, SnapshotFile

pytestmark = pytest.mark.anyio
T0 = 1_700_000_000.0
REFS = [AgentRef(agent_id=f"a{n}", company_id="acme", server_id=f"s{n}") for n in range(1_200)]


class Disk:
    """The snapshot and the journal of a directory; counts, and fails when told."""

    def __init__(self, path):
        self.snapshot, self.journal = SnapshotFile(path), JournalFile(path, agents_min=0)
        self.agents_min = 0
        self.saves = self.adds = 0
        self.fails = None

    @property
    def is_good(self):
        return self.journal.is_good

    def save(self, chunks):
        self._fail("save")
        self.saves += 1
        self.snapshot.save(chunks)

    def add(self, decided, told):
        self._fail("add")
        self.adds += 1
        self.journal.add(decided, told)

    def turn_over(self):
        self.journal.turn_over()

    def settle(self):
        self._fail("settle")
        self.journal.settle()

    def _fail(self, what):
        if self.fails == what:
            raise OSError(28, "no space left on device")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "presence.jsonl"


@pytest.fixture
def on_disk(path, event_ids):
    def new():
        disk = Disk(path)
        image = with_journal(
            disk.snapshot.read(),
            disk.journal.read(),
            down_min_seconds=90.0,
            default_interval_seconds=30.0,
        )
        return disk, MemoryPresence(event_ids=event_ids, snapshot=disk, journal=disk, image=image)

    return new


async def everybody(presence, refs=REFS):
    for ref in refs:
        await presence.touch(ref, T0, None)


async def test_pages_of_a_scan_cost_an_append_each_and_no_snapshot(on_disk):
    disk, presence = on_disk()
    await everybody(presence)
    await presence.save()
    found = []
    while page := await presence.expire(T0 + 100, 500):
        await presence.confirm_all(page)
        found += page
    assert len(found) == len(REFS)
    assert (disk.saves, disk.adds) == (1, 3)


async def test_after_a_crash_only_what_was_confirmed_last_comes_again_under_its_id(on_disk):
    _, presence = on_disk()
    await everybody(presence)
    await presence.save()
    first = await presence.expire(T0 + 100, 500)
    await presence.confirm_all(first)
    second = await presence.expire(T0 + 100, 500)
    await presence.confirm_all(second[:100])
    _, again = on_disk()
    assert await again.pending(5_000) == second
    assert (await again.counts()).down == 1_000
    third = await again.expire(T0 + 200, 5_000)
    assert third[:500] == second
    assert {one.agent for one in third[500:]} == set(REFS) - {one.agent for one in first + second}


async def test_an_up_is_kept_too_and_its_agent_is_not_down_again_at_once(on_disk):
    _, presence = on_disk()
    await everybody(presence, REFS[:2])
    await presence.save()
    [down, other] = await presence.expire(T0 + 100, 500)
    await presence.touch(down.agent, T0 + 130, None)
    ups = await presence.pending(500)
    _, again = on_disk()
    assert await again.expire(T0 + 131, 500) == ups
    assert (await again.counts()).down == 1
    assert ups == [down, ups[1], other]
    assert ups[1].kind is TransitionKind.UP
    await again.confirm_all(ups)
    [next_down] = await again.expire(T0 + 221, 500)
    assert next_down.seq > ups[1].seq


async def test_who_came_after_the_snapshot_is_known_by_its_transition(on_disk):
    _, presence = on_disk()
    await everybody(presence, REFS[:1])
    [down] = await presence.expire(T0 + 100, 500)
    disk, again = on_disk()
    assert disk.snapshot.load() is None
    assert await again.pending(500) == [down]
    await again.touch(REFS[0], T0 + 130, None)
    assert [one.kind.value for one in await again.pending(500)] == ["down", "up"]


async def test_a_down_tells_when_its_agent_was_heard_where_the_snapshot_is_older(on_disk):
    _, presence = on_disk()
    await everybody(presence, REFS[:1])
    await presence.save()
    await presence.touch(REFS[0], T0 + 50, None)
    [down] = await presence.expire(T0 + 200, 500)
    _, again = on_disk()
    [shown] = await again.agents()
    assert shown.last_seen == down.last_seen == T0 + 50
    await again.touch(REFS[0], T0 + 230, None)
    _, up = await again.pending(500)
    assert up.last_seen == T0 + 50


async def test_a_removal_is_in_a_snapshot_before_its_up_is_handed_out(on_disk):
    disk, presence = on_disk()
    await everybody(presence, REFS[:3])
    await presence.save()
    downs = await presence.expire(T0 + 100, 500)
    await presence.remove(REFS[0].agent_id, T0 + 110, "removed")
    handed = await presence.pending(500)
    assert (disk.saves, disk.adds) == (2, 1)
    _, again = on_disk()
    assert set(await again.pending(500)) == set(handed)
    assert [one.agent.agent_id for one in await again.agents()] == ["a1", "a2"]
    await again.confirm_all(handed)
    assert await again.expire(T0 + 1_000, 500) == []
    assert [one for one in handed if one.kind is TransitionKind.DOWN] == downs


async def test_what_cannot_be_written_is_not_handed_out_and_comes_when_it_can(on_disk):
    disk, presence = on_disk()
    await everybody(presence, REFS[:3])
    await presence.save()
    disk.fails = "add"
    for _ in range(2):
        with pytest.raises(PresenceError, match="no space left"):
            await presence.expire(T0 + 100, 500)
    with pytest.raises(PresenceError, match="no space left"):
        await presence.ping()
    disk.fails = None
    downs = await presence.expire(T0 + 100, 500)
    await presence.ping()
    assert len(downs) == 3
    _, again = on_disk()
    assert await again.pending(500) == downs


def journals(path):
    return sorted(file.name.removeprefix(path.name) for file in path.parent.glob("*.decided*"))


async def test_a_journal_that_cannot_be_put_away_says_nothing_new(on_disk, path):
    disk, presence = on_disk()
    await everybody(presence, REFS[:3])
    downs = await presence.expire(T0 + 100, 500)
    await presence.confirm_all(downs)
    disk.fails = "settle"
    await presence.save()
    await presence.touch(REFS[0], T0 + 130, None)
    ups = await presence.pending(500)
    await presence.save()
    assert journals(path) == [".decided", ".decided.turned"]
    _, again = on_disk()
    assert await again.pending(500) == ups
    disk.fails = None
    for second in range(3):
        await presence.beacon(T0 + second)
        await presence.save()
    assert journals(path) == []


@pytest.mark.fault
async def test_decisions_are_kept_after_a_turn_over_whose_name_could_not_be_synced(
    on_disk, monkeypatch
):
    """C18: the file has its other name by then, and what is decided next is none of that one."""
    _, presence = on_disk()
    await everybody(presence, REFS[:3])
    await presence.save()
    await presence.expire(T0 + 95, 500)
    real = os.fsync

    def fails_for_directories(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "input/output error")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails_for_directories)
        with pytest.raises(PresenceError, match="input/output"):
            await presence.save()
    for ref in REFS[:3]:
        await presence.touch(ref, T0 + 100, None)
        handed = await presence.pending(500)
        _, again = on_disk()
        assert await again.pending(500) == handed
        await presence.save()


async def test_the_snapshot_before_has_what_was_decided_since_too(on_disk, path):
    _, presence = on_disk()
    await everybody(presence, REFS[:3])
    await presence.save()
    downs = await presence.expire(T0 + 100, 500)
    await presence.confirm_all(downs[:2])
    await presence.beacon(T0 + 100)
    await presence.save()
    path.write_bytes(b"")
    _, again = on_disk()
    assert (await again.counts()).down == 3
    assert {one.event_id for one in await again.pending(500)} == {one.event_id for one in downs}


async def test_every_flipped_bit_and_every_cut_of_a_journal_opens(on_disk, path, event_ids):
    _, presence = on_disk()
    await everybody(presence, REFS[:2])
    await presence.save()
    downs = await presence.expire(T0 + 100, 500)
    await presence.confirm(downs[0])
    await presence.touch(REFS[1], T0 + 130, None)
    await presence.pending(500)
    file = path.with_name("presence.jsonl.decided")
    data = file.read_bytes()
    assert len(data.splitlines()) == 4
    broken = [data[:at] for at in range(0, len(data), 7)]
    broken += [
        data[:at] + bytes([data[at] ^ 1 << (at % 8)]) + data[at + 1 :]
        for at in range(0, len(data), 7)
    ]
    whole = decode(read_sealed(data).records)
    for each in broken:
        file.write_bytes(each)
        again = await MemoryPresence.open(path, event_ids=event_ids)
        found = decode(read_sealed(each).records, read_sealed(each).damaged)
        assert again.damaged_lines == len(found.damaged)
        # A last line that lacks only its line feed is whole, and of two that became one both are.
        is_cut = data.startswith(each)
        assert found.damaged or is_cut or found == whole
        assert not found.damaged or path.with_name("presence.jsonl.damaged").exists()
        known = {one.event_id for one in await again.pending(500)}
        for transition in await again.expire(T0 + 1_000, 500):
            # Whoever is told anew was not known to be told, and has an id of its own.
            assert transition.event_id in known or transition.agent in REFS[:2]
        await again.touch(REFS[0], T0 + 1_001, None)
        await again.save()
        third = await MemoryPresence.open(path, event_ids=event_ids)
        assert third.damaged_lines == 0


async def test_what_is_written_behind_damage_is_a_snapshot(on_disk, path):
    _, presence = on_disk()
    await everybody(presence, REFS[:2])
    await presence.save()
    file = path.with_name("presence.jsonl.decided")
    file.write_bytes(b"no line")
    disk, again = on_disk()
    downs = await again.expire(T0 + 100, 500)
    assert (disk.saves, disk.adds) == (1, 0)
    assert not file.exists()
    _, third = on_disk()
    assert await third.pending(500) == downs


def test_an_image_stays_as_it_is_under_an_empty_journal(path):
    journal = JournalFile(path)
    image = PresenceImage()
    options = {"down_min_seconds": 90.0, "default_interval_seconds": 30.0}
    assert with_journal(image, journal.read(), **options) == image
    journal.settle()
    journal.turn_over()
    assert list(itertools.chain(path.parent.iterdir())) == []
