"""How many agents of a memory presence each company has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import anyio.lowlevel

from ahcollector.presence._state import AgentState
from ahcollector.presence.base import PresenceCounts

__all__ = ["counted"]

_AT_ONCE: Final = 10_000


async def counted(states: Sequence[AgentState]) -> dict[str, PresenceCounts]:
    """Count agents by company; of many, others have their turns meanwhile."""
    agents: Counter[str] = Counter()
    down: Counter[str] = Counter()
    for number, state in enumerate(states, 1):
        if number % _AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
        agents[state.agent.company_id] += 1
        down[state.agent.company_id] += state.down_since is not None
    return {
        company_id: PresenceCounts(agents=count, down=down[company_id])
        for company_id, count in agents.items()
    }
