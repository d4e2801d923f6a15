"""Format 1 read and written from its description alone; nothing of the package is used here.

It knows sound directories only: where anything is damaged it fails, and that is the point. What a
WAL leaves behind must be readable by a program that has nothing but `docs/reference/wal-format.md`.
"""

import struct
import zlib
from typing import NamedTuple

POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected
NUMBER_MAX = 2**62  # of checkpoint and journal
UNIX_MS = 1_700_000_000_000


def _table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        yield byte


TABLE = tuple(_table())


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Record(NamedTuple):
    id: int
    unix_ms: int
    data: bytes


def deflate(data: bytes, level: int = 9) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush()


def stored(data: bytes) -> bytes:
    """Raw deflate that shows the data as it is: one stored block, at most 65,535 bytes."""
    return b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data


def raw_record(record_id: int, payload: bytes, unix_ms: int = UNIX_MS) -> bytes:
    covered = struct.pack("<Qq", record_id, unix_ms) + payload
    return struct.pack("<II", len(payload), crc32c(covered)) + covered


def make_record(record_id: int, data: bytes, unix_ms: int = UNIX_MS, level: int = 9) -> bytes:
    return raw_record(record_id, deflate(data, level), unix_ms)


def segment_name(first_id: int) -> str:
    return f"{first_id:016x}.seg"


def make_checkpoint(watermark: int, *, crc: bool = True) -> bytes:
    line = b"%d\n" % watermark
    return line + (b"%08x\n" % crc32c(line) if crc else b"")


def make_journal(*lines: str) -> bytes:
    return b"".join(b"%s %08x\n" % (line.encode(), crc32c(line.encode())) for line in lines)


def read_records(content: bytes) -> list[Record]:
    records, offset = [], 0
    while offset < len(content):
        length, crc = struct.unpack_from("<II", content, offset)
        assert 1 <= length <= 16 * 1024 * 1024
        covered = content[offset + 8 : offset + 24 + length]
        assert len(covered) == 16 + length
        assert crc32c(covered) == crc
        record_id, unix_ms = struct.unpack_from("<Qq", covered)
        inflater = zlib.decompressobj(-15)
        data = inflater.decompress(covered[16:])
        assert inflater.eof
        assert not inflater.unused_data
        records.append(Record(record_id, unix_ms, data))
        offset += 24 + length
    return records


def read_checkpoint(content: bytes) -> int:
    number, _, rest = content.partition(b"\n")
    assert number.isdigit()
    if rest:
        assert rest.endswith(b"\n")
        assert int(rest[:-1], 16) == crc32c(number + b"\n")
    return int(number)


def read_journal(content: bytes) -> tuple[set[int], list[tuple[int, list[int]]]]:
    acks, puts = set(), []
    assert content == b"" or content.endswith(b"\n")
    for line in content.split(b"\n")[:-1]:
        text, _, crc = line.rpartition(b" ")
        assert int(crc, 16) == crc32c(text)
        word, *numbers = text.split(b" ")
        ids = [int(number) for number in numbers]
        if word == b"ack":
            (done,) = ids
            acks.add(done)
        else:
            assert word == b"put"
            old, *new = ids
            assert new == list(range(new[0], new[0] + len(new)))
            assert new[0] > old
            puts.append((old, new))
    return acks, puts


def read_directory(files: dict[str, bytes]) -> list[Record]:
    """The queue in its order."""
    assert files.get("format", b"").strip() in {b"", b"1"}
    present: dict[int, Record] = {}
    for name in sorted(name for name in files if name.endswith(".seg") and "/" not in name):
        records = read_records(files[name])
        if not records:
            continue
        assert name == segment_name(records[0].id)
        ids = [record.id for record in records]
        assert ids == sorted(set(ids))
        assert ids[0] > max(present, default=0)
        present |= {record.id: record for record in records}
    watermark = read_checkpoint(files["checkpoint"]) if "checkpoint" in files else 0
    if present:
        assert watermark <= max(present)
    acks, puts = read_journal(files.get("journal", b""))
    done = acks | {record_id for record_id in present if record_id <= watermark}
    successors: dict[int, list[int]] = {}
    placed: set[int] = set()
    whole: set[int] = set()
    for at, (_, new) in reversed(list(enumerate(puts))):
        handed_on = {puts[later][0] for later in whole}
        if all(n in present or n in done or n <= watermark or n in handed_on for n in new):
            whole.add(at)
    for at, (old, new) in enumerate(puts):
        gone = old not in present or old in acks or old <= watermark
        if at in whole or gone:
            done.add(old)
            successors.setdefault(old, []).extend(new)
            placed.update(new)
        else:
            done.update(new)
    queue: list[Record] = []

    def visit(record_id: int) -> None:
        if record_id in present and record_id not in done:
            queue.append(present[record_id])
        for successor in successors.get(record_id, []):
            visit(successor)

    for record_id in sorted({*present, *successors} - placed):
        visit(record_id)
    return queue
