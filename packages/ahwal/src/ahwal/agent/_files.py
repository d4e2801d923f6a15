"""Paths that stay where they were, and small files that nothing can make us wait for."""

import errno
import os
import stat
from pathlib import Path


def fixed_path(path: str | os.PathLike[str]) -> str:
    """Return the path as it is from the root, so that no later change of directory moves it.

    What names nothing, or counts from a working directory that is gone, is returned as it is.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        return text
    try:
        return str(Path(text).absolute())
    except OSError:
        return text


def read_small(path: Path, bytes_max: int) -> bytes:
    """Return the first bytes of a file, and refuse what is none, such as a FIFO without a writer.

    Raises:
        OSError: It is not there, is no file, or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
        return stream.read(bytes_max)
