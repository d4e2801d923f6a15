"""What only the memory presence has: its snapshot, and its speed of looking."""

import contextlib
import itertools

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.errors import PresenceError, SnapshotError
from ahcollector.presence import AgentRef, MemoryPresence, TransitionKind
from ahcollector.presence._snapshot import SnapshotFile, decode, encode
from ahcollector.presence._state import to_ms
from ahcollector.testing import FakeClock

pytestmark = pytest.mark.anyio
T0 = 1_700_000_000.0
A = AgentRef(agent_id="agent-a", company_id="acme", server_id="web-1")
B = AgentRef(agent_id="agent-b", company_id="acme", server_id="web-2")


def event_ids():
    numbers = itertools.count(1)
    return lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"


class Disk:
    """A snapshot in memory that counts, and fails when told."""

    def __init__(self):
        self.data = None
        self.saves = 0
        self.fails = False
        self.aside = []

    def load(self):
        return self.data

    def save(self, chunks):
        if self.fails:
            raise OSError(28, "no space left on device")
        self.saves += 1
        self.data = b"".join(chunks)

    def set_aside(self, pieces):
        self.aside += pieces


def on(disk):
    image = decode(disk.data)[0] if disk.data is not None else None
    return MemoryPresence(event_ids=event_ids(), snapshot=disk, image=image)


async def test_contacts_never_wait_for_the_disk():
    disk = Disk()
    presence = on(disk)
    disk.fails = True
    for number in range(100):
        await presence.touch(A, T0 + number, None)
    assert await presence.expire(T0 + 100, 500) == []
    assert await presence.pending(500) == []


async def test_an_intent_that_could_not_be_saved_is_not_handed_out():
    """It is handed out when it can be saved, the same one."""
    disk = Disk()
    presence = on(disk)
    await presence.touch(A, T0, None)
    disk.fails = True
    for _ in range(2):
        with pytest.raises(PresenceError, match="no space"):
            await presence.expire(T0 + 100, 500)
        with pytest.raises(PresenceError):
            await presence.pending(500)
    disk.fails = False
    [down] = await presence.expire(T0 + 200, 500)
    assert down.occurred_at == T0 + 100
    assert await on(disk).pending(500) == [down]


async def test_one_page_of_transitions_is_one_save():
    disk = Disk()
    presence = on(disk)
    for number in range(400):
        ref = AgentRef(agent_id=f"a{number}", company_id="acme", server_id="s")
        await presence.touch(ref, T0, None)
    assert len(await presence.expire(T0 + 100, 500)) == 400
    assert disk.saves == 1
    await presence.expire(T0 + 100, 500)
    assert disk.saves == 1


async def test_run_saves_every_few_seconds_and_at_the_end():
    disk, clock = Disk(), FakeClock()
    presence = on(disk)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: presence.run(clock=clock))
        await anyio.wait_all_tasks_blocked()
        await presence.touch(A, T0, None)
        clock.advance(4.9)
        await anyio.wait_all_tasks_blocked()
        assert disk.saves == 0
        clock.advance(0.1)
        while not disk.saves:
            await anyio.sleep(0.001)
        await presence.touch(A, T0 + 30, None)
        tasks.cancel_scope.cancel()
    assert disk.saves == 2
    [shown] = await on(disk).agents()
    assert shown.last_seen == T0 + 30


async def test_a_probe_tells_that_the_last_save_failed():
    disk = Disk()
    presence = on(disk)
    await presence.ping()
    await presence.touch(A, T0, None)
    disk.fails = True
    with pytest.raises(PresenceError):
        await presence.save()
    with pytest.raises(PresenceError, match="no space left on device"):
        await presence.ping()
    disk.fails = False
    await presence.save()
    await presence.ping()


async def test_an_hour_of_a_full_disk_is_a_warning_a_minute(caplog):
    """W29."""
    caplog.set_level("INFO", "ahcollector.presence")
    disk, clock = Disk(), FakeClock()
    presence = on(disk)
    await presence.touch(A, T0, None)
    disk.fails = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: presence.run(clock=clock, snapshot_interval_seconds=10))
        await anyio.wait_all_tasks_blocked()
        while clock.time() < T0 + 3_600:
            clock.advance(10)
            await anyio.sleep(0.002)
        disk.fails = False
        while not disk.saves:
            clock.advance(10)
            await anyio.sleep(0.002)
        tasks.cancel_scope.cancel()
    messages = [record.getMessage() for record in caplog.records]
    assert 1 <= messages.count("presence snapshot not saved") <= 61
    assert messages.count("presence snapshot saved again") == 1


