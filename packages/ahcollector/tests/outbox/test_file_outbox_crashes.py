"""The file outbox is killed, or its machine loses power, at every call that it makes of the disk.

Before each call the directory is kept as it is then: what a process that was killed there leaves;
and as the disk alone has it, if only what was synced survives: a file's content from its last sync,
under the names that the directory had at its last sync. Every image must open and hold what was
promised by then.
"""

import contextlib
import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ahcollector._sealed import seal
from ahcollector.errors import OutboxError
from ahcollector.outbox import FileOutbox, OutboxBounds
from ahcollector.testing._contracts.outbox import T0, event

pytestmark = [pytest.mark.anyio, pytest.mark.fault]


class Disk:
    """Keeps images of one directory at each call; what they must hold is set between calls.

    Attributes:
        images: Pairs of an image (name to bytes) and what was promised by then.
        promised: Numbers that must be in the queue or among the letters.
    """

    def __init__(self, directory, monkeypatch):
        self.directory = directory
        self.images = []
        self.promised = frozenset()
        self._synced = {}
        self._names = {}
        self._seen = set()
        for module, name in (
            (os, "write"),
            (os, "fsync"),
            (os, "fdatasync"),
            (os, "open"),
            (os, "mkdir"),
            (os, "unlink"),
            (os, "rename"),
            (os, "replace"),
        ):
            monkeypatch.setattr(module, name, self._watched(name, getattr(module, name)))

    def _watched(self, name, call):
        def watched(*arguments, **named):
            self._keep()
            result = call(*arguments, **named)
            if name in ("fsync", "fdatasync"):
                self._sync(arguments[0])
            return result

        return watched

    def _sync(self, descriptor):
        status = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == self.directory:
            self._names = {one.name: one.stat().st_ino for one in self.directory.iterdir()}
        elif path.parent == self.directory:
            self._synced[status.st_ino] = path.read_bytes()

    def remember(self):
        """Take what is there as synced."""
        self._names = {one.name: one.stat().st_ino for one in self.directory.iterdir()}
        self._synced = {one.stat().st_ino: one.read_bytes() for one in self.directory.iterdir()}

    def _keep(self):
        if not self.directory.is_dir():
            return
        killed = {one.name: one.read_bytes() for one in self.directory.iterdir()}
        power = {name: self._synced.get(inode, b"") for name, inode in self._names.items()}
        for image in (killed, power):
            mark = (frozenset(image.items()), self.promised)
            if mark not in self._seen:
                self._seen.add(mark)
                self.images.append((image, self.promised))


async def held(directory, image):
    """Open an image; return the numbers it holds, and the damage."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    for name, content in image.items():
        (directory / name).write_bytes(content)
    outbox = await FileOutbox.open(directory, now=T0)
    try:
        waiting = [entry.event.seq for entry in await outbox.peek(10_000)]
        dead = [int(one.letter_id[-12:], 16) for one in await outbox.dead_letters(limit=10_000)]
        assert len(waiting) + len(dead) == len({*waiting, *dead}), "one is in two places"
        # It works on.
        assert await outbox.append([event(99_999)], T0) == 1
    finally:
        await outbox.close()
    return {*waiting, *dead}, outbox.damaged_lines


async def life(directory, disk, rng, *, steps):
    """Everything an outbox does, also its compaction; what it must hold is told to the disk."""
    outbox = await FileOutbox.open(directory, now=T0, bounds=OutboxBounds(dead_max=10_000))
    number, kept = 0, set()
    for step in range(steps):
        some = [event(number + n) for n in range(rng.randint(1, 3))]
        number += len(some)
        await outbox.append(some, T0)
        kept |= {one.seq for one in some}
        disk.promised = frozenset(kept)
        ids = [entry.event.event_id for entry in await outbox.peek(2)]
        what = rng.choice(["ack", "ack", "dead", "replay", "purge"])
        letters = await outbox.dead_letters(limit=2)
        going = ids if what == "ack" else [one.letter_id for one in letters]
        if what in ("ack", "purge"):
            # From here on they may be gone or not.
            kept -= {int(one[-12:], 16) for one in going}
            disk.promised = frozenset(kept)
        if what == "ack":
            await outbox.ack(ids, None)
        elif what == "dead":
            await outbox.dead(ids, "rejected", T0, None)
        else:
            await getattr(outbox, what)(going, *([T0] if what == "replay" else []))
        if step % 7 == 6:
            await outbox.close()
            outbox = await FileOutbox.open(directory, now=T0)
    await outbox.close()


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 25), *(pytest.param(n, 60, marks=pytest.mark.nightly) for n in (2, 3))]
)
async def test_killed_or_without_power_at_every_call(tmp_path, monkeypatch, seed, steps):
    """Also in the middle of each compaction: it is due after a few lines here."""
    monkeypatch.setattr("ahcollector.outbox.file._COMPACT_LINES_MIN", 6)
    directory = tmp_path / "live" / "outbox"
    with monkeypatch.context() as patched:
        disk = Disk(directory, patched)
        await life(directory, disk, random.Random(seed), steps=steps)
    assert len(disk.images) > 60
    replaced = 0
    for image, promised in disk.images:
        found, damaged = await held(tmp_path / "image", image)
        assert promised <= found
        assert damaged <= 1, "a line that was being written"
        replaced += any(name.endswith(".tmp") for name in image)
    assert replaced > 0, "no image is from the middle of a compaction"


async def test_killed_while_it_moves_what_is_unreadable(tmp_path, monkeypatch):
    """At each call of an opening: it is in the queue's file or among the letters, never in none."""
    directory = tmp_path / "live" / "outbox"
    directory.mkdir(parents=True, mode=0o700)
    (directory / "outbox.log").write_bytes(
        seal({"op": "append", "at": T0, "event": {"event_id": "no id"}})
    )
    with monkeypatch.context() as patched:
        disk = Disk(directory, patched)
        disk.remember()
        await (await FileOutbox.open(directory, now=T0)).close()
        os.mkdir(tmp_path / "end")  # noqa: PTH102 - watched: the image of the end
    assert len(disk.images) > 5
    for image, _ in disk.images:
        place = tmp_path / "image"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        for name, content in image.items():
            (place / name).write_bytes(content)
        outbox = await FileOutbox.open(place, now=T0)
        [letter] = await outbox.dead_letters()
        assert (letter.reason, letter.body) == ("unreadable", b'{"event_id":"no id"}')
        await outbox.close()


