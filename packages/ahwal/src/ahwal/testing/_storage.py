"""A disk that a test can break; what it promises is described in `_medium`."""

import errno
from collections.abc import Callable
from random import Random
from typing import TypeVar

from ahwal.errors import WALLockedError
from ahwal.testing._medium import Call, Fault, Inode, Medium, PowerCut, Truncate, os_error
from ahwal.wal import File, Lock

__all__ = ["PowerCut", "SimulatedDisk", "SimulatedStorage"]

_Result = TypeVar("_Result")


class SimulatedDisk:
    """One directory on a disk that can be cut off, fill up, and fail.

    A write is safe from a power cut after `datasync` of its file, a name after `sync_directory` of
    its folder; of the rest a power cut keeps what chance wants. After a `datasync` that failed,
    what it should have made safe is lost for good.
    """

    def __init__(
        self,
        rng: Random | None = None,
        *,
        capacity_bytes: int | None = None,
        short_writes: bool = False,
    ) -> None:
        """Make an empty directory.

        Args:
            rng: Decides what a power cut leaves.
            capacity_bytes: What all files together may hold; None for no limit.
            short_writes: Whether writes take only a part now and then.
        """
        self._medium = Medium(rng or Random(0))
        self._medium.capacity_bytes = capacity_bytes
        self._medium.short_writes = short_writes

    @property
    def calls(self) -> int:
        """System calls so far."""
        return self._medium.calls

    @property
    def last_cut(self) -> str | None:
        """The system call in which the power went last, by `cut_in`; None when it did not."""
        return self._medium.cut_in

    @property
    def used_bytes(self) -> int:
        """The size of all files."""
        return self._medium.used_bytes

    def storage(self) -> "SimulatedStorage":
        """The disk as a process sees it, until the process or the power ends."""
        return SimulatedStorage(self._medium)

    def cut_in(self, calls: int | None, *, kill_only: bool = False) -> None:
        """Let the power go in the call after so many more; None for never.

        Args:
            calls: How many calls still happen.
            kill_only: Only the process ends, and nothing it wrote is lost.
        """
        self._medium.cut_at = None if calls is None else self._medium.calls + calls
        self._medium.cut_kills_only = kill_only

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """Change what all files together may hold."""
        self._medium.capacity_bytes = capacity_bytes

    def fail(
        self, call: Call, error: int, *, skip: int = 0, times: int = 1, name_part: str = ""
    ) -> None:
        """Let a system call fail.

        Args:
            call: Which one.
            error: The errno.
            skip: How many of these calls succeed before.
            times: How many fail.
            name_part: Only calls on names that contain it.
        """
        self._medium.faults.append(Fault(call, error, skip, times, name_part))

    def break_bytes(self, name: str, offset: int, size: int) -> None:
        """Let every read that touches a range of a file fail with EIO, as a bad sector does."""
        self._medium.file(name).bad.append(range(offset, offset + size))

    def heal(self) -> None:
        """Let no call fail any more."""
        self._medium.faults.clear()
        for inode in self._medium.names.values():
            if inode is not None:
                inode.bad.clear()

    def kill_process(self) -> None:
        """End the process; what it wrote stays, synced or not."""
        self._medium.kill_process()

    def cut_power(self) -> None:
        """End the process, and keep of what is not synced only what chance wants."""
        self._medium.cut_power()

    def files(self) -> dict[str, bytes]:
        """Path to content of every file, as a process would see them."""
        names = sorted(self._medium.names.items())
        return {name: bytes(inode.current) for name, inode in names if inode is not None}

    def put_file(self, name: str, content: bytes) -> None:
        """Place a file on the disk, synced."""
        self._medium.names[name] = self._medium.safe_names[name] = Inode(content)

    def remove_file(self, name: str) -> None:
        """Take a file from the disk, synced."""
        del self._medium.names[name]
        self._medium.safe_names.pop(name, None)


