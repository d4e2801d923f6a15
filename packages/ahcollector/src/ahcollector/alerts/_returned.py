"""Which servers left and send again, as far as a unit has to know."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["Returned"]

_MAX: Final = 10_000


class Returned:
    """When servers left that are back: at most 10,000, those that came back last."""

    def __init__(self) -> None:
        self._left_at_ms: dict[str, int] = {}

    def knows(self, server_id: str, at_ms: int) -> bool:
        """Whether a server is known to be back since it left at `at_ms`."""
        return self._left_at_ms.get(server_id, -1) >= at_ms

    def note(self, server_id: str, at_ms: int) -> None:
        """Note that a server that left at `at_ms` is back."""
        self._left_at_ms.pop(server_id, None)
        self._left_at_ms[server_id] = at_ms
        while len(self._left_at_ms) > _MAX:
            del self._left_at_ms[next(iter(self._left_at_ms))]

    def text(self) -> str | None:
        """Return what `restore` takes; None: nothing."""
        if not self._left_at_ms:
            return None
        return json.dumps(self._left_at_ms, separators=(",", ":"))

    def restore(self, text: str) -> None:
        """Become what a text says. Raises ValueError, TypeError or AttributeError."""
        found = json.loads(text).items()
        self._left_at_ms = {str(server_id): int(at_ms) for server_id, at_ms in found}
