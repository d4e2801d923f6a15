"""What only the file outbox has: files, damage, a disk that fails, a lock."""

import errno
import os
import subprocess
import sys
import tempfile

import pytest

from ahcollector._sealed import seal
from ahcollector._sealedlog import SealedLog
from ahcollector.errors import OutboxError
from ahcollector.outbox import FileOutbox, OutboxBounds
from ahcollector.outbox._format import load
from ahcollector.testing._contracts.outbox import T0, event

pytestmark = pytest.mark.anyio


async def opened(directory, **bounds):
    return await FileOutbox.open(directory, now=T0, bounds=OutboxBounds(**bounds))


async def numbers(outbox):
    return [entry.event.seq for entry in await outbox.peek(10_000)]


async def letters(outbox):
    return {letter.letter_id: letter.reason for letter in await outbox.dead_letters()}


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "outbox"


async def test_files_are_for_their_owner_only(directory):
    outbox = await opened(directory)
    await outbox.append([event(1), event(2)], T0)
    await outbox.dead([event(1).event_id], "rejected", T0, None)
    assert directory.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert modes == {"outbox.log": 0o600, "deadletter.jsonl": 0o600, "lock": 0o600}
    await outbox.close()


async def test_a_directory_has_one_process(directory):
    outbox = await opened(directory)
    with pytest.raises(OutboxError, match="held by another process"):
        await opened(directory)
    await outbox.close()
    await outbox.close()
    with pytest.raises(OutboxError, match="closed"):
        await outbox.append([event(1)], T0)
    await (await opened(directory)).close()


