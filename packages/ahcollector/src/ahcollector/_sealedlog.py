"""One file of sealed lines that is appended to, and replaced when it has grown too long."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ahcollector._sealed import replace_file

__all__ = ["SealedLog"]


class SealedLog:
    """An append-only file, mode 0600. Every call blocks, and is made by one thread at a time.

    After an error of the disk nothing is known about the end of the file (a part of a line may be
    there, or pages that were never written although a later fsync succeeds), so nothing is appended
    behind it: `broken` is set until `rewrite` has replaced the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self.lines = 0
        self.broken = False

    def read(self) -> bytes:
        """Return the file's bytes; empty when it does not exist. Raises OSError."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def append(self, lines: list[bytes], *, sync: bool) -> None:
        """Write lines at the end; durable on return with `sync`.

        Raises:
            OSError: The lines may be there or not; the log is broken until it is rewritten.
        """
        try:
            descriptor = self._open()
            data = memoryview(b"".join(lines))
            while data:
                data = data[os.write(descriptor, data) :]
            if sync:
                os.fdatasync(descriptor)
        except OSError:
            self.broken = True
            raise
        self.lines += len(lines)

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the whole content; durable on return. Raises OSError: the old one is there."""
        content = list(lines)
        replace_file(self._path, content)
        self.close()
        self.lines = len(content)
        self.broken = False

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
