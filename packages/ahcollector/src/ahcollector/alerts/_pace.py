"""How much of a unit is judged and told before others have a turn."""

from __future__ import annotations

from typing import Final

__all__ = ["STEP_WORK", "Pace"]

STEP_WORK: Final = 1_000
"""Rules asked or judged over series in one step: some milliseconds."""

# As how much an event counts, which is made, held against silences and kept.
_EVENT_WORK: Final = 25
_SILENCES_A_WORK: Final = 10


class Pace:
    """Counts work, and says when others should have a turn: after each `STEP_WORK`.

    Attributes:
        silences: How many silences an event is held against.
    """

    def __init__(self) -> None:
        self.silences = 0
        self._told = 0
        self._rested_at = 0

    def told(self) -> None:
        """Count an event."""
        self._told += _EVENT_WORK + self.silences // _SILENCES_A_WORK

    def is_rest_due(self, judged: int) -> bool:
        """Whether others should have a turn; `judged` is the evaluator's work since its start."""
        done = judged + self._told
        if done - self._rested_at < STEP_WORK:
            return False
        self._rested_at = done
        return True
