"""One machine restarts without loss, and damage is never silent and never deletes."""

import stat

import anyio
import pytest

from ahcollector.errors import SnapshotError
from ahcollector.registry import MemoryRegistry, SnapshotKeeper
from ahcollector.testing import FakeClock
from ahwire import AgentRecord
from ahwire.hub import AgentState

pytestmark = pytest.mark.anyio


def record(number, **fields):
    return AgentRecord(
        **{
            "agent_id": f"a{number}",
            "company_id": "acme",
            "server_id": "s",
            "state": AgentState.ACTIVE,
            "token_hash": f"{number:064x}",
            "version": 3,
            **fields,
        }
    )


@pytest.fixture
def clock():
    return FakeClock()


def keeper(registry, path, clock):
    return SnapshotKeeper(registry=registry, path=path, clock=clock)


async def filled():
    registry = MemoryRegistry()
    for number in range(3):
        await registry.put(record(number), now=1.0)
    await registry.put(record(2, state=AgentState.REVOKED, token_hash=None, version=4), now=5.0)
    await registry.set_cursor("c9")
    await registry.end_full_sync(now=7.5)
    return registry


async def test_a_restart_knows_all_that_was_known(tmp_path, clock):
    path = tmp_path / "state" / "registry.jsonl"
    first = await filled()
    await keeper(first, path, clock).load()
    await keeper(await filled(), path, clock).save()
    again = MemoryRegistry()
    loaded = await keeper(again, path, clock).load()
    assert (loaded.agents, loaded.damaged) == (3, 0)
    assert again.image() == (await filled()).image()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    entry = await again.lookup(f"{2:064x}")
    assert entry.state is AgentState.REVOKED


async def test_no_file_is_an_empty_registry(tmp_path, clock):
    registry = MemoryRegistry()
    loaded = await keeper(registry, tmp_path / "registry.jsonl", clock).load()
    assert loaded.agents == 0


async def test_every_flipped_byte_costs_one_line_at_most_and_the_cursor(tmp_path, clock):
    path = tmp_path / "registry.jsonl"
    await keeper(await filled(), path, clock).save()
    good = path.read_bytes()
    for position in range(0, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
        registry = MemoryRegistry()
        loaded = await keeper(registry, path, clock).load()
        if loaded.damaged:
            assert loaded.agents >= 2
            assert await registry.cursor() == "", "all must be read again"
        else:
            # Only a line feed was hit, and nothing hangs on one.
            assert registry.image() == (await filled()).image()
    assert (tmp_path / "registry.jsonl.damaged").exists()


async def test_a_cut_file_keeps_its_whole_lines(tmp_path, clock):
    path = tmp_path / "registry.jsonl"
    await keeper(await filled(), path, clock).save()
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    registry = MemoryRegistry()
    loaded = await keeper(registry, path, clock).load()
    assert 1 <= loaded.agents <= 3


@pytest.mark.parametrize("lines_left", [0, 1, 2])
async def test_a_file_that_lost_its_lines_is_damage(tmp_path, clock, caplog, lines_left):
    """Also when it is empty, or was cut just between two lines."""
    path = tmp_path / "registry.jsonl"
    await keeper(await filled(), path, clock).save()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines_left]))
    registry = MemoryRegistry()
    loaded = await keeper(registry, path, clock).load()
    assert loaded.damaged == 1
    assert await registry.cursor() == "", "all must be read again"
    assert "registry snapshot was damaged" in caplog.text
    assert (tmp_path / "registry.jsonl.damaged").exists()


async def test_a_file_of_a_later_version_is_left_alone(tmp_path, clock):
    from ahcollector._sealed import seal

    path = tmp_path / "registry.jsonl"
    line = seal({"kind": "head", "format": "ah-registry", "version": 9, "cursor": ""})
    path.write_bytes(line)
    with pytest.raises(SnapshotError, match="version 9"):
        await keeper(MemoryRegistry(), path, clock).load()
    assert path.read_bytes() == line


async def test_run_writes_soon_after_a_change_and_when_cancelled(tmp_path, clock):
    path = tmp_path / "registry.jsonl"
    registry = MemoryRegistry()
    keep = keeper(registry, path, clock)
    await keep.load()
    async with anyio.create_task_group() as group:
        group.start_soon(keep.run)
        await anyio.wait_all_tasks_blocked()
        clock.advance(1)
        await anyio.wait_all_tasks_blocked()
        assert not path.exists(), "nothing had changed"
        await registry.put(record(1), now=1.0)
        clock.advance(1)
        for _ in range(1_000):
            await anyio.sleep(0.001)
            if path.exists():
                break
        assert path.exists()
        await registry.put(record(2), now=1.0)
        group.cancel_scope.cancel()
    again = MemoryRegistry()
    assert (await keeper(again, path, clock).load()).agents == 2


async def test_a_directory_that_cannot_be_written_is_said_and_outlived(tmp_path, clock, caplog):
    blocker = tmp_path / "file"
    blocker.write_text("x")
    registry = await filled()
    keep = keeper(registry, blocker / "registry.jsonl", clock)
    with pytest.raises(SnapshotError, match=r"registry\.jsonl"):
        await keep.save()
    with pytest.raises(SnapshotError):
        await keep.load()
    async with anyio.create_task_group() as group:
        group.start_soon(keep.run)
        await anyio.wait_all_tasks_blocked()
        await registry.put(record(9), now=1.0)
        group.cancel_scope.cancel()
    assert "registry snapshot not written" in caplog.text
