"""Whose turn it is to work the events of agents: the protocol."""

from __future__ import annotations

from typing import Protocol

__all__ = ["DetectorTurn"]


class DetectorTurn(Protocol):
    """Chooses one of several processes. What keeps two from spoiling a state is the state's epoch.

    Both methods raise `AlertStateError` when nobody can say whose turn it is.
    """

    async def hold(self) -> int | None:
        """Take the turn or keep it; return a number of this tenure, None when it is another's.

        The number changes whenever another could have had the turn in between. Cheap enough to be
        called before each page of work.
        """
        ...

    async def drop(self) -> None:
        """Give the turn up, so that another need not wait for its end."""
        ...
