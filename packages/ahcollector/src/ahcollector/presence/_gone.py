"""Agents that were removed: the seq they had, and for how long no contact brings them back."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import attrs

__all__ = ["SEQ_KEEP_SECONDS", "Gone", "GoneAgent", "check_quiet"]

SEQ_KEEP_SECONDS: Final = 30 * 86_400
_STRANGERS_MAX: Final = 10_000


@attrs.frozen(kw_only=True)
class GoneAgent:
    """A removed agent whose seq is kept."""

    agent_id: str
    seq: int
    removed_at: float


def check_quiet(seconds: float) -> float:
    """Return how long an id is quiet after its removal. Raises ValueError when it is no length."""
    if not 0 <= seconds < math.inf:
        raise ValueError(f"removed_quiet_seconds is {seconds}; it must be 0 (off) or above")
    return float(seconds)


class Gone:
    """The removed agents of a memory presence, the longest gone first.

    An id is *quiet* for `quiet_seconds` from its removal on: a contact that was let in before the
    registry's change, and comes after it, must not begin a watch that nobody ends. A removal that
    lies further ahead than that was dated by a clock that stepped back since, and binds nobody: so
    no step makes an id quiet for more than twice the time.

    Args:
        gone: Those of an earlier process.
        quiet_seconds: Above the time for which any process may still believe an old token; 0: off.
    """

    def __init__(self, gone: Iterable[GoneAgent] = (), *, quiet_seconds: float) -> None:
        self._gone = OrderedDict((one.agent_id, one) for one in gone)
        # When ids were removed that nobody knew: bounded, because there is no end of such ids.
        self._strangers: OrderedDict[str, float] = OrderedDict()
        self._quiet_seconds = check_quiet(quiet_seconds)

    def add(self, agent_id: str, *, seq: int, now: float) -> None:
        """Note that a known agent was removed."""
        self._gone[agent_id] = GoneAgent(agent_id=agent_id, seq=seq, removed_at=now)
        self._gone.move_to_end(agent_id)

    def add_again(self, agent_id: str, now: float) -> None:
        """Note the removal of an id that is not known, or not any more: its quiet begins anew."""
        gone = self._gone.get(agent_id)
        if gone is not None:
            self.add(agent_id, seq=gone.seq, now=now)
            return
        self._strangers[agent_id] = now
        self._strangers.move_to_end(agent_id)
        if len(self._strangers) > _STRANGERS_MAX:
            self._strangers.popitem(last=False)

    def is_quiet(self, agent_id: str, now: float) -> bool:
        """Return whether a contact at `now` may not make the agent known."""
        gone = self._gone.get(agent_id)
        removed_at = self._strangers.get(agent_id) if gone is None else gone.removed_at
        if removed_at is None:
            return False
        return -self._quiet_seconds < now - removed_at < self._quiet_seconds

    def take(self, agent_id: str) -> int:
        """Forget a removal, and return the seq above which the agent goes on."""
        self._strangers.pop(agent_id, None)
        gone = self._gone.pop(agent_id, None)
        return 0 if gone is None else gone.seq

    def sweep(self, now: float, is_held: Callable[[str], bool]) -> bool:
        """Forget those gone for too long, up to one that `is_held`; return whether any was."""
        swept = False
        while self._gone:
            gone = next(iter(self._gone.values()))
            if gone.removed_at > now - SEQ_KEEP_SECONDS or is_held(gone.agent_id):
                break
            del self._gone[gone.agent_id]
            swept = True
        return swept

    def all(self) -> tuple[GoneAgent, ...]:
        """Return those whose seq is kept; after a restart no contact of a stranger is under way."""
        return tuple(self._gone.values())
