"""A wake-up call that can be given again and again."""

from __future__ import annotations

import anyio


class Signal:
    """Whoever listens before a `fire` is woken by it; nobody is woken by an earlier one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def listen(self) -> anyio.Event:
        """The event of the next `fire`; take it before looking whether there is work."""
        return self._event

    def fire(self) -> None:
        """Wake all listeners."""
        self._event.set()
        self._event = anyio.Event()
