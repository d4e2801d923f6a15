"""What a simulated disk keeps, and what it forgets.

What the disk promises is what POSIX promises and no more:

- A write is safe after `datasync` of its file. Before that a power cut keeps any prefix of the
  file's writes, the last of them perhaps in part, or as zeros where its bytes should be; what is
  kept of one file says nothing about another.
- A name (new, renamed, unlinked) is safe after `sync_directory` of its folder. Before that a power
  cut keeps any of the changes, in order where they concern the same name.
- After a `datasync` that failed, what it should have made safe is lost for good, though reads still
  show it and the next `datasync` succeeds: that is how Linux behaves.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from random import Random
from typing import Literal, TypeVar

import attrs

Call = Literal[
    "write", "read", "truncate", "datasync", "create", "open", "rename", "unlink", "list",
    "make_folder", "sync_directory",
]  # fmt: skip


Result = TypeVar("Result")


class PowerCut(BaseException):
    """The power went; also raised by every later call of the process that was running.

    Not an `Exception`, because no code can catch a power cut and go on.
    """


@attrs.frozen
class Write:
    """Bytes put at an offset."""

    offset: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        """Change the content."""
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        content[self.offset : self.offset + len(self.data)] = self.data


@attrs.frozen
class Truncate:
    """A file cut or lengthened."""

    size: int

    def apply(self, content: bytearray) -> None:
        """Change the content."""
        if len(content) > self.size:
            del content[self.size :]
        else:
            content.extend(bytes(self.size - len(content)))


class Inode:
    """One file: what is safe, what is seen, and the changes between the two."""

    def __init__(self, content: bytes = b"") -> None:
        self.safe = bytearray(content)
        self.current = bytearray(content)
        self.pending: list[Write | Truncate] = []
        self.bad: list[range] = []

    def read(self, offset: int, size: int, name: str) -> bytes:
        """What is seen of a range, unless a part of it cannot be read."""
        end = min(offset + size, len(self.current))
        if any(offset < bad.stop and bad.start < end for bad in self.bad):
            raise os_error(errno.EIO, name)
        return bytes(self.current[offset:end])

    def do(self, change: Write | Truncate) -> None:
        """Change what is seen."""
        change.apply(self.current)
        self.pending.append(change)

    def sync(self) -> None:
        """Make what is pending safe."""
        for change in self.pending:
            change.apply(self.safe)
        self.pending.clear()

    def after_power_cut(self, rng: Random) -> bytes:
        """What a power cut leaves."""
        content = bytearray(self.safe)
        kept = rng.randint(0, len(self.pending))
        for change in self.pending[:kept]:
            change.apply(content)
        if kept < len(self.pending):
            torn = self.pending[kept]
            if isinstance(torn, Write) and rng.random() < 0.7:
                size = rng.randint(0, len(torn.data))
                rest = len(torn.data) - size if rng.random() < 0.3 else 0
                Write(torn.offset, torn.data[:size] + bytes(rest)).apply(content)
        return bytes(content)


Names = dict[str, "Inode | None"]
"""Path to file; None for a folder."""


@attrs.frozen
class NameChange:
    """Names that changed together."""

    folder: str
    names: tuple[str, ...]
    inodes: tuple["Inode | Literal['gone'] | None", ...]

    def apply(self, names: Names) -> None:
        """Change the names."""
        for name, inode in zip(self.names, self.inodes, strict=True):
            if inode == "gone":
                names.pop(name, None)
            else:
                assert not isinstance(inode, str)
                names[name] = inode


@attrs.define
class Fault:
    """A system call that fails: after `skip` that do not, `times` times."""

    call: Call
    errno: int
    skip: int
    times: int
    name_part: str


class Medium:
    """What the disk is behind its two faces, the process's and the test's."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.names: Names = {}
        self.safe_names: Names = {}
        self.changes: list[NameChange] = []
        self.faults: list[Fault] = []
        self.life = 0
        self.locked = False
        self.calls = 0
        self.cut_at: int | None = None
        self.cut_kills_only = False
        self.cut_in: Call | None = None
        self.capacity_bytes: int | None = None
        self.short_writes = False

    @property
    def used_bytes(self) -> int:
        """The size of all files."""
        return sum(len(inode.current) for inode in self.names.values() if inode is not None)

    def kill_process(self) -> None:
        """End the process; what it wrote stays."""
        self.life += 1
        self.locked = False
        self.cut_at = None

    def cut_power(self) -> None:
        """End the process, and keep of what is not synced only what chance wants."""
        self.kill_process()
        names = dict(self.safe_names)
        blocked: set[str] = set()
        for change in self.changes:
            if blocked.intersection(change.names) or self.rng.random() < 0.4:
                blocked.update(change.names)
            else:
                change.apply(names)
        for name in list(names):
            folder = name.rpartition("/")[0]
            if folder and folder not in names:
                del names[name]
        self.changes.clear()
        survivors: dict[int, Inode] = {}
        for name, inode in names.items():
            if inode is not None:
                # One file may have two names for a moment; it stays one file.
                if id(inode) not in survivors:
                    survivors[id(inode)] = Inode(inode.after_power_cut(self.rng))
                names[name] = survivors[id(inode)]
        self.names = names
        self.safe_names = dict(names)

    def enter(self, life: int, call: Call, name: str, effect: Callable[[], Result]) -> Result:
        """One system call: it may be the last one, or fail, or happen."""
        if life != self.life:
            raise PowerCut
        number = self.calls
        self.calls += 1
        if number == self.cut_at:
            self.cut_in = call
            if self.rng.random() < 0.5:
                with contextlib.suppress(OSError):
                    effect()
            if self.cut_kills_only:
                self.kill_process()
            else:
                self.cut_power()
            raise PowerCut
        self._raise_fault(call, name)
        return effect()

    def change(self, *names: tuple[str, "Inode | Literal['gone'] | None"]) -> None:
        """Change names together, in the folder of the first."""
        folder = names[0][0].rpartition("/")[0]
        change = NameChange(
            folder, tuple(name for name, _ in names), tuple(inode for _, inode in names)
        )
        change.apply(self.names)
        self.changes.append(change)

    def sync_names(self, folder: str) -> None:
        """Make the names in a folder safe."""
        kept = []
        for change in self.changes:
            if change.folder == folder:
                change.apply(self.safe_names)
            else:
                kept.append(change)
        self.changes = kept

    def file(self, name: str) -> Inode:
        """The file of a name."""
        if name not in self.names:
            raise os_error(errno.ENOENT, name)
        inode = self.names[name]
        if inode is None:
            raise os_error(errno.EISDIR, name)
        return inode

    def append(self, inode: Inode, data: bytes, name: str) -> int:
        """Add to a file what there is room for."""
        size = len(data)
        if self.short_writes and size > 1 and self.rng.random() < 0.5:
            size = self.rng.randint(1, size)
        if self.capacity_bytes is not None:
            size = min(size, self.capacity_bytes - self.used_bytes)
            if size <= 0:
                raise os_error(errno.ENOSPC, name)
        inode.do(Write(len(inode.current), data[:size]))
        return size

    def _raise_fault(self, call: Call, name: str) -> None:
        for fault in self.faults:
            if fault.call == call and fault.name_part in name and fault.times:
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                inode = self.names.get(name)
                if call == "datasync" and inode is not None:
                    inode.pending.clear()
                raise os_error(fault.errno, name)


def os_error(number: int, name: str) -> OSError:
    """What the system says."""
    return OSError(number, os.strerror(number), name)