async def test_what_a_killed_compaction_left_is_cleared_away(tmp_path):
    directory = tmp_path / "outbox"
    directory.mkdir(mode=0o700)
    left = [directory / ".outbox.log.abc.tmp", directory / ".deadletter.jsonl.x.tmp"]
    for path in left:
        path.write_bytes(b"half")
    (directory / "notes.tmp").write_bytes(b"not ours")
    outbox = await FileOutbox.open(directory, now=T0)
    assert not any(path.exists() for path in left)
    assert (directory / "notes.tmp").exists()
    await outbox.close()


async def test_what_is_set_aside_is_bounded(tmp_path, monkeypatch):
    """Two files of it at most; the older one goes."""
    monkeypatch.setattr("ahcollector.outbox.file._DAMAGED_BYTES_MAX", 1_000)
    directory = tmp_path / "outbox"
    for turn in range(30):
        directory.mkdir(mode=0o700, exist_ok=True)
        (directory / "outbox.log").write_bytes(b"%03d " % turn + b"x" * 296 + b"\n")
        outbox = await FileOutbox.open(directory, now=T0)
        assert outbox.damaged_lines == 1
        await outbox.close()
    kept = sorted(directory.glob("damaged*"))
    assert [path.name for path in kept] == ["damaged", "damaged.old"]
    assert sum(path.stat().st_size for path in kept) <= 2_000 + 400
    assert b"029 " in (directory / "damaged").read_bytes()


SMALL_FILES = """
import resource, signal, sys
from pathlib import Path
import anyio
from ahcollector.errors import OutboxError
from ahcollector.outbox import FileOutbox
from ahcollector.testing._contracts.outbox import T0, event

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    outbox = await FileOutbox.open(Path(sys.argv[1]), now=T0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    taken, refused = [], 0
    for number in range(100):
        try:
            await outbox.append([event(number, text="x" * 300)], T0)
            taken.append(number)
        except OutboxError:
            refused += 1
    assert refused > 10, refused
    # Room is made by what is delivered, once the file is written anew.
    first = [event(number).event_id for number in taken[:20]]
    try:
        await outbox.ack(first, None)
    except OutboxError:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
        await outbox.ack(first, None)
    await outbox.append([event(1_000)], T0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(*taken[20:], 1_000)

anyio.run(main)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit of a file's size here")
async def test_a_file_that_may_not_grow_refuses_and_keeps_what_it_took(tmp_path):
    """A write that the kernel cuts short: the limit of a file's size stands for a full disk."""
    directory = tmp_path / "outbox"
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, str(directory)], capture_output=True, check=True
    )
    outbox = await FileOutbox.open(directory, now=T0)
    found = [entry.event.seq for entry in await outbox.peek(1_000)]
    assert found == [int(word) for word in done.stdout.split()]
    assert outbox.damaged_lines == 0
    await outbox.close()


async def test_a_small_disk_that_is_full_refuses_and_works_on(tmp_path):
    """The same on a real file system of 256 KiB, where there is a right to mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may mount no tmpfs: run as root to see a real small file system")
    try:
        directory = tmp_path / "outbox"
        (tmp_path / "somebody else's").write_bytes(b"x" * 20_000)
        outbox = await FileOutbox.open(directory, now=T0)
        taken = []
        refusal = ""
        while not refusal:
            try:
                await outbox.append([event(len(taken), text="x" * 500)], T0)
                taken.append(len(taken))
            except OutboxError as error:
                refusal = str(error)
        assert "No space" in refusal
        assert len(taken) > 50
        with pytest.raises(OutboxError):
            await outbox.ping()
        await outbox.close()
        # A crash left half a line, too, and there is no room to set it aside.
        with (directory / "outbox.log").open("ab") as file, contextlib.suppress(OSError):
            file.write(b'{"crc":"0000')
        outbox = await FileOutbox.open(directory, now=T0)
        entries = await outbox.peek(10_000)
        assert [entry.event.seq for entry in entries] == taken
        (directory / "damaged").unlink(missing_ok=True)
        # Whatever makes room: here the hub takes all, and the file is written anew, and is short.
        (tmp_path / "somebody else's").unlink()
        await outbox.ack([entry.event.event_id for entry in entries], None)
        await outbox.append([event(10_000)], T0)
        await outbox.close()
        outbox = await FileOutbox.open(directory, now=T0)
        assert [entry.event.seq for entry in await outbox.peek(10_000)] == [10_000]
        await outbox.close()
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
