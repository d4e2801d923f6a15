"""Refused batches are kept, within bounds, in memory and in a file."""

import math

import pytest

from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.errors import SnapshotError
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import FileDeadBatches, MemoryDeadBatches

pytestmark = pytest.mark.anyio
T0 = 1_700_000_000.0


@pytest.fixture(params=["memory", "file"])
def make(request, tmp_path):
    async def made(**bounds):
        if request.param == "memory":
            return MemoryDeadBatches(**bounds)
        return await FileDeadBatches.open(tmp_path / "dead" / "batches.jsonl", **bounds)

    return made


def numbers(letters):
    return [int(letter.batch.request_id, 16) for letter in letters]


async def test_a_batch_is_kept_whole(make):
    dead = await make()
    odd = SampleBatch(
        company_id="acme",
        server_id="web-1",
        agent_id="a",
        request_id="00ff",
        received_at_ms=5,
        series=(
            StoredSeries(
                labels=(("__name__", "ah_x"), ("a", 'ü\n"\u2028')),
                points=((1, math.inf), (2, -math.inf), (3, -0.0), (4, 5e-324)),
            ),
        ),
    )
    await dead.put(odd, "refused: why", T0)
    [letter] = await dead.letters()
    assert (letter.batch, letter.reason, letter.dead_at) == (odd, "refused: why", T0)
    assert dead.total == 1


async def test_the_oldest_go_first(make):
    dead = await make(letters_max=3)
    for number in range(5):
        await dead.put(batch_of(number), "no", T0)
    assert numbers(await dead.letters()) == [2, 3, 4]
    assert (dead.total, dead.dropped) == (5, 2)


async def test_bytes_and_age_are_bounded_too(make):
    dead = await make(bytes_max=1_000)
    for number in range(20):
        await dead.put(batch_of(number), "no", T0)
    kept = await dead.letters()
    assert sum(letter.size_bytes for letter in kept) <= 1_000
    assert numbers(kept)[-1] == 19


async def test_old_letters_go_with_the_next(make):
    dead = await make(retention_seconds=100)
    await dead.put(batch_of(1), "no", T0)
    await dead.put(batch_of(2), "no", T0 + 101)
    assert numbers(await dead.letters()) == [2]


async def test_letters_are_taken_once(make):
    dead = await make()
    for number in range(3):
        await dead.put(batch_of(number), "no", T0)
    first = (await dead.letters())[0].letter_id
    assert numbers(await dead.take([first, "unknown"])) == [0]
    assert numbers(await dead.take([first])) == []
    assert numbers(await dead.take(None)) == [1, 2]
    assert await dead.letters() == []


async def test_a_file_is_there_after_a_restart_also_when_damaged(tmp_path):
    path = tmp_path / "batches.jsonl"
    dead = await FileDeadBatches.open(path)
    for number in range(3):
        await dead.put(batch_of(number), "no", T0)
    await dead.take([(await dead.letters())[1].letter_id])
    assert path.stat().st_mode & 0o777 == 0o600
    again = await FileDeadBatches.open(path)
    assert numbers(await again.letters()) == [0, 2]
    data = path.read_bytes()
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        await (await FileDeadBatches.open(path)).put(batch_of(9), "no", T0 + 1)
        kept = numbers(await (await FileDeadBatches.open(path)).letters())
        assert kept[-1] == 9
        assert set(kept) <= {0, 1, 2, 9}
    assert (tmp_path / "batches.jsonl.damaged").exists()


async def test_a_file_is_compacted(tmp_path):
    path = tmp_path / "batches.jsonl"
    dead = await FileDeadBatches.open(path, letters_max=2)
    for number in range(200):
        await dead.put(batch_of(number), "no", T0)
    assert path.read_bytes().count(b"\n") < 120
    assert numbers(await (await FileDeadBatches.open(path)).letters()) == [198, 199]


async def test_a_file_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "batches.jsonl").mkdir()
    with pytest.raises(SnapshotError, match=r"batches\.jsonl"):
        await FileDeadBatches.open(tmp_path / "batches.jsonl")
