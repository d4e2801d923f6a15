"""The few things a WAL asks of a file system, so that a test can be the file system.

All names are relative to the WAL's directory and at most one folder deep (`quarantine/x`). Errors
are `OSError` with their errno, untranslated: what an error means is decided above.

What is written is safe from a power cut after `datasync` of the file returned *and*, for a new or
renamed file, `sync_directory` of its folder. Until then any prefix of it may survive, and the
folder may show the old name, the new one or neither.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from ahwal.wal._lock import DirectoryLock

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_BASE_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class File(Protocol):
    """An open file. Each method is one system call, unless it says otherwise."""

    def write(self, data: bytes) -> int:
        """Add to the end; may take only a part and returns how many bytes it took."""
        ...

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at `offset`; less only where the file ends (continues short reads)."""
        ...

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes."""
        ...

    def datasync(self) -> None:
        """Return when everything written is on the medium."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class Lock(Protocol):
    """The right to use the directory."""

    def release(self) -> None:
        """Give it back; may be repeated."""
        ...


class Storage(Protocol):
    """One directory and what is in it."""

    def make(self) -> None:
        """Create the directory, owner-only, with its parents; may exist."""
        ...

    def lock(self) -> Lock:
        """Take the directory for this process.

        Raises:
            WALLockedError: Somebody else has it.
        """
        ...

    def make_folder(self, name: str) -> None:
        """Create a folder in it, owner-only; may exist."""
        ...

    def create(self, name: str) -> File:
        """Open a new, empty file for appending and reading; FileExistsError when there is one."""
        ...

    def open(self, name: str) -> File:
        """Open an existing file for appending and reading."""
        ...

    def open_read(self, name: str) -> File:
        """Open an existing file for reading."""
        ...

    def size(self, name: str) -> int | None:
        """The bytes of a regular file; None when there is none of that name."""
        ...

    def list(self, folder: str = "") -> list[str]:
        """The names in the directory or a folder, in no order; empty when there is no folder."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing a file that has it."""
        ...

    def unlink(self, name: str) -> None:
        """Take a file away."""
        ...

    def sync_directory(self, folder: str = "") -> None:
        """Return when the names in the directory or a folder are on the medium."""
        ...


# What a medium answers for bytes that it cannot give back. Other errors say nothing about them.
_MEDIUM_ERRORS = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EBADMSG", "ENODATA", "EUCLEAN")
    if hasattr(errno, name)
)


def is_medium_error(error: OSError) -> bool:
    """Whether it is the bytes that cannot be read, as with a bad sector."""
    return error.errno in _MEDIUM_ERRORS


def write_all(file: File, data: bytes) -> None:
    """Write every byte, continuing after short writes.

    Raises:
        OSError: As `File.write`; a part may have been written.
    """
    written = file.write(data)
    while written < len(data):
        written += file.write(data[written:])


@contextlib.contextmanager
def open_read(storage: Storage, name: str) -> Iterator[File]:
    """Open an existing file for reading and close it in the end."""
    file = storage.open_read(name)
    try:
        yield file
    finally:
        file.close()


def read_whole(storage: Storage, name: str, size_max: int) -> bytes | None:
    """A small file's bytes, None when there is no such file, cut after `size_max` bytes.

    Raises:
        OSError: It is there and cannot be read.
    """
    try:
        with open_read(storage, name) as file:
            return file.read(0, size_max)
    except FileNotFoundError:
        return None


def replace_file(storage: Storage, name: str, content: bytes) -> None:
    """Give a file new content, whole or not at all, and safe from a power cut on return.

    Raises:
        OSError: The old content is still there, or the new one is and is not known to be safe.
    """
    temporary = name + ".tmp"
    with contextlib.suppress(FileNotFoundError):
        storage.unlink(temporary)
    file = storage.create(temporary)
    try:
        write_all(file, content)
        file.datasync()
    finally:
        file.close()
    storage.rename(temporary, name)
    storage.sync_directory(name.rpartition("/")[0])


def _make_datasync() -> Callable[[int], None]:
    full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        # macOS: fsync leaves the data in the drive's cache; only this reaches the medium.
        command = full_sync

        def sync(descriptor: int) -> None:
            fcntl.fcntl(descriptor, command)

        return sync
    return getattr(os, "fdatasync", os.fsync)


_datasync = _make_datasync()


class _PosixFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def datasync(self) -> None:
        _datasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class PosixStorage:
    """A real directory on Linux, macOS or another POSIX system."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take a path; nothing is touched before `make`."""
        self._path = Path(path)

    def __str__(self) -> str:
        return str(self._path)

    def make(self) -> None:
        self._path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        self._restrict(self._path)

    def lock(self) -> Lock:
        return DirectoryLock(self._path / "lock")

    def make_folder(self, name: str) -> None:
        folder = self._path / name
        folder.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        self._restrict(folder)

    def create(self, name: str) -> File:
        return self._open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)

    def open(self, name: str) -> File:
        return self._open(name, os.O_RDWR | os.O_APPEND)

    def open_read(self, name: str) -> File:
        return self._open(name, os.O_RDONLY)

    def size(self, name: str) -> int | None:
        try:
            status = (self._path / name).lstat()
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list(self, folder: str = "") -> list[str]:
        try:
            return os.listdir(self._path / folder)  # noqa: PTH208 (names only, no objects)
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        (self._path / old).replace(self._path / new)

    def unlink(self, name: str) -> None:
        (self._path / name).unlink()

    def sync_directory(self, folder: str = "") -> None:
        descriptor = os.open(self._path / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems cannot sync a directory and keep names safe in their own way.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> File:
        return _PosixFile(os.open(self._path / name, flags | _BASE_FLAGS, _FILE_MODE))

    def _restrict(self, folder: Path) -> None:
        """Close a directory that somebody made with a wider mode, where it is ours to close."""
        if stat.S_IMODE(folder.stat().st_mode) & 0o077 and folder.stat().st_uid == os.geteuid():
            folder.chmod(_DIRECTORY_MODE)
