"""What is known while the events of agents are carried once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio.lowlevel
import attrs

from ahcollector.presence.base import Presence, PresenceCounts

__all__ = ["Step"]

_NOBODY: Final = PresenceCounts(agents=0, down=0)


@attrs.define(kw_only=True)
class Step:
    """One call of `AgentEventStage.carry`.

    Attributes:
        now: Its time, Unix seconds.
        presence: Knows how large companies are.
        failed: Companies of which something failed in it.
        sizes: How large companies are, once that was asked.
    """

    now: float
    presence: Presence
    failed: set[str] = attrs.field(factory=set)
    sizes: Mapping[str, PresenceCounts] | None = None

    async def agents(self, company_id: str) -> int:
        """Return how many agents a company has, after others had a turn. Raises PresenceError."""
        await anyio.lowlevel.checkpoint()
        if self.sizes is None:
            self.sizes = await self.presence.company_counts()
        return self.sizes.get(company_id, _NOBODY).agents
