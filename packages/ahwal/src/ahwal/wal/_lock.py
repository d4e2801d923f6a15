"""One process a directory.

The file `lock` holds the holder's process id in decimal and a newline. What counts is not the file
but the `flock` on it, which the system gives back when the holder dies, however it dies; the file
is never unlinked, because a second process could then lock a file that no longer has a name.

A child made by `fork` shares the holder's lock without wanting it: its copy of the descriptor is
closed, and never unlocked, which would unlock it for the parent too. So the parent keeps the lock,
and a child that sleeps on after the parent's death does not keep it.

The holder keeps the directory itself open too, and names its files from there: a directory that is
renamed, or a program that changes its working directory, never makes it touch another's files.
"""

import errno
import fcntl
import functools
import os
import stat
import time
import weakref
from pathlib import Path

from ahwal.errors import WALLockedError

NAME = "lock"
_PID_BYTES_MAX = 20
_READ_ATTEMPTS = 50
_READ_PAUSE_SECONDS = 0.01


class DirectoryLock:
    """A held lock; making one takes it.

    Attributes:
        directory: A descriptor of the directory; -1 when the lock is not held any more.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Args:
            path: The directory, absolute.

        Raises:
            WALLockedError: Somebody else has it.
            OSError: The file cannot be opened or locked, or is no file.
        """
        # A text, because it is looked up with every append.
        self._path = str(path / NAME)
        self._descriptor = -1
        self.directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._descriptor = _open_regular(self.directory)
            self._take(path)
            status = os.fstat(self._descriptor)
        except BaseException:
            self.forget()
            raise
        self._inode = (status.st_dev, status.st_ino)
        _held().add(self)

    def is_in_place(self) -> bool:
        """Whether the directory still is where it was, with this lock in it."""
        try:
            found = os.lstat(self._path)
        except OSError:
            return False
        # As long as the file is open no other one gets its number.
        return (found.st_dev, found.st_ino) == self._inode

    def is_deleted(self) -> bool:
        """Whether the directory was deleted, so that nothing in it can come back."""
        return not os.fstat(self.directory).st_nlink

    def release(self) -> None:
        """Give the lock back; may be repeated."""
        if self._descriptor >= 0:
            # Said aloud, so that a copy in a child that no hook has reached does not keep it.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """Close this process's copy without giving the lock back."""
        descriptors = (self._descriptor, self.directory)
        self._descriptor = self.directory = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def _take(self, path: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = _read_holder(self._descriptor)
            raise WALLockedError(
                f"{path} is in use by {f'process {pid}' if pid else 'another process'}: "
                "stop it, or give this one a directory of its own",
                pid=pid,
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)


def _open_regular(directory: int) -> int:
    """Open the file `lock`, which is made when it is not there.

    What else may stand there is not moved out of the way: without the lock two processes could do
    so at once, and one would move the other's.
    """
    # A link would lead to a file of somebody else, which is not ours to write to; and a FIFO would
    # wait for one who writes.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    refusal = OSError(
        errno.EISDIR, f"its `{NAME}` is no ordinary file; remove it, or move it away", NAME
    )
    try:
        descriptor = os.open(NAME, flags, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            raise refusal from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refusal
    return descriptor


def _read_holder(descriptor: int) -> int | None:
    # The holder writes its id right after it got the lock, so for a moment there may be none, or
    # that of a holder who is dead. Where it stays so, the holder may live in another container.
    pid: int | None = None
    for _ in range(_READ_ATTEMPTS):
        text = os.pread(descriptor, _PID_BYTES_MAX, 0).strip()
        pid = int(text) if text.isdigit() else None
        if pid and is_alive(pid):
            break
        time.sleep(_READ_PAUSE_SECONDS)
    return pid


def is_alive(pid: int) -> bool:
    """Whether a process of this id is there, as far as this one can see."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


@functools.cache
def _held() -> "weakref.WeakSet[DirectoryLock]":
    """The locks of this process; made, and the hook for `fork` set, with the first of them.

    The hook cannot be taken back and belongs to the process, so this cannot belong to a smaller
    thing.
    """
    held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()

    def close_copies() -> None:
        for lock in list(held):
            lock.forget()

    os.register_at_fork(after_in_child=close_copies)
    return held
