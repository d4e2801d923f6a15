"""What the file of dead batches does besides the contract: it is cut, damaged, and bounded."""

import errno

import attrs
import pytest

from ahcollector._sealed import seal
from ahcollector.bus import StoredSeries
from ahcollector.errors import DeadBatchesError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import FileDeadBatches, MemoryDeadBatches

pytestmark = pytest.mark.anyio
T0 = 1_700_000_000.0


async def numbers(dead):
    batches = [await dead.read(letter.letter_id) for letter in await dead.letters(limit=10_000)]
    return [int(batch.request_id, 16) for batch in batches]


def large(number, points=10_000):
    series = StoredSeries(
        labels=(("__name__", "ah_x"),), points=tuple((stamp, 0.5) for stamp in range(points))
    )
    return attrs.evolve(batch_of(number), series=(series,))


async def test_a_file_is_there_after_a_restart_also_when_damaged(tmp_path):
    path = tmp_path / "batches.jsonl"
    dead = await FileDeadBatches.open(path)
    for number in range(3):
        await dead.put(batch_of(number), "no", T0)
    await dead.purge([(await dead.letters())[1].letter_id])
    assert path.stat().st_mode & 0o777 == 0o600
    again = await FileDeadBatches.open(path)
    assert await numbers(again) == [0, 2]
    data = path.read_bytes()
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        await (await FileDeadBatches.open(path)).put(batch_of(9), "no", T0 + 1)
        kept = await numbers(await FileDeadBatches.open(path))
        assert kept[-1] == 9
        assert set(kept) <= {0, 1, 2, 9}
    assert (tmp_path / "batches.jsonl.damaged").exists()


async def test_what_is_damaged_is_set_aside_counted_and_told(tmp_path, caplog):
    path, metrics = tmp_path / "batches.log", PrometheusMetrics()
    dead = await FileDeadBatches.open(path)
    await dead.put(batch_of(1), "no", T0)
    no_letter = seal({"id": "x", "dead_at": 1.0, "reason": "no", "batch": {"series": []}})
    path.write_bytes(path.read_bytes() + no_letter + b"junk\n")
    again = await FileDeadBatches.open(path, metrics=metrics)
    assert await numbers(again) == [1]
    assert again.damaged == 2
    sample = metrics.registry.get_sample_value
    assert sample("ahc_worker_dead_batches_damaged_total") == 2
    [record] = [one for one in caplog.records if "damaged" in one.message]
    assert record.where == str(path) + ".damaged"
    aside = (tmp_path / "batches.log.damaged").read_bytes()
    assert sorted(aside.splitlines()) == sorted([no_letter.rstrip(), b"junk"])
    assert (await FileDeadBatches.open(path)).damaged == 0


async def test_a_file_is_compacted(tmp_path):
    path = tmp_path / "batches.jsonl"
    dead = await FileDeadBatches.open(path, letters_max=2)
    for number in range(200):
        await dead.put(batch_of(number), "no", T0)
    assert path.read_bytes().count(b"\n") < 120
    assert await numbers(await FileDeadBatches.open(path)) == [198, 199]


async def test_few_large_letters_do_not_fill_the_disk_either(tmp_path):
    path = tmp_path / "batches.log"
    dead = await FileDeadBatches.open(path, letters_max=1)
    sizes = []
    for number in range(40):
        await dead.put(large(number), "no", T0)
        sizes.append(path.stat().st_size)
        if number == 20:
            dead = await FileDeadBatches.open(path, letters_max=1)
    [letter] = await dead.letters()
    assert max(sizes) < (1 << 20) + 4 * letter.size_bytes
    assert await numbers(await FileDeadBatches.open(path)) == [39]


async def test_a_file_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "batches.jsonl").mkdir()
    with pytest.raises(DeadBatchesError, match=r"batches\.jsonl"):
        await FileDeadBatches.open(tmp_path / "batches.jsonl")


@pytest.mark.fault
async def test_what_a_full_disk_did_not_take_is_not_there_and_may_be_put_again(
    tmp_path, monkeypatch
):
    path = tmp_path / "batches.log"
    dead = await FileDeadBatches.open(path)
    await dead.put(batch_of(1), "no", T0)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("ahcollector._sealedlog.os.fdatasync", full)
        with pytest.raises(DeadBatchesError, match="No space left"):
            await dead.put(batch_of(2), "no", T0)
        with pytest.raises(DeadBatchesError, match="No space left"):
            await dead.purge(None)
    assert await numbers(dead) == [1]
    assert dead.total == 1
    await dead.put(batch_of(2), "no", T0)
    assert await numbers(dead) == [1, 2]
    assert await numbers(await FileDeadBatches.open(path)) == [1, 2]


async def test_what_is_pushed_out_is_counted_by_the_bound_that_did_it():
    metrics = PrometheusMetrics()
    dead = MemoryDeadBatches(
        letters_max=3, bytes_max=200_000, retention_seconds=100, metrics=metrics
    )
    for number in range(5):
        await dead.put(batch_of(number), "no", T0)
    await dead.put(batch_of(5), "no", T0 + 101)
    await dead.put(large(6), "no", T0 + 101)
    await dead.put(large(7, points=15_000), "no", T0 + 101)
    await dead.put(large(8, points=50_000), "no", T0 + 101)
    sample = metrics.registry.get_sample_value
    reasons = {
        reason: sample("ahc_worker_dead_batches_dropped_total", {"reason": reason})
        for reason in ("count", "age", "bytes", "too_large")
    }
    # The sixth goes for its number and the two with it for their age; the last one never came in.
    assert reasons == {"count": 3, "age": 2, "bytes": 2, "too_large": 1}
    assert dead.dropped == 8
    assert await numbers(dead) == [7]
