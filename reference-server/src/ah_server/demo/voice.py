"""How the demo speaks: each step as it happens, with the seconds since it began."""

import sys
import threading
from collections.abc import Sequence
from typing import TextIO

from ahwire import Clock


class Voice:
    """Prints steps, findings and the table at the end; lines never interleave."""

    def __init__(self, *, clock: Clock, out: TextIO | None = None) -> None:
        self._clock = clock
        self._out = sys.stdout if out is None else out
        self._began = clock.monotonic()
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Counts the seconds anew, from the end of the set-up."""
        self._began = self._clock.monotonic()

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the beginning, or since `restart`."""
        return self._clock.monotonic() - self._began

    def step(self, text: str) -> None:
        """Something is begun or has happened."""
        self._print(f"[{self.elapsed_seconds:6.1f} s] {text}")

    def proved(self, text: str) -> None:
        """Something that had to be shown was shown."""
        self._print(f"[{self.elapsed_seconds:6.1f} s] ok    {text}")

    def failed(self, text: str) -> None:
        """Something that had to be shown was not."""
        self._print(f"[{self.elapsed_seconds:6.1f} s] FAIL  {text}")

    def table(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """What was counted, in two columns."""
        width = max(len(name) for name, _ in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows]
        self._print("\n".join(["", title, *lines, ""]))

    def last_line(self, text: str) -> None:
        """The one line that is to be read last."""
        self._print(text)

    def _print(self, text: str) -> None:
        with self._lock:
            print(text, file=self._out, flush=True)  # speaking is what this class is for
