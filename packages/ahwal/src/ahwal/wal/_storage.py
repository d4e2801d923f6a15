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
# A FIFO in the place of a file must not be waited for.
_BASE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


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
        """Return when everything written is on the medium, in a file that has a name."""
        ...

    def next_data(self, offset: int) -> int:
        """The first offset from `offset` on where there may be anything but a hole."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class Lock(Protocol):
    """The right to use the directory."""

    def is_in_place(self) -> bool:
        """Whether the directory is where it was opened, and still this process's."""
        ...

    def is_deleted(self) -> bool:
        """Whether the directory was deleted, so that nothing in it can come back."""
        ...

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
        """Open an existing file for appending and reading; IsADirectoryError when it is no file."""
        ...

    def open_read(self, name: str) -> File:
        """Open an existing file for reading; IsADirectoryError when it is no file."""
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


def away() -> OSError:
    """The error of a directory that is no longer where it was opened, or no longer ours."""
    return OSError(
        errno.ESTALE,
        "its directory was renamed, unmounted, deleted or replaced, or its lock removed: put it "
        "back, or restart",
    )


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
        if not os.fstat(self._descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the file was deleted while it was in use")

    def next_data(self, offset: int) -> int:
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            # Nothing but a hole up to the end; other systems cannot tell.
            no_data = error.errno == errno.ENXIO
            return os.fstat(self._descriptor).st_size if no_data else offset

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class PosixStorage:
    """A real directory on Linux, macOS or another POSIX system.

    Its path counts from where the process is when this is made. While the directory is locked, it
    is this very directory that is used, whatever its path leads to by then.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take a path; nothing is touched before `make`.

        Raises:
            OSError: It is relative, and the working directory is gone.
        """
        self._path = Path(path).absolute()
        self._lock: DirectoryLock | None = None

    def __str__(self) -> str:
        return str(self._path)

    def make(self) -> None:
        self._path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        _restrict(self._path, None)

    def lock(self) -> Lock:
        lock = self._lock = DirectoryLock(self._path)
        return lock

    def make_folder(self, name: str) -> None:
        at, folder = self._at(name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, _DIRECTORY_MODE, dir_fd=at)
        _restrict(folder, at)

    def create(self, name: str) -> File:
        return self._open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)

    def open(self, name: str) -> File:
        return self._open(name, os.O_RDWR | os.O_APPEND)

    def open_read(self, name: str) -> File:
        return self._open(name, os.O_RDONLY)

    def size(self, name: str) -> int | None:
        at, path = self._at(name)
        try:
            status = os.stat(path, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list(self, folder: str = "") -> list[str]:
        try:
            with self._open_folder(folder) as descriptor:
                return os.listdir(descriptor)  # noqa: PTH208 - names only, no objects
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        at, source = self._at(old)
        os.replace(source, self._at(new)[1], src_dir_fd=at, dst_dir_fd=at)

    def unlink(self, name: str) -> None:
        at, path = self._at(name)
        os.unlink(path, dir_fd=at)

    def sync_directory(self, folder: str = "") -> None:
        with self._open_folder(folder) as descriptor:
            try:
                os.fsync(descriptor)
            except OSError as error:
                # Some file systems cannot sync a directory and keep names safe in their own way.
                if error.errno != errno.EINVAL:
                    raise

    def _at(self, name: str) -> tuple[int | None, str]:
        """A directory's descriptor, None for the root, and the path from there."""
        if self._lock is not None and self._lock.directory >= 0:
            return self._lock.directory, name or "."
        return None, str(self._path / name)

    @contextlib.contextmanager
    def _open_folder(self, folder: str) -> Iterator[int]:
        at, path = self._at(folder)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> File:
        at, path = self._at(name)
        try:
            descriptor = os.open(path, flags | _BASE_FLAGS, _FILE_MODE, dir_fd=at)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _no_file(name) from error
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _no_file(name)
        return _PosixFile(descriptor)


def _no_file(name: str) -> OSError:
    return IsADirectoryError(errno.EISDIR, "it is a directory, a link or a device, no file", name)


def _restrict(folder: str | Path, at: int | None) -> None:
    """Close a directory that somebody made with a wider mode, where it is ours to close."""
    status = os.stat(folder, dir_fd=at)
    if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid():
        os.chmod(folder, _DIRECTORY_MODE, dir_fd=at)
