"""Whatever happened to the files: it opens, and gives back original records only."""

import logging
import struct
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahwal.queue import DropReason
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL

EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.WARNING, "ahwal.wal")


def open_simulated(disk, **options):
    options.setdefault("segment_bytes", 90)
    return WAL.open("simulated", storage=disk.storage(), max_age_seconds=None, **options)


def read_all(wal):
    return {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)}


def damaged_copy(files, name=None, content=b""):
    disk = SimulatedDisk()
    for other, old in files.items():
        disk.put_file(other, content if other == name else old)
    return disk


class Small:
    """A small WAL with a bit of everything."""

    def __init__(self):
        disk = SimulatedDisk()
        wal = open_simulated(disk)
        self.originals = {}
        rng = Random(5)

        def append(count):
            batches = [b"%d:" % n + rng.randbytes(rng.randint(0, 12)) for n in range(count)]
            self.originals |= dict(zip(wal.append_many(batches), batches, strict=True))

        append(5)
        for entry_id in (1, 2):
            wal.remove(entry_id)
        wal.close()  # a checkpoint
        wal = open_simulated(disk)
        append(3)
        wal.remove(5)
        self.originals |= dict(zip(wal.replace(6, [b"6a", b"6b"]), [b"6a", b"6b"], strict=True))
        append(2)
        wal.quarantine(max(self.originals))
        self.live = read_all(wal)
        disk.kill_process()
        self.files = disk.files()
        self.names = [name for name in self.files if name not in {"format", "lock"}]

    def ids_in(self, name):
        if not name.endswith(".seg") or "/" in name:
            return set()
        ids, offset, content = set(), 0, self.files[name]
        while offset < len(content):
            length, _, record_id = struct.unpack_from("<IIQ", content, offset)
            ids.add(record_id)
            offset += 24 + length
        return ids

    def check(self, name, content, lost_max=EVERYTHING):
        disk = damaged_copy(self.files, name, content)
        wal = open_simulated(disk)
        found = read_all(wal)
        assert found.items() <= self.originals.items(), "not an original record"
        outside = self.live.keys() - self.ids_in(name)
        assert outside <= found.keys(), "lost a record outside the damaged file"
        assert len(self.live.keys() - found.keys()) <= lost_max
        for entry in wal.quarantined():
            assert self.originals[entry.id] == entry.data, "not what was set aside"
        # What recovery made of it is as good, crash after crash.
        disk.cut_power()
        wal = open_simulated(disk)
        assert read_all(wal) == found
        new = wal.append(b"new")
        assert new > max(found)
        disk.cut_power()
        with open_simulated(disk) as wal:
            assert read_all(wal) == found | {new: b"new"}


@pytest.fixture(scope="module")
def small():
    return Small()


def test_the_small_wal_has_a_bit_of_everything(small):
    assert {"checkpoint", "journal"} <= set(small.names)
    assert sum(name.endswith(".seg") and "/" not in name for name in small.names) > 3
    assert any(name.startswith("quarantine/") for name in small.names)
    assert b"put" in small.files["journal"]
    assert b"ack" in small.files["journal"]


def test_every_truncation_opens_and_yields_original_records_only(small):
    """W1, W2, W5: and is as good after two more crashes."""
    for name in small.names:
        for size in range(len(small.files[name])):
            small.check(name, small.files[name][:size])


def test_every_bit_flip_opens_and_costs_one_record(small):
    """W1, W2, W6: and is as good after two more crashes."""
    for name in small.names:
        content = small.files[name]
        for bit in range(len(content) * 8):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            small.check(name, bytes(flipped), lost_max=1)


def test_a_missing_file_costs_its_own_records_only(small):
    for name in small.names:
        files = {other: content for other, content in small.files.items() if other != name}
        with open_simulated(damaged_copy(files)) as wal:
            found = read_all(wal)
        assert found.items() <= small.originals.items()
        assert small.live.keys() - small.ids_in(name) <= found.keys()


@given(
    segment=st.binary(max_size=400),
    checkpoint=st.none() | st.binary(max_size=40) | st.from_regex(rb"\d{1,20}\n"),
    journal=st.none() | st.binary(max_size=80) | st.from_regex(rb"(ack|put) \d+ \d+ [0-9a-f]{8}\n"),
)
@example(segment=bytes(4096), checkpoint=b"\0", journal=b"\n\n")
def test_arbitrary_bytes_open_and_yield_nothing(segment, checkpoint, journal):
    disk = SimulatedDisk()
    disk.put_file(f"{1:016x}.seg", segment)
    if checkpoint is not None:
        disk.put_file("checkpoint", checkpoint)
    if journal is not None:
        disk.put_file("journal", journal)
    with open_simulated(disk) as wal:
        assert wal.oldest() is None
        entry_id = wal.append(b"first")
        assert read_all(wal) == {entry_id: b"first"}
    with open_simulated(disk) as wal:
        assert read_all(wal) == {entry_id: b"first"}