async def test_run_outlives_a_disk_that_fails():
    disk, clock = Disk(), FakeClock()
    presence = on(disk)
    disk.fails = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: presence.run(clock=clock, snapshot_interval_seconds=1))
        await presence.touch(A, T0, None)
        for _ in range(50):
            clock.advance(1)
            await anyio.sleep(0.001)
        disk.fails = False
        while not disk.saves:
            clock.advance(1)
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert disk.saves == 1


async def test_damaged_lines_are_set_aside_and_the_rest_is_used(tmp_path):
    path = tmp_path / "presence.jsonl"
    presence = await MemoryPresence.open(path, event_ids=event_ids())
    await presence.touch(A, T0, None)
    await presence.touch(B, T0, None)
    await presence.save()
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    path.write_bytes(lines[0] + lines[1].replace(b"acme", b"evil") + lines[2])
    again = await MemoryPresence.open(path, event_ids=event_ids())
    assert again.damaged_lines == 1
    assert [row.agent for row in await again.agents()] == [B]
    assert b"evil" in (tmp_path / "presence.jsonl.damaged").read_bytes()


async def told_of_a_silence(path, ids):
    """A process that saw A fall silent, told it, and stopped in order."""
    presence = await MemoryPresence.open(path, event_ids=ids)
    await presence.touch(A, T0, None)
    await presence.touch(B, T0 + 60, None)
    [down] = await presence.expire(T0 + 100, 500)
    await presence.confirm(down)
    await presence.save()


@pytest.mark.parametrize("damage", ["emptied", "cut in half", "cut between lines", "gone", "noise"])
async def test_a_damaged_snapshot_does_not_tell_a_silence_twice(tmp_path, caplog, damage):
    path, ids = tmp_path / "presence.json", event_ids()
    await told_of_a_silence(path, ids)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    if damage == "gone":
        path.unlink()
    else:
        # In place, as a shell does it: the copy must not be the same file under another name.
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(
                {
                    "emptied": b"",
                    "cut in half": data[: len(data) // 2],
                    "cut between lines": lines[0],
                    "noise": bytes(4_096),
                }[damage]
            )
    again = await MemoryPresence.open(path, event_ids=ids)
    assert again.damaged_lines >= 1
    assert "the one before is used" in caplog.text
    # The intent may come again under its own id, which the outbox knows.
    first = await again.expire(T0 + 200, 500)
    assert {(one.agent, one.seq) for one in first if one.agent == A} <= {
        (A, round((T0 + 100) * 1000))
    }
    assert (await again.counts()).down == 2
    assert (tmp_path / "presence.json.damaged").exists() is (damage != "gone")
    await again.save()
    third = await MemoryPresence.open(path, event_ids=ids)
    assert third.damaged_lines == 0


async def test_without_any_whole_snapshot_a_repeat_is_announced(tmp_path, caplog):
    path, ids = tmp_path / "presence.json", event_ids()
    await told_of_a_silence(path, ids)
    for name in (path, tmp_path / "presence.json.old"):
        name.write_bytes(b"")
    again = await MemoryPresence.open(path, event_ids=ids)
    assert again.damaged_lines == 1
    assert "may be told again" in caplog.text


async def test_a_first_start_is_no_damage(tmp_path, caplog):
    presence = await MemoryPresence.open(tmp_path / "presence.json", event_ids=event_ids())
    assert presence.damaged_lines == 0
    assert caplog.text == ""


async def test_a_file_emptied_while_it_runs_does_not_become_the_old_one(tmp_path):
    path, ids = tmp_path / "presence.json", event_ids()
    await told_of_a_silence(path, ids)
    old = tmp_path / "presence.json.old"
    before = old.read_bytes()
    presence = await MemoryPresence.open(path, event_ids=ids)
    path.write_bytes(b"")
    await presence.touch(B, T0 + 300, None)
    await presence.save()
    assert old.read_bytes() == before
    assert path.read_bytes()


async def test_every_flipped_bit_of_a_snapshot_opens():
    disk = Disk()
    presence = on(disk)
    await presence.touch(A, T0, None)
    await presence.beacon(T0)
    await presence.grace(now=T0, ended_at=T0, blind_seconds=20, blind_max_seconds=300)
    await presence.touch(B, T0 + 62, None)
    await presence.expire(T0 + 151, 500)
    await presence.remove(A.agent_id, T0 + 160, "removed")
    await presence.pending(500)
    whole = decode(disk.data)[0]
    assert len(whole.agents) == len(whole.gone) == 1
    assert len(whole.intents) == 2
    for at in range(len(disk.data)):
        broken = bytearray(disk.data)
        broken[at] ^= 1 << (at % 8)
        image, damaged = decode(bytes(broken))
        assert damaged or image == whole
        MemoryPresence(event_ids=event_ids(), image=image)


async def test_a_snapshot_of_another_version_is_refused(tmp_path):
    path = tmp_path / "presence.jsonl"
    line = b"".join(encode(decode(b"")[0]))
    SnapshotFile(path).save([line])
    await MemoryPresence.open(path, event_ids=event_ids())
    from ahcollector._sealed import read_sealed, seal

    [head] = read_sealed(line).records
    SnapshotFile(path).save([seal(head | {"version": 2})])
    with pytest.raises(SnapshotError, match="version 2"):
        await MemoryPresence.open(path, event_ids=event_ids())


async def test_a_snapshot_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "presence.jsonl"
    path.mkdir()
    with pytest.raises(SnapshotError, match=str(path)):
        await MemoryPresence.open(path, event_ids=event_ids())


async def test_a_removed_agents_seq_is_forgotten_after_30_days():
    presence = MemoryPresence(event_ids=event_ids())
    await presence.touch(A, T0, None)
    await presence.expire(T0 + 100, 500)
    await presence.remove(A.agent_id, T0 + 100, "removed")
    for transition in await presence.pending(500):
        await presence.confirm(transition)
    await presence.expire(T0 + 29 * 86_400, 500)
    assert len(presence._image().gone) == 1
    await presence.expire(T0 + 31 * 86_400, 500)
    assert presence._image().gone == ()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("touch"), st.integers(0, 3), st.sampled_from([None, 10.0, 60.0, 300.0])),
        st.tuples(st.just("remove"), st.integers(0, 3), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 29, 90, 300, -3_600]), st.none()),
        st.tuples(st.just("expire"), st.integers(1, 3), st.none()),
    ),
    max_size=40,
)


