"""Recovery on arbitrary directories: the property, and the driver that atheris runs.

As a program it fuzzes; atheris must be installed. What it is given is what libFuzzer takes::

    python wal_fuzz.py -max_total_time=60 [-artifact_prefix=DIR/] [CORPUS_DIRECTORY]

The bytes of an input are read as the contents of a directory: they choose which files there are,
and of what each is made, whole records and lines among them, because a fuzzer cannot guess a CRC.
"""

import contextlib
import logging
import sys
import zlib
from collections.abc import Sequence
from random import Random

import wal_independent as independent

EVERYTHING = 10**9
FORMATS = (b"", b"1", b"1\n", b"\0", b"2", b"01", b"\xff")
NAMES = ("checkpoint", "journal", "format", "lock", "checkpoint.tmp", "x.tmp", "lost+found/x")


class Source:
    """An input, taken from the front; zeros when it is used up."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        """Mostly small, sometimes at an edge, sometimes anything."""
        kind = self.byte()
        if kind < 200:
            return kind % 40
        edges = (2**20, 2**32, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1)
        if kind < 240:
            return edges[kind % len(edges)]
        return int.from_bytes(self.take(8), "little")


class Directory:
    """What an input says is there."""

    def __init__(self, source: Source) -> None:
        self.files: dict[str, bytes] = {}
        self.written: set[tuple[int, bytes]] = set()
        self.largest_id = 0
        self.inner: set[tuple[int, bytes]] = set()
        while source and len(self.files) < 8:
            kind = source.byte()
            if kind % 8 < 4:
                name = independent.segment_name(source.number())
                self.files[name] = self._segment(source)
            elif kind % 8 == 4:
                self.files["checkpoint"] = self._checkpoint(source)
            elif kind % 8 == 5:
                self.files["journal"] = self._journal(source)
            elif kind % 8 == 6:
                name = f"quarantine/{independent.segment_name(source.number())}"
                self.files[name] = self._segment(source)
            elif kind < 128:
                self.files["format"] = FORMATS[source.byte() % len(FORMATS)]
            else:
                self.files[NAMES[source.byte() % len(NAMES)]] = source.take(source.byte())

        if sum(name.endswith(".seg") and "/" not in name for name in self.files) > 1:
            # Segments that contradict each other are more than one flipped bit.
            self.written |= self.inner

    def _segment(self, source: Source) -> bytes:
        content = bytearray()
        last_id = 0
        # Where nobody knows where a record begins, one inside another cannot be told.
        clear = not self.files
        for _ in range(source.byte() % 9):
            kind = source.byte()
            if kind % 8 < 4:
                # Perhaps with another inside, as a queue of queues would have it.
                record_id, inner = source.number(), b""
                clear = clear and last_id < record_id < 2**62
                if kind % 8 == 3 and clear:
                    inner = independent.make_record(source.number(), source.take(8), level=0)
                content += self._record(source, record_id, inner)
                last_id = record_id
            elif kind % 8 == 4:
                record_id = last_id + 1 + source.byte()
                inner_id = source.number()
                self.inner.add((inner_id, b"inner"))
                inner = independent.make_record(inner_id, b"inner", level=0)
                damaged = bytearray(self._record(source, record_id, inner if clear else b""))
                damaged[source.byte() % len(damaged)] ^= 1 << source.byte() % 8
                content += damaged
                if clear:  # one flipped bit and nothing else
                    return bytes(content + self._record(source, record_id + 1))
            elif kind % 8 == 5:
                payload = source.take(source.byte() % 32)
                record_id = source.number()
                content += self._raw_record(record_id, payload, independent.UNIX_MS)
                with contextlib.suppress(zlib.error):
                    self.written.add((record_id, zlib.decompress(payload, -15)))
                clear = False
            elif kind % 8 == 6:
                content += bytes(source.byte() * (1 + source.byte() % 20))
                clear = False
            else:
                content += source.take(source.byte())
                clear = False
        cut = source.byte()
        return bytes(content if cut < 192 else content[: len(content) - cut + 192])

    def _record(self, source: Source, record_id: int, inner: bytes = b"") -> bytes:
        data = inner or source.take(source.byte() % 64)
        self.written.add((record_id, data))
        unix_ms = int.from_bytes(source.take(8), "little", signed=True)
        return self._raw_record(record_id, independent.stored(data), unix_ms)

    def _raw_record(self, record_id: int, payload: bytes, unix_ms: int) -> bytes:
        self.largest_id = max(self.largest_id, record_id if record_id < 2**63 else 0)
        return independent.raw_record(record_id % 2**64, payload, unix_ms)

    def _checkpoint(self, source: Source) -> bytes:
        kind = source.byte()
        if kind < 192:
            return independent.make_checkpoint(source.number(), crc=kind % 2 == 0)
        return source.take(source.byte() % 48)

    def _journal(self, source: Source) -> bytes:
        content = b""
        for _ in range(source.byte() % 9):
            kind = source.byte()
            if kind % 4 == 0:
                content += independent.make_journal(f"ack {source.number()}")
            elif kind % 4 < 3:
                ids = [source.number(), source.number()]
                ids += [ids[1] + n for n in range(1, kind // 4 % 4)]
                content += independent.make_journal("put " + " ".join(map(str, ids)))
            else:
                content += source.take(source.byte() % 32)
        return content


def check(data: bytes) -> None:
    """Open the directory an input describes, and again after a crash; assert what must hold."""
    from ahwal.errors import WALFormatError, WALWriteError
    from ahwal.testing import SimulatedDisk
    from ahwal.wal import WAL

    directory = Directory(Source(data))
    disk = SimulatedDisk(Random(len(data)))
    for name, content in directory.files.items():
        disk.put_file(name, content)

    def reopen(*, append: bytes = b"", remove: Sequence[int] = ()):
        wal = WAL.open("simulated", storage=disk.storage(), max_age_seconds=None, segment_bytes=200)
        found = [(entry.id, entry.data) for entry in wal.peek(EVERYTHING, EVERYTHING)]
        again = [(entry.id, entry.data) for entry in wal.peek(EVERYTHING, EVERYTHING)]
        assert again == found, "two readings differ"
        assert wal.stats().batches == len(found)
        if append:
            try:
                new_id = wal.append(append)
            except WALWriteError:
                assert directory.largest_id > 2**63 - 4, "only when the ids are used up"
                wal.close()
                return found
            assert new_id > max((entry_id for entry_id, _ in found), default=0)
            found.append((new_id, append))
        for entry_id in remove:
            wal.remove(entry_id)
        disk.kill_process() if remove else disk.cut_power()
        return found

    try:
        first = reopen()
    except WALFormatError:
        assert directory.files["format"].strip(b"\0 \n") not in {b"", b"1"}
        assert disk.files() == dict(sorted(directory.files.items())), "touched what is not ours"
        return
    for entry in first:
        assert entry in directory.written, f"nobody wrote {entry}"
    assert len({entry_id for entry_id, _ in first}) == len(first), "an id is there twice"
    if directory.largest_id > independent.NUMBER_MAX - 8:
        # So large a number cannot be noted: what is done comes again.
        reopen(append=b"second")
        return
    second = reopen(append=b"second")
    assert second[: len(first)] == first, "the second opening differs"
    third = reopen(append=b"third")
    assert third[: len(second)] == second, "what was appended is gone or moved"
    if max(third)[0] < independent.NUMBER_MAX:
        reopen(remove=[entry_id for entry_id, _ in third])
        assert reopen() == [], "what was removed came back"


def main() -> None:
    import atheris

    logging.getLogger("ahwal.wal").setLevel(logging.CRITICAL)
    with atheris.instrument_imports(include=["ahwal.wal", "ahwal.testing"]):
        import ahwal.testing
        import ahwal.wal  # noqa: F401 (instrumented here)
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
