"""Format 1, byte for byte, by a reader and a writer that share no code with the package."""

import re
import struct
import zlib

import pytest

from ahwal.errors import EntryTooLargeError, WALFormatError, WALOpenError
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL

POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def make_record(record_id: int, data: bytes, unix_ms: int = 1_700_000_000_000) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    payload = deflater.compress(data) + deflater.flush()
    covered = struct.pack("<Qq", record_id, unix_ms) + payload
    return struct.pack("<II", len(payload), crc32c(covered)) + covered


def read_records(content: bytes) -> list[tuple[int, bytes]]:
    records, offset = [], 0
    while offset < len(content):
        length, crc = struct.unpack_from("<II", content, offset)
        covered = content[offset + 8 : offset + 24 + length]
        assert crc32c(covered) == crc
        record_id, _unix_ms = struct.unpack_from("<Qq", covered)
        records.append((record_id, zlib.decompress(covered[16:], -15)))
        offset += 24 + length
    return records


def read_directory(files: dict[str, bytes]) -> list[tuple[int, bytes]]:
    """What is not acknowledged, in order of ids."""
    watermark = 0
    if "checkpoint" in files:
        number, crc, rest = files["checkpoint"].split(b"\n")
        assert int(crc, 16) == crc32c(number + b"\n")
        assert rest == b""
        watermark = int(number)
    acks = set()
    for line in files.get("journal", b"").splitlines():
        text, crc = line.rsplit(b" ", 1)
        assert int(crc, 16) == crc32c(text)
        word, *ids = text.split()
        if word == b"ack":
            acks.add(int(ids[0]))
        else:
            assert word == b"put"
            acks.add(int(ids[0]))
    live = []
    for name, content in sorted(files.items()):
        if name.endswith(".seg"):
            records = read_records(content)
            assert name == f"{records[0][0]:016x}.seg"
            live += [r for r in records if r[0] > watermark and r[0] not in acks]
    return live


def open_simulated(disk, **options):
    return WAL.open("simulated", storage=disk.storage(), max_age_seconds=None, **options)


def test_another_reader_finds_what_was_appended():
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=300)
    items = [bytes([n]) * n for n in range(60)]
    wal.append_many(items)
    for entry_id in (1, 2, 7, 3):
        wal.remove(entry_id)
    wal.replace(9, [b"9a", b"9b"])
    expected = [(n + 1, items[n]) for n in range(60) if n + 1 not in {1, 2, 3, 7, 9}]
    expected += [(61, b"9a"), (62, b"9b")]
    assert read_directory(disk.files()) == expected
    wal.close()
    assert read_directory(disk.files()) == expected
    assert disk.files()["format"] == b"1"


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
