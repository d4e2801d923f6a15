"""What is held back, by the silences that match it.

Law: a matcher is asked about what is held once for each event of it, and once again for a silence
that is new. When silences end or begin, nothing is asked: each holds or not, and what is held is
due when none of those that match it holds.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TypeAlias

from attrs import frozen

from ahrules._draft import EventKey
from ahrules.silences._companies import Company, bits_of
from ahrules.silences._set import SilenceSet, companies_of
from ahwire.hub import Event

Group: TypeAlias = tuple[str, int]
"""A company, and those of its silences that match."""

_NO_SILENCES: Final = Company()


@frozen(kw_only=True)
class HeldEvent:
    """What a silence holds back.

    Attributes:
        event: The newest event that told that it began; suppressed.
        silence_id: The silence that suppressed it.
    """

    event: Event
    silence_id: str


class HeldEvents:
    """What is held back by event key, with the silences that match it."""

    def __init__(self, silences: SilenceSet) -> None:
        self._companies = companies_of(silences)
        self._held: dict[EventKey, HeldEvent] = {}
        self._groups: dict[EventKey, Group] = {}
        self._members: dict[Group, int] = {}

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._held)

    def __iter__(self) -> Iterator[HeldEvent]:
        """Yield them, those that are held for longest first."""
        return iter(self._held.values())

    def get(self, key: EventKey) -> HeldEvent | None:
        """Return what is held for a key."""
        return self._held.get(key)

    def put(self, key: EventKey, held: HeldEvent) -> None:
        """Hold it, in the place of what was held for the key."""
        if held is self._held.get(key):
            return
        self._held[key] = held
        company_id = held.event.company_id
        company = self._companies.get(company_id, _NO_SILENCES)
        self._join(key, (company_id, company.matching(held.event)))

    def pop(self, key: EventKey) -> None:
        """Hold nothing for a key any more."""
        if self._held.pop(key, None) is not None:
            self._leave(key)

    def become(self, found: Mapping[EventKey, HeldEvent]) -> None:
        """Hold these and no others."""
        self._held, self._groups, self._members = {}, {}, {}
        for key, held in found.items():
            self.put(key, held)

    def replace(self, silences: SilenceSet) -> None:
        """Put other silences in force; of those that stay the same nothing is asked again."""
        before, self._companies = self._companies, companies_of(silences)
        moves = {
            company_id: _Move(
                before.get(company_id, _NO_SILENCES), self._companies.get(company_id, _NO_SILENCES)
            )
            for company_id in {company_id for company_id, _ in self._members}
        }
        masks = {
            (company_id, mask): moves[company_id].kept(mask) for company_id, mask in self._members
        }
        for key, held in self._held.items():
            group = self._groups[key]
            fresh = moves[group[0]].fresh.matching(held.event)
            self._join(key, (group[0], masks[group] | fresh))

    def overdue(self, now: datetime) -> Iterator[HeldEvent]:
        """Yield those for which no silence holds, those that are held for longest first."""
        active = {
            company_id: self._companies.get(company_id, _NO_SILENCES).active(now)
            for company_id in {company_id for company_id, _ in self._members}
        }
        groups = {group for group in self._members if not group[1] & active[group[0]]}
        if groups:
            for key, held in self._held.items():
                if self._groups[key] in groups:
                    yield held

    def next_change(self, now: datetime) -> datetime | None:
        """Return when a silence next begins or ends to hold that matches what is held."""
        masks: dict[str, int] = {}
        for company_id, mask in self._members:
            masks[company_id] = masks.get(company_id, 0) | mask
        changes = (
            self._companies[company_id].next_change(now, mask)
            for company_id, mask in masks.items()
            if mask
        )
        return min((change for change in changes if change is not None), default=None)

    def _join(self, key: EventKey, group: Group) -> None:
        if key in self._groups:
            self._leave(key)
        self._groups[key] = group
        self._members[group] = self._members.get(group, 0) + 1

    def _leave(self, key: EventKey) -> None:
        group = self._groups.pop(key)
        self._members[group] -= 1
        if not self._members[group]:
            del self._members[group]


class _Move:
    """From the silences of a company to others: what of a mask stays, and what is new.

    Attributes:
        fresh: The new company, of whose silences only those are looked at that were not there.
    """

    def __init__(self, before: Company, after: Company) -> None:
        places = {each.silence.silence_id: place for place, each in enumerate(after.all)}
        self._places = {
            old: places[each.silence.silence_id]
            for old, each in enumerate(before.all)
            if each.silence.silence_id in places
            and after.all[places[each.silence.silence_id]].silence == each.silence
        }
        stays = set(self._places.values())
        self.fresh = after.among([place for place in range(len(after.all)) if place not in stays])

    def kept(self, mask: int) -> int:
        """Return a mask of the silences before as one of those after."""
        found = 0
        for old in bits_of(mask):
            place = self._places.get(old)
            if place is not None:
                found |= 1 << place
        return found
