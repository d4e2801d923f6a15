"""Of when the hub's lists are that a process has, so that an older one takes nothing back."""

from __future__ import annotations

import json
from typing import Protocol

import attrs

__all__ = ["HubList", "HubLists", "ListTimes"]


class HubList(Protocol):
    """A list of the hub's that a process has: what `RulePuller` and `SilencePuller` are."""

    @property
    def as_of(self) -> float:
        """When the hub last said that the list is this one; minus infinity: never."""
        ...

    @property
    def listed_at(self) -> float:
        """When the list was first heard to be this one; minus infinity: never."""
        ...

    async def catch_up(self) -> None:
        """Take what another process kept, where that is newer; failures are told by the log."""
        ...


@attrs.frozen(kw_only=True)
class ListTimes:
    """Of when rules and silences are: Unix seconds by the clock of who keeps the lists.

    Attributes:
        rules: The rules'; 0: not known.
        silences: The silences'; 0: not known.
    """

    rules: float = 0.0
    silences: float = 0.0

    def later(self, other: ListTimes) -> ListTimes:
        """Return the later time of each."""
        return ListTimes(
            rules=max(self.rules, other.rules), silences=max(self.silences, other.silences)
        )

    def to_text(self) -> str:
        """Return what `from_text` reads."""
        return json.dumps([self.rules, self.silences])

    @classmethod
    def from_text(cls, text: str) -> ListTimes:
        """Read what `to_text` returned. Raises ValueError or TypeError."""
        rules, silences = json.loads(text)
        return cls(rules=float(rules), silences=float(silences))


class HubLists:
    """The rules and silences that this process has from the hub.

    Args:
        rules: The rules.
        silences: The silences.
    """

    def __init__(self, *, rules: HubList, silences: HubList) -> None:
        self._rules = rules
        self._silences = silences

    @property
    def as_of(self) -> ListTimes:
        """When the hub last said that they are these."""
        return ListTimes(rules=self._rules.as_of, silences=self._silences.as_of)

    @property
    def listed_at(self) -> ListTimes:
        """When they were first heard to be these."""
        return ListTimes(rules=self._rules.listed_at, silences=self._silences.listed_at)

    async def catch_up(self) -> None:
        """Take what another process kept, where that is newer; failures are told by the log."""
        await self._rules.catch_up()
        await self._silences.catch_up()
