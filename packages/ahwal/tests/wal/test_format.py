"""Format 1, byte for byte, by a reader and a writer that share no code with the package."""

import re
import struct
import zlib
from random import Random

import google_crc32c
import pytest
import wal_independent as independent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wal_independent import crc32c, make_checkpoint, make_journal, make_record, segment_name

from ahwal.errors import EntryTooLargeError, WALFormatError, WALOpenError
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL

EVERYTHING = 10**9


def open_simulated(disk, **options):
    return WAL.open("simulated", storage=disk.storage(), max_age_seconds=None, **options)


def read_directory(disk):
    return [(record.id, record.data) for record in independent.read_directory(disk.files())]


def test_another_reader_finds_what_was_appended():
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=300)
    items = [bytes([n]) * n for n in range(60)]
    wal.append_many(items)
    for entry_id in (1, 2, 7, 3):
        wal.remove(entry_id)
    wal.replace(9, [b"9a", b"9b"])
    expected = [(n + 1, items[n]) for n in range(60) if n + 1 not in {1, 2, 3, 7, 9}]
    expected[4:4] = [(61, b"9a"), (62, b"9b")]
    assert read_directory(disk) == expected
    wal.close()
    assert read_directory(disk) == expected
    assert disk.files()["format"] == b"1"


OPERATIONS = st.sampled_from(["append", "append", "many", "first", "any", "replace", "reopen"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, max_size=60), seed=st.integers(0, 2**32))
def test_another_reader_finds_the_same_queue_after_any_history(operations, seed):
    """Order, ids, times and data; with the journal in every state, before and after closing."""
    rng = Random(seed)
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=200)
    for operation in operations:
        live = [entry.id for entry in wal.peek(EVERYTHING, EVERYTHING)]
        if operation == "append":
            wal.append(rng.randbytes(rng.randint(0, 150)))
        elif operation == "many":
            wal.append_many([rng.randbytes(rng.randint(0, 60)) for _ in range(rng.randint(1, 6))])
        elif operation == "first" and live:
            wal.remove(live[0])
        elif operation == "any" and live:
            wal.remove(rng.choice(live))
        elif operation == "replace" and live:
            wal.replace(rng.choice(live), [rng.randbytes(20) for _ in range(rng.randint(1, 3))])
        elif operation == "reopen":
            wal.close()
            wal = open_simulated(disk, segment_bytes=200)
        ours = [(e.id, e.unix_ms, e.data) for e in wal.peek(EVERYTHING, EVERYTHING)]
        assert [tuple(record) for record in independent.read_directory(disk.files())] == ours
    wal.close()
    with open_simulated(disk) as wal:
        ours = [(e.id, e.unix_ms, e.data) for e in wal.peek(EVERYTHING, EVERYTHING)]
    assert [tuple(record) for record in independent.read_directory(disk.files())] == ours


@st.composite
def directories(draw):
    """What another writer may leave: every freedom that the format gives."""
    ids = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=25)))
    level = draw(st.integers(0, 9))
    times = draw(st.lists(st.integers(0, 2**42), min_size=len(ids), max_size=len(ids)))
    files: dict[str, bytes] = {}
    name = ""
    for at, (record_id, unix_ms) in enumerate(zip(ids, times, strict=True)):
        if at == 0 or draw(st.integers(0, 3)) == 0:
            name = segment_name(record_id)
            files[name] = b""
        files[name] += make_record(record_id, b"%d." % record_id * (record_id % 5), unix_ms, level)
    if draw(st.booleans()):
        # At, behind and between the ids; never ahead of the largest, which is another case.
        files["checkpoint"] = make_checkpoint(
            draw(st.integers(0, ids[-1])), crc=draw(st.booleans())
        )
    if draw(st.booleans()):
        files["format"] = draw(st.sampled_from([b"1", b"1\n", b""]))
    lines = [f"ack {n}" for n in draw(st.lists(st.integers(1, 90), max_size=8))]
    puts: list[str] = []
    taken = 0
    for _ in range(draw(st.integers(0, 3))):
        # Contiguous new ids, present or not, above the old one and above those reserved before.
        old = draw(st.integers(1, 60))
        first = max(old, taken) + draw(st.integers(1, 8))
        taken = first + draw(st.integers(0, 2))
        new = " ".join(map(str, range(first, taken + 1)))
        puts.append(f"put {old} {new}")
    # Replacements stand in the order in which they were made, acknowledgements anywhere.
    at = sorted(draw(st.lists(st.integers(0, len(lines)), min_size=3, max_size=3)))
    for place, put in reversed(list(zip(at, puts, strict=False))):
        lines.insert(place, put)
    if lines or draw(st.booleans()):
        files["journal"] = make_journal(*lines)
    return files