async def test_a_killed_process_leaves_no_lock(directory):
    code = (
        "import anyio, os, sys\n"
        "from pathlib import Path\n"
        "from ahcollector.outbox import FileOutbox\n"
        "from ahcollector.testing._contracts.outbox import event\n"
        "async def main():\n"
        "    outbox = await FileOutbox.open(Path(sys.argv[1]), now=0.0)\n"
        "    await outbox.append([event(1), event(2)], 0.0)\n"
        "    await outbox.ack([event(1).event_id], None)\n"
        "    os.kill(os.getpid(), 9)\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(directory)], check=False)
    assert done.returncode == -9
    outbox = await opened(directory)
    assert await numbers(outbox) == [2]
    await outbox.close()


async def filled(directory):
    """Three waiting, one acknowledged, one dead; return both files' bytes."""
    outbox = await opened(directory)
    for number in range(4):
        await outbox.append([event(number)], T0)
    await outbox.ack([event(0).event_id], None)
    await outbox.dead([event(2).event_id], "rejected", T0, None)
    await outbox.append([event(4)], T0)
    await outbox.close()
    return (
        (directory / "outbox.log").read_bytes(),
        (directory / "deadletter.jsonl").read_bytes(),
    )


async def reopened(directory, queue, dead):
    (directory / "outbox.log").write_bytes(queue)
    (directory / "deadletter.jsonl").write_bytes(dead)
    (directory / "damaged").unlink(missing_ok=True)
    outbox = await opened(directory)
    try:
        waiting = set(await numbers(outbox))
        dead_ids = set(await letters(outbox))
        # It works on, and what it has now is there again.
        await outbox.append([event(99)], T0)
        damaged = outbox.damaged_lines
    finally:
        await outbox.close()
    again = await opened(directory)
    assert await numbers(again) == [*sorted(waiting), 99]
    assert set(await letters(again)) == dead_ids
    assert again.damaged_lines == 0
    await again.close()
    assert (directory / "damaged").exists() == (damaged > 0)
    return waiting, dead_ids, damaged


def loaded(queue, dead):
    found = load(queue, dead, OutboxBounds(), T0)
    waiting = {entry.event.seq for entry in found.queue}
    return waiting, {letter.letter_id for letter in found.letters}, len(found.damaged)


# Opening is a pure step over the bytes of both files (`load`) and what the disk is told after it;
# the first is tried at every place, both together at some.
EACH, SOME = 1, 29


async def test_every_truncation_opens_and_keeps_the_whole_lines(directory):
    queue, dead = await filled(directory)
    ends = [at + 1 for at, byte in enumerate(queue) if byte == 10]
    two = event(2).event_id
    for cut in range(0, len(queue) + 1, EACH):
        waiting, dead_ids, damaged = loaded(queue[:cut], dead)
        lines = sum(cut >= end - 1 for end in ends)
        # append 0, 1, 2, 3; ack 0; dead 2; append 4
        expected = [set(), {0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {1, 2, 3}, {1, 3}, {1, 3, 4}]
        assert waiting == expected[lines], cut
        assert dead_ids == (set() if 2 in expected[lines] else {two}), cut
        if cut % SOME == 0:
            assert await reopened(directory, queue[:cut], dead) == (waiting, dead_ids, damaged)
    for cut in range(0, len(dead) + 1, EACH):
        waiting, dead_ids, damaged = loaded(queue, dead[:cut])
        assert waiting == {1, 3, 4}
        assert dead_ids == ({two} if cut >= len(dead) - 1 else set())
        if cut % SOME == 0:
            assert await reopened(directory, queue, dead[:cut]) == (waiting, dead_ids, damaged)


async def test_every_flipped_bit_opens_and_is_seen(directory):
    """It costs at most the one line it is in; the line is kept aside and counted."""
    queue, dead = await filled(directory)
    for at in range(len(queue)):
        for bit in range(8):
            broken = flipped(queue, at, bit)
            waiting, dead_ids, damaged = loaded(broken, dead)
            # A lost acknowledgement brings an event back: sent twice rather than never.
            assert len(waiting ^ {1, 3, 4}) <= 1, at
            assert damaged > 0 or (waiting == {1, 3, 4} and dead_ids), at
        if at % SOME == 0:
            assert await reopened(directory, broken, dead) == (waiting, dead_ids, damaged)
    for at in range(len(dead)):
        for bit in range(8):
            broken = flipped(dead, at, bit)
            waiting, dead_ids, damaged = loaded(queue, broken)
            assert waiting == {1, 3, 4}
            assert damaged > 0 or dead_ids
        if at % SOME == 0:
            assert await reopened(directory, queue, broken) == (waiting, dead_ids, damaged)


def flipped(data, at, bit):
    broken = bytearray(data)
    broken[at] ^= 1 << bit
    return bytes(broken)


async def test_a_line_that_is_no_event_is_a_dead_letter_and_stops_nobody(directory):
    """C21: the first of the queue is unreadable."""
    directory.mkdir(mode=0o700)
    lines = [
        seal({"op": "append", "at": T0, "event": {"event_id": "no id", "type": "agent.down"}}),
        seal({"op": "append", "at": "yesterday", "event": {}}),
        seal({"op": "unheard of"}),
    ]
    (directory / "outbox.log").write_bytes(b"".join(lines))
    outbox = await opened(directory)
    await outbox.append([event(number) for number in range(100)], T0)
    assert len(await numbers(outbox)) == 100
    found = await outbox.dead_letters()
    assert len(found) == 3
    assert {letter.reason for letter in found} == {"unreadable"}
    assert b'"no id"' in found[0].body
    assert await outbox.replay(None, T0) == 0
    await outbox.close()
    outbox = await opened(directory)
    assert len(await outbox.dead_letters()) == 3
    assert await outbox.purge(None) == 3
    await outbox.close()


@pytest.mark.parametrize("step", ["dead", "replay"])
async def test_a_crash_between_the_two_files_leaves_the_queues_copy(directory, step):
    """In both files: it is sent once more, and is never lost."""
    outbox = await opened(directory)
    await outbox.append([event(1)], T0)
    before = (directory / "outbox.log").read_bytes()
    await outbox.dead([event(1).event_id], "rejected", T0, None)
    letter = (directory / "deadletter.jsonl").read_bytes()
    if step == "replay":
        await outbox.replay(None, T0)
        before = (directory / "outbox.log").read_bytes()
    await outbox.close()
    waiting, dead_ids, damaged = await reopened(directory, before, letter)
    assert (waiting, dead_ids, damaged) == ({1}, set(), 0)


async def test_a_long_history_is_compacted(directory):
    outbox = await opened(directory)
    await outbox.append([event(1_000_000)], T0)
    for number in range(520):
        await outbox.append([event(number)], T0)
        await outbox.ack([event(number).event_id], None)
    lines = (directory / "outbox.log").read_bytes().count(b"\n")
    assert lines < 100
    await outbox.close()
    outbox = await opened(directory)
    assert await numbers(outbox) == [1_000_000]
    assert await outbox.append([event(519)], T0) == 0
    await outbox.close()


async def test_a_compaction_that_fails_costs_nothing(directory, monkeypatch):
    outbox = await opened(directory)
    await outbox.append([event(number) for number in range(2_000)], T0)
    delivered = [event(number).event_id for number in range(1_999)]
    with monkeypatch.context() as patched:

        def full(*_, **__):
            raise OSError(errno.ENOSPC, "no space left on device")

        patched.setattr(tempfile, "mkstemp", full)
        assert await outbox.ack(delivered, None) == 1_999
    assert await numbers(outbox) == [1_999]
    assert (directory / "outbox.log").read_bytes().count(b"\n") == 2_001
    await outbox.append([event(6_000)], T0)
    await outbox.close()
    outbox = await opened(directory)
    assert await numbers(outbox) == [1_999, 6_000]
    await outbox.close()


class BadDisk:
    """The real calls of the operating system, until a test says otherwise."""

    def __init__(self, monkeypatch):
        self.write_bytes_max = None
        self.write_error = None
        self.sync_error = None
        real_write, real_sync = os.write, os.fdatasync

        def write(descriptor, data):
            if self.write_error is not None:
                real_write(descriptor, bytes(data)[: len(data) // 2])
                raise self.write_error
            limit = self.write_bytes_max or len(data)
            return real_write(descriptor, bytes(data)[:limit])

        def sync(descriptor):
            if self.sync_error is not None:
                error, self.sync_error = self.sync_error, None
                raise error
            return real_sync(descriptor)

        monkeypatch.setattr(os, "write", write)
        monkeypatch.setattr(os, "fdatasync", sync)


async def test_short_writes_write_it_all(directory, monkeypatch):
    BadDisk(monkeypatch).write_bytes_max = 7
    outbox = await opened(directory)
    await outbox.append([event(1), event(2)], T0)
    await outbox.close()
    outbox = await opened(directory)
    assert await numbers(outbox) == [1, 2]
    await outbox.close()


async def test_a_probe_tells_of_a_failed_disk_until_it_is_well(directory, monkeypatch):
    """Also when nobody appends anything any more."""
    disk = BadDisk(monkeypatch)
    outbox = await opened(directory)
    await outbox.ping()
    disk.write_error = OSError(errno.ENOSPC, "no space left on device")
    with pytest.raises(OutboxError):
        await outbox.append([event(1)], T0)
    with monkeypatch.context() as patched:

        def full(*_, **__):
            raise OSError(errno.ENOSPC, "no space left on device")

        patched.setattr(tempfile, "mkstemp", full)
        for _ in range(2):
            with pytest.raises(OutboxError, match="no space"):
                await outbox.ping()
    disk.write_error = None
    await outbox.ping()
    assert not (directory / "probe").exists()
    assert await outbox.append([event(1)], T0) == 1
    await outbox.close()
    with pytest.raises(OutboxError, match="closed"):
        await outbox.ping()


async def test_a_full_disk_refuses_and_what_was_appended_stays(directory, monkeypatch):
    disk = BadDisk(monkeypatch)
    outbox = await opened(directory)
    await outbox.append([event(1)], T0)
    disk.write_error = OSError(errno.ENOSPC, "no space left on device")
    with pytest.raises(OutboxError, match="no space"):
        await outbox.append([event(2)], T0)
    with pytest.raises(OutboxError):
        await outbox.ack([event(1).event_id], None)
    assert await numbers(outbox) == [1]
    disk.write_error = None
    assert await outbox.append([event(2), event(3)], T0) == 2
    await outbox.close()
    outbox = await opened(directory)
    assert await numbers(outbox) == [1, 2, 3]
    assert outbox.damaged_lines == 0
    await outbox.close()


async def test_after_a_failed_sync_nothing_of_the_old_file_is_trusted(directory, monkeypatch):
    """A later sync can succeed although pages were lost: the file is written anew."""
    disk = BadDisk(monkeypatch)
    outbox = await opened(directory)
    await outbox.append([event(1)], T0)
    before = (directory / "outbox.log").stat().st_ino
    disk.sync_error = OSError(errno.EIO, "input/output error")
    with pytest.raises(OutboxError):
        await outbox.append([event(2)], T0)
    assert await outbox.append([event(2)], T0) == 1
    assert (directory / "outbox.log").stat().st_ino != before
    await outbox.close()
    outbox = await opened(directory)
    assert await numbers(outbox) == [1, 2]
    await outbox.close()


async def test_a_full_outbox_refuses_and_keeps_what_it_has(directory):
    outbox = await opened(directory, events_max=2)
    await outbox.append([event(1), event(2)], T0)
    with pytest.raises(OutboxError, match="2 events"):
        await outbox.append([event(3)], T0)
    assert await outbox.append([event(1)], T0) == 0
    assert await numbers(outbox) == [1, 2]
    await outbox.close()


@pytest.mark.parametrize("what", ["a file in its place", "a directory in a file's place"])
async def test_a_place_that_cannot_be_used_is_named(tmp_path, what):
    directory = tmp_path / "outbox"
    if what == "a file in its place":
        directory.write_text("x")
    else:
        (directory / "outbox.log").mkdir(parents=True)
    with pytest.raises(OutboxError, match=str(directory)):
        await opened(directory)


def test_a_log_that_cannot_be_replaced_keeps_its_old_content(tmp_path):
    log = SealedLog(tmp_path / "log")
    log.append([b"one\n"], sync=True)

    def lines():
        raise OSError(errno.ENOSPC, "no space left on device")
        yield b""

    with pytest.raises(OSError, match="no space"):
        log.rewrite(lines())
    log.append([b"two\n"], sync=True)
    assert log.read() == b"one\ntwo\n"
    log.close()