def one_segment(count=4, **options):
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=10**6, **options)
    ids = [wal.append(b"%d" % n * 20) for n in range(count)]
    disk.kill_process()
    (name,) = [name for name in disk.files() if name.endswith(".seg")]
    return disk, name, ids


@pytest.mark.parametrize("zeros", [1, 24, 4096, 1024 * 1024])
def test_a_tail_of_zeros_is_cut_off(zeros):
    """W4."""
    disk, name, ids = one_segment()
    content = disk.files()[name]
    disk.put_file(name, content + bytes(zeros))
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == ids
        assert wal.recovery.torn_bytes == zeros
        assert disk.files()[name] == content
        assert not wal.recovery.damaged
    assert not any(name.startswith("quarantine/") for name in disk.files())


def test_a_torn_tail_is_cut_off_and_set_aside():
    """W5: every prefix of the last record."""
    disk, name, ids = one_segment()
    content = disk.files()[name]
    last = len(content) // len(ids)
    for size in range(len(content) - last, len(content)):
        copy = damaged_copy(disk.files(), name, content[:size])
        with open_simulated(copy) as wal:
            assert list(read_all(wal)) == ids[:-1]
            assert wal.stats().dropped == 0
            assert wal.append(b"x") == ids[-1]
        torn = content[len(content) - last : size]
        aside = [c for n, c in copy.files().items() if n.endswith(".bad")]
        assert aside == ([torn] if torn.strip(b"\0") else [])


def test_a_torn_tail_for_which_there_is_no_room_is_cut_off_and_said(caplog):
    disk, name, ids = one_segment(2)
    content = disk.files()[name]
    disk.put_file(name, content + Random(1).randbytes(2_000))
    with open_simulated(disk, max_bytes=10_000) as wal:
        assert list(read_all(wal)) == ids
        assert disk.files()[name] == content
    assert any("no room" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("length", [0, 1, 0xFFFFFFFF, 16 * 1024 * 1024 + 1, 1000])
def test_a_wrong_length_is_refused_and_the_records_behind_it_found(length):
    """W6."""
    disk, name, ids = one_segment()
    content = bytearray(disk.files()[name])
    second = len(content) // len(ids)
    struct.pack_into("<I", content, second, length)
    disk.put_file(name, bytes(content))
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == [ids[0], *ids[2:]]
        assert wal.stats().dropped_by_reason == {DropReason.DAMAGED: 1}


def test_a_length_that_leads_to_another_record_skips_none():
    disk, name, ids = one_segment(6)
    content = bytearray(disk.files()[name])
    size = len(content) // len(ids)
    (length,) = struct.unpack_from("<I", content, size)
    struct.pack_into("<I", content, size, length + 2 * size)
    disk.put_file(name, bytes(content))
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == [ids[0], *ids[2:]]


def test_a_hostile_segment_is_searched_in_bounded_time():
    disk = SimulatedDisk()
    header = struct.pack("<IIQq", 500_000, 0, 7, 7)
    disk.put_file(f"{1:016x}.seg", (header * 50_000)[: 1024 * 1024])
    with open_simulated(disk) as wal:
        assert wal.oldest() is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(10),
        b"1",
        b"10",
        b"999999\n",
        b"11\n00000000\n",
        b"banana\n",
        b"3\nxyz",
        b"9" * 99,
    ],
)
def test_a_wrong_checkpoint_acknowledges_nothing(content, caplog):
    """W1: not even after an append has made the number it names come true."""
    disk, _, ids = one_segment(4)
    disk.put_file("checkpoint", content)
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == ids
        assert not wal.recovery.checkpoint_believed
        later = wal.append_many([b"x"] * 8)
        assert min(later) > max(ids)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    disk.kill_process()
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == ids + later


def test_an_unbelieved_number_is_not_given_out_even_after_two_crashes():
    disk, _, _ = one_segment(4)
    disk.put_file("checkpoint", b"1000\n")
    open_simulated(disk)
    disk.cut_power()
    open_simulated(disk)
    disk.cut_power()
    with open_simulated(disk) as wal:
        assert wal.append(b"x") == 1001


def test_an_acknowledged_id_whose_record_was_damaged_is_not_given_out_again():
    disk, name, ids = one_segment(4)
    wal = open_simulated(disk, segment_bytes=10**6)
    wal.remove(ids[-1])
    disk.kill_process()
    disk.put_file(name, disk.files()[name][:-1])
    with open_simulated(disk) as wal:
        assert wal.append(b"x") > ids[-1]
        assert wal.stats().batches == 4