@given(directories())
def test_reads_whatever_another_writer_may_leave(files):
    expected = [tuple(record) for record in independent.read_directory(files)]
    disk = SimulatedDisk()
    for name, content in files.items():
        disk.put_file(name, content)
    with open_simulated(disk) as wal:
        found = [(e.id, e.unix_ms, e.data) for e in wal.peek(EVERYTHING, EVERYTHING)]
        assert found == expected
        assert not wal.recovery.damaged
        named = [independent.read_checkpoint(files.get("checkpoint", b"0\n"))]
        acks, puts = independent.read_journal(files.get("journal", b""))
        named += [*acks, *(new[-1] for _, new in puts)]
        new_id = wal.append(b"new")
        assert new_id > max(named)
    after = independent.read_directory(disk.files())
    assert [tuple(record) for record in after][:-1] == expected
    assert after[-1].id == new_id


@pytest.mark.parametrize("ahead", [4, 5, 1000, 2**62])
def test_a_checkpoint_beyond_the_largest_record_acknowledges_nothing(ahead):
    """W1: and it says nothing wrong any more once something was appended or removed."""
    disk = SimulatedDisk()
    disk.put_file(segment_name(1), b"".join(make_record(n, b"%d" % n) for n in (1, 2, 3)))
    disk.put_file("checkpoint", make_checkpoint(ahead))
    with open_simulated(disk) as wal:
        assert [entry.id for entry in wal.peek(9, 1000)] == [1, 2, 3]
        wal.remove(1)
        assert read_directory(disk) == [(2, b"2"), (3, b"3")]
        assert wal.append(b"x") == ahead + 1


def test_a_checkpoint_without_records_is_believed_and_its_ids_are_not_used_again():
    disk = SimulatedDisk()
    disk.put_file("checkpoint", b"41\n")
    with open_simulated(disk) as wal:
        assert wal.append(b"x") == 42
        assert wal.recovery.checkpoint_believed


