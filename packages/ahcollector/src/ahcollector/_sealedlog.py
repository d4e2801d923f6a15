"""One file of sealed lines that is appended to, and replaced when it has grown too long."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ahcollector._sealed import replace_file, sync_directory

__all__ = ["SealedLog"]


class SealedLog:
    """An append-only file, mode 0600. Every call blocks, and is made by one thread at a time.

    A write that failed (the disk is full) is taken back, and the next may be tried. After a failed
    sync nothing is known about the end of the file (pages may never have been written although a
    later sync succeeds), so nothing is appended behind it: `broken` is set until `rewrite` has
    replaced the file. The same holds where a write could not be taken back.

    Attributes:
        lines: How many lines this object knows of; who reads the file sets it.
        size_bytes: How long the file was after the last call that did not fail.
        broken: Whether nothing may be appended before a `rewrite`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._named = False
        self.lines = 0
        self.size_bytes = 0
        self.broken = False

    def read(self) -> bytes:
        """Return the file's bytes; empty when it does not exist. Raises OSError."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""
        self.size_bytes = len(data)
        return data

    def append(self, lines: list[bytes], *, sync: bool) -> None:
        """Write lines at the end; durable on return with `sync`.

        Raises:
            OSError: The lines are not there; or, when the log is `broken` now, may be there or not.
        """
        descriptor = self._open()
        end = os.fstat(descriptor).st_size
        data = memoryview(b"".join(lines))
        length = len(data)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError:
            self._cut(descriptor, end)
            raise
        try:
            if sync:
                os.fdatasync(descriptor)
                self._sync_name()
        except OSError:
            self.broken = True
            raise
        self.lines += len(lines)
        self.size_bytes = end + length

    def _cut(self, descriptor: int, end: int) -> None:
        try:
            os.ftruncate(descriptor, end)
        except OSError:
            self.broken = True

    def _sync_name(self) -> None:
        """Make the name of a file durable that `append` made."""
        if not self._named:
            sync_directory(self._path.parent)
            self._named = True

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the whole content; durable on return.

        Raises:
            OSError: The old content is there, or all of the new one; see `replace_file`.
        """
        content = list(lines)
        # Also where this fails behind the replacement: what is appended next must not go to the
        # file that has no name any more, nor be durable under a name that is not.
        self.close()
        self._named = False
        replace_file(self._path, content)
        self.lines = len(content)
        self.size_bytes = sum(map(len, content))
        self.broken = False
        self._named = True

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        return self._descriptor

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # What had to be durable was synced before.
                os.close(self._descriptor)
            self._descriptor = None