def test_directories_in_the_place_of_files_are_moved_aside(tmp_path):
    """W1."""
    with WAL.open(tmp_path) as wal:
        wal.append(b"x")
    for name in ("checkpoint", "journal", "format", "checkpoint.tmp", f"{99:016x}.seg"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name / "inside").mkdir(parents=True)
    (tmp_path / "quarantine").write_text("a file")
    with WAL.open(tmp_path) as wal:
        assert wal.oldest().data == b"x"
        wal.append(b"y")
    with WAL.open(tmp_path) as wal:
        assert list(read_all(wal).values()) == [b"x", b"y"]
        assert wal.quarantine(wal.oldest().id)
        assert wal.recovery.checkpoint_believed
    assert (tmp_path / "checkpoint.aside-0" / "inside").is_dir()


def test_a_missing_segment_and_strangers_are_no_obstacle():
    """W3."""
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=60)
    ids = [wal.append(b"%d" % n * 30) for n in range(12)]
    disk.kill_process()
    names = sorted(name for name in disk.files() if name.endswith(".seg"))
    lost = [n for n in ids if names[2] <= f"{n:016x}.seg" < names[3]]
    disk.remove_file(names[2])
    for stranger in ("00000003.repair", "x.tmp", "0000000000000003.SEG", "fffffffffffffff0.seg"):
        disk.put_file(stranger, b"strange")
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == [n for n in ids if n not in lost]
        assert wal.recovery.missing_ids == len(lost)
        assert wal.append(b"x") == ids[-1] + 1
    assert disk.files()["x.tmp"] == b"strange"


def test_a_name_that_is_taken_is_set_aside():
    disk, name, _ = one_segment(3)
    disk.put_file(name, b"\1" * 200)
    with open_simulated(disk, max_bytes=10_000) as wal:
        new = wal.append(b"x")
        assert f"{new:016x}.seg" == name
        assert list(read_all(wal).values()) == [b"x"]
    assert any(content == b"\1" * 200 for content in disk.files().values())


def test_damage_after_opening_is_given_up_counted_and_set_aside():
    disk, name, ids = one_segment(4)
    with open_simulated(disk) as wal:
        content = bytearray(disk.files()[name])
        content[len(content) // 4 + 26] ^= 1
        disk.put_file(name, bytes(content))
        wal._reader.close()
        assert list(read_all(wal)) == [ids[0], *ids[2:]]
        assert wal.stats().dropped_by_reason == {DropReason.DAMAGED: 1}
    assert sum(name.endswith(".bad") for name in disk.files()) == 1


def test_a_segment_deleted_behind_our_back_costs_its_records_only(tmp_path):
    with WAL.open(tmp_path, segment_bytes=60) as wal:
        ids = [wal.append(b"%d" % n * 30) for n in range(6)]
        first, *_ = sorted(tmp_path.glob("*.seg"))
        first.unlink()
        left = read_all(wal)
        assert set(left) < set(ids)
        assert wal.stats().dropped == len(ids) - len(left)
        for entry_id in left:
            wal.remove(entry_id)
        assert wal.append(b"x") == ids[-1] + 1


def test_damage_in_a_finished_segment_is_set_aside_before_the_segment_goes():
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=100)
    ids = [wal.append(b"%d" % n * 30) for n in range(9)]
    disk.kill_process()
    name = min(name for name in disk.files() if name.endswith(".seg"))
    content = bytearray(disk.files()[name])
    content[26] ^= 1
    disk.put_file(name, bytes(content))
    wal = open_simulated(disk, segment_bytes=100)
    for entry_id in ids:
        wal.remove(entry_id)
    assert name not in disk.files()
    assert any(name.endswith(".bad") for name in disk.files())
    assert wal.stats().quarantine_bytes > 0


def test_damage_to_a_half_does_not_bring_back_what_it_replaced():
    disk, name, ids = one_segment(2)
    wal = open_simulated(disk, segment_bytes=10**6)
    halves = wal.replace(ids[0], [b"a" * 30, b"b" * 30])
    disk.kill_process()
    disk.put_file(name, disk.files()[name][:-1])
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == [halves[0], ids[1]]


def peak_of_opening(records, size_bytes):
    import tracemalloc

    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=1024 * 1024, max_bytes=10**9)
    wal.append_many([Random(n).randbytes(size_bytes) for n in range(records)])
    disk.kill_process()
    tracemalloc.start()
    try:
        with open_simulated(disk, max_bytes=10**9) as wal:
            assert wal.stats().batches == records
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_recovery_needs_memory_for_an_index_only():
    """Ten times the bytes in as many records need the same; what counts is the records."""
    small, large = peak_of_opening(200, 5_000), peak_of_opening(200, 50_000)
    assert large - small < 300_000
    assert large < 1_500_000
    many = peak_of_opening(4_000, 50)
    assert many - small < 4_000 * 60