@pytest.mark.parametrize(
    ("present", "acks", "queue"),
    [
        ((1, 2, 3, 4), (), [3, 4, 2]),  # the swap is whole
        ((1, 2), (), [1, 2]),  # cut before its records
        ((1, 2, 3), (), [1, 2]),  # cut between them: the old one stands, and they are ignored
        ((1, 2, 3), (4,), [3, 2]),  # one was acknowledged and is gone
        ((1, 2, 4), (3,), [4, 2]),
        ((2, 3), (), [3, 2]),  # the old one is gone: those that are valid count
        ((2,), (), [2]),
        ((1, 2, 3, 4), (1,), [3, 4, 2]),
        ((1, 2, 3, 4, 5), (), [3, 4, 2, 5]),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_replacement_holds_when_all_its_records_are_there_or_acknowledged(
    present, acks, queue, apart
):
    """In the segment of the old one, and in a later one."""
    disk = SimulatedDisk()
    for n in present:
        name = segment_name(n if apart else present[0])
        disk.put_file(name, disk.files().get(name, b"") + make_record(n, b"%d" % n))
    disk.put_file("journal", make_journal("put 1 3 4", *(f"ack {n}" for n in acks)))
    assert [entry_id for entry_id, _ in read_directory(disk)] == queue
    for again in (False, True):
        with open_simulated(disk) as wal:
            assert [entry.id for entry in wal.peek(9, 1000)] == queue
            assert wal.recovery.bad_journal_lines == 0
            assert again or wal._parts.writer.next_id > 4
        disk.kill_process()


def test_what_was_replaced_in_its_turn_need_not_be_there():
    disk = SimulatedDisk()
    disk.put_file(segment_name(1), make_record(1, b"1") + make_record(2, b"2"))
    disk.put_file(segment_name(4), make_record(4, b"4") + make_record(5, b"5"))
    disk.put_file("journal", make_journal("put 1 3", "put 3 4 5"))
    assert [entry_id for entry_id, _ in read_directory(disk)] == [4, 5, 2]
    with open_simulated(disk) as wal:
        assert [entry.id for entry in wal.peek(9, 1000)] == [4, 5, 2]


def test_replacements_have_contiguous_ids_reserved_and_synced_before_their_records():
    disk = SimulatedDisk()
    wal = open_simulated(disk)
    first, old, _ = (wal.append(b"%d" % n) for n in range(3))
    born = wal.peek(9, EVERYTHING)[1].unix_ms
    new = wal.replace(old, [b"a", b"b", b"c"])
    assert new == [4, 5, 6]
    assert disk.files()["journal"].startswith(make_journal("put 2 4 5 6"))
    records = independent.read_records(disk.files()[segment_name(first)])
    assert [(record.id, record.unix_ms) for record in records[3:]] == [(n, born) for n in new]


def test_what_is_set_aside_is_one_record_in_a_file_of_its_own():
    disk = SimulatedDisk()
    wal = open_simulated(disk)
    ids = [wal.append(b"%d" % n) for n in range(3)]
    assert wal.quarantine(ids[1])
    (record,) = independent.read_records(disk.files()[f"quarantine/{segment_name(ids[1])}"])
    assert (record.id, record.data) == (ids[1], b"1")
    assert [entry_id for entry_id, _ in read_directory(disk)] == [ids[0], ids[2]]


@pytest.mark.parametrize("length", [1, 2, 16 * 1024 * 1024, 16 * 1024 * 1024 + 1])
def test_a_payload_has_1_byte_to_16_mib(length):
    disk = SimulatedDisk()
    covered = struct.pack("<Qq", 1, 0) + bytes(length)  # no deflate, so it is damage when read
    header = struct.pack("<II", length, google_crc32c.value(covered))
    disk.put_file(segment_name(1), header + covered + make_record(2, b"2"))
    with open_simulated(disk) as wal:
        assert wal.recovery.records == (2 if length <= 16 * 1024 * 1024 else 1)
        assert [entry.id for entry in wal.peek(9, 1000)] == [2]
        assert wal.stats().dropped_by_reason == {"damaged": 1}


def test_the_largest_payload_that_fits_is_written_and_read(tmp_path):
    data = Random(1).randbytes(16 * 1024 * 1024 - 6_000)
    with WAL.open(tmp_path) as wal:
        wal.append(data)
        with pytest.raises(EntryTooLargeError):
            wal.append(data + Random(2).randbytes(12_000))
    with WAL.open(tmp_path) as wal:
        assert wal.oldest().data == data
        assert wal.oldest().id == 1


def test_reads_what_another_writer_wrote():
    disk = SimulatedDisk()
    disk.put_file(f"{3:016x}.seg", make_record(3, b"three") + make_record(4, b"four"))
    disk.put_file(f"{5:016x}.seg", b"".join(make_record(n, b"%d" % n) for n in (5, 6, 8, 9)))
    disk.put_file("checkpoint", b"3\n")
    lines = [b"ack 6", b"put 4 8 9"]
    disk.put_file("journal", b"".join(b"%s %08x\n" % (line, crc32c(line)) for line in lines))
    with open_simulated(disk) as wal:
        entries = wal.peek(10, 1000)
        assert [(entry.id, entry.data) for entry in entries] == [(8, b"8"), (9, b"9"), (5, b"5")]
        assert entries[0].unix_ms == 1_700_000_000_000
        assert wal.append(b"next") == 10
        assert not wal.recovery.damaged


@pytest.mark.parametrize("crc_of", [b"2", b"2\n"])
def test_a_checkpoint_with_its_crc_is_believed(crc_of):
    disk = SimulatedDisk()
    disk.put_file(f"{1:016x}.seg", b"".join(make_record(n, b"x") for n in (1, 2, 3)))
    disk.put_file("checkpoint", b"2\n%08x\n" % crc32c(crc_of))
    with open_simulated(disk) as wal:
        assert [entry.id for entry in wal.peek(10, 1000)] == [3]


def test_a_record_has_the_bytes_of_format_1(tmp_path):
    with WAL.open(tmp_path) as wal:
        entry_id = wal.append(b"hello" * 100)
        entry = wal.oldest()
    (content,) = [path.read_bytes() for path in tmp_path.glob("*.seg")]
    length, crc, found_id, unix_ms = struct.unpack_from("<IIQq", content)
    assert (found_id, unix_ms) == (entry_id, entry.unix_ms)
    assert length == len(content) - 24
    assert crc == crc32c(content[8:])
    assert zlib.decompress(content[24:], -15) == b"hello" * 100
    assert re.fullmatch(r"[0-9a-f]{16}\.seg", next(tmp_path.glob("*.seg")).name)


@pytest.mark.parametrize("content", [b"2", b"10\n", b"banana"])
def test_a_format_of_a_newer_version_is_refused_and_nothing_touched(tmp_path, content):
    (tmp_path / "format").write_bytes(content)
    (tmp_path / f"{1:016x}.seg").write_bytes(bytes(100))
    with pytest.raises(WALFormatError, match="this version knows format 1") as caught:
        WAL.open(tmp_path)
    assert caught.value.found == content.decode().strip()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "format": content,
        f"{1:016x}.seg": bytes(100),
    }


@pytest.mark.parametrize("content", [None, b"", b"\0\0", b"1", b"1\n"])
def test_an_absent_or_empty_format_means_1(tmp_path, content):
    if content is not None:
        (tmp_path / "format").write_bytes(content)
    with WAL.open(tmp_path) as wal:
        wal.append(b"x")
    assert (tmp_path / "format").read_bytes().strip() == b"1"


def test_too_large_entries_are_refused_and_nothing_stored(tmp_path):
    with WAL.open(tmp_path) as wal:
        with pytest.raises(EntryTooLargeError) as caught:
            wal.append(bytes(64 * 1024 * 1024 + 1))
        assert caught.value.size_bytes_max == 64 * 1024 * 1024
        assert wal.oldest() is None
        assert wal.append(b"x") == 1


def test_a_number_over_2_to_the_62_is_unreadable():
    disk = SimulatedDisk()
    disk.put_file(f"{1:016x}.seg", make_record(1, b"x"))
    disk.put_file("checkpoint", b"%d\n" % (2**62 + 1))
    with open_simulated(disk) as wal:
        assert wal.append(b"y") == 2
        assert not wal.recovery.checkpoint_believed


def test_a_file_in_the_place_of_the_directory_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WALOpenError, match="give it a directory"):
        WAL.open(tmp_path / "file")
    with pytest.raises(ValueError, match="path is empty"):
        WAL.open("")