@given(steps)
@settings(deadline=None)
def test_the_queue_of_deadlines_agrees_with_a_plain_walk(steps):
    """Whoever is due by its own record is found, in any order of contacts, clocks and removals."""

    async def walk():
        presence = MemoryPresence(event_ids=event_ids())
        now = T0
        seqs = {}
        for what, which, interval in steps:
            if what == "wait":
                now += which
            elif what == "expire":
                states = presence._agents
                due = {
                    agent_id
                    for agent_id, state in states.items()
                    if state.down_since is None and state.due_ms < to_ms(now)
                }
                found = []
                while page := await presence.expire(now, which):
                    for transition in page:
                        assert transition.seq > seqs.get(transition.agent.agent_id, 0)
                        seqs[transition.agent.agent_id] = transition.seq
                        await presence.confirm(transition)
                    found += page
                downs = [t for t in found if t.kind is TransitionKind.DOWN and t.occurred_at == now]
                assert due == {transition.agent.agent_id for transition in downs}
                assert all(
                    state.down_since is not None or state.due_ms >= to_ms(now)
                    for state in states.values()
                )
            else:
                ref = AgentRef(agent_id=f"a{which}", company_id="acme", server_id=f"s{which}")
                if what == "touch":
                    await presence.touch(ref, now, interval)
                else:
                    await presence.remove(ref.agent_id, now, "removed")
        assert len(presence._deadlines) <= 4 * len(steps)

    coroutine = walk()
    with contextlib.suppress(StopIteration):
        # Without a snapshot nothing in it ever waits, so it runs to its end in one step.
        coroutine.send(None)
        pytest.fail("the memory presence waited")


async def test_a_scan_in_which_nobody_is_due_looks_at_nobody():
    """Also while everybody goes on speaking, so that all deadlines of before are past."""

    class Watched(dict):
        looks = 0

        def get(self, *args):
            self.looks += 1
            return super().get(*args)

    presence = MemoryPresence(event_ids=event_ids())
    refs = [
        AgentRef(agent_id=f"a{number}", company_id="acme", server_id="s") for number in range(900)
    ]
    watched = Watched()
    for second in range(300):
        for ref in refs[second % 30 :: 30]:
            await presence.touch(ref, T0 + second, None)
        presence._deadlines._agents = watched
        assert await presence.expire(T0 + second, 500) == []
    assert watched.looks == 0
    presence._deadlines._agents = presence._agents
    assert len(presence._deadlines) == 900
    assert len(await presence.expire(T0 + 1_000, 1_000)) == 900