class _SimulatedFile:
    def __init__(self, medium: Medium, life: int, name: str, inode: Inode) -> None:
        self._medium = medium
        self._life = life
        self._name = name
        self._inode = inode

    def write(self, data: bytes) -> int:
        return self._do("write", lambda: self._medium.append(self._inode, data, self._name))

    def read(self, offset: int, size: int) -> bytes:
        return self._do("read", lambda: self._inode.read(offset, size, self._name))

    def truncate(self, size: int) -> None:
        self._do("truncate", lambda: self._inode.do(Truncate(size)))

    def datasync(self) -> None:
        self._do("datasync", self._inode.sync)

    def next_data(self, offset: int) -> int:
        """There are no holes."""
        return offset

    def close(self) -> None:
        """Nothing to give back; the power may go at any other call."""

    def _do(self, call: Call, effect: Callable[[], _Result]) -> _Result:
        return self._medium.enter(self._life, call, self._name, effect)


class _SimulatedLock:
    def __init__(self, medium: Medium, life: int) -> None:
        self._medium = medium
        self._life = life

    def is_in_place(self) -> bool:
        """The directory stays where it is."""
        return True

    def is_deleted(self) -> bool:
        """The directory stays where it is."""
        return False

    def release(self) -> None:
        if self._medium.life == self._life:
            self._medium.locked = False


class SimulatedStorage:
    """The `ahwal.wal.Storage` of one process on a `SimulatedDisk`."""

    def __init__(self, medium: Medium) -> None:
        """Made by `SimulatedDisk.storage`."""
        self._medium = medium
        self._life = medium.life

    def make(self) -> None:
        """The directory is always there."""

    def lock(self) -> Lock:
        """Take the directory; see `Storage.lock`."""
        if self._medium.locked:
            raise WALLockedError("the simulated disk is in use", pid=None)
        self._medium.locked = True
        return _SimulatedLock(self._medium, self._life)

    def make_folder(self, name: str) -> None:
        """Create a folder; see `Storage.make_folder`."""

        def effect() -> None:
            if name not in self._medium.names:
                self._medium.change((name, None))

        self._do("make_folder", name, effect)

    def create(self, name: str) -> File:
        """Open a new file; see `Storage.create`."""

        def effect() -> File:
            folder = name.rpartition("/")[0]
            if name in self._medium.names:
                raise os_error(errno.EEXIST, name)
            if folder and folder not in self._medium.names:
                raise os_error(errno.ENOENT, name)
            inode = Inode()
            self._medium.change((name, inode))
            return _SimulatedFile(self._medium, self._life, name, inode)

        return self._do("create", name, effect)

    def open(self, name: str) -> File:
        """Open a file for appending and reading; see `Storage.open`."""
        return self._do(
            "open",
            name,
            lambda: _SimulatedFile(self._medium, self._life, name, self._medium.file(name)),
        )

    def open_read(self, name: str) -> File:
        """Open a file for reading; see `Storage.open_read`."""
        return self.open(name)

    def size(self, name: str) -> int | None:
        """The bytes of a file; see `Storage.size`."""
        inode = self._medium.names.get(name)
        return None if inode is None else len(inode.current)

    def list(self, folder: str = "") -> list[str]:
        """The names in a folder; see `Storage.list`."""

        def effect() -> list[str]:
            split = (name.rpartition("/") for name in self._medium.names)
            return [name for parent, _, name in split if parent == folder]

        return self._do("list", folder, effect)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; see `Storage.rename`."""

        def effect() -> None:
            inode = self._medium.file(old)
            self._medium.change((old, "gone"), (new, inode))

        self._do("rename", old, effect)

    def unlink(self, name: str) -> None:
        """Take a file away; see `Storage.unlink`."""

        def effect() -> None:
            self._medium.file(name)
            self._medium.change((name, "gone"))

        self._do("unlink", name, effect)

    def sync_directory(self, folder: str = "") -> None:
        """Make the names in a folder safe; see `Storage.sync_directory`."""
        self._do("sync_directory", folder, lambda: self._medium.sync_names(folder))

    def _do(self, call: Call, name: str, effect: Callable[[], _Result]) -> _Result:
        return self._medium.enter(self._life, call, name, effect)
