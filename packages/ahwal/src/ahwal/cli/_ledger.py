"""A ledger of what the disk has, so that others can prove that nothing of it was lost.

The file has one JSON object a line, in UTF-8: `seq`, `collected_at_ms`, and `series`, a list of
`{"name", "labels", "value"}`. A line is written and synced only after the append of its batch had
returned. A process that was killed may leave a last line without its end: it says nothing, and a
later run puts a newline behind it before it goes on. Readers leave out lines that are not JSON.
"""

import json
import os
from pathlib import Path

from ahwal.errors import ConfigError
from ahwal.sender import Appended


class Ledger:
    """Writes the file.

    Args:
        path: The file, appended to; made with mode 0600.

    Raises:
        ConfigError: It cannot be opened.
    """

    def __init__(self, path: str) -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")
        except OSError as error:
            raise ConfigError(f"--ledger {path}: cannot be opened ({error.strerror})") from error

    def record(self, appended: Appended) -> None:
        """Write and sync one line.

        Raises:
            OSError: The disk refused.
        """
        document = {
            "seq": appended.seq,
            "collected_at_ms": appended.collected_at_ms,
            "series": [
                {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
                for sample in appended.samples
            ],
        }
        data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
