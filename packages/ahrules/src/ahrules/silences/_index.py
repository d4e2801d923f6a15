"""Which silences of a company are to be looked at for an event.

Law: a silence is kept under one thing that an event must have for it to match, and is looked at
where the event has it: a label with a text, as few as possible having the same, or else a label
with a pattern. Those that have neither are looked at for every event. What an index gives still has
to be asked; what it leaves out does not match.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from ahrules._pattern_set import PatternSet
from ahrules.silences._compiled import Compiled
from ahrules.silences._matching import EventFields, fixed_values, labels_of, text_of

_FEW: Final = 16


class SilenceIndex:
    """Silences by position, asked by event.

    Args:
        silences: All of the company's.
        positions: Those that are looked at.
    """

    def __init__(self, silences: Sequence[Compiled] = (), positions: Collection[int] = ()) -> None:
        shared = Counter(
            fixed for place in positions for fixed in fixed_values(silences[place].silence)
        )
        patterns: dict[str, dict[str, list[int]]] = {}
        self._others: list[int] = []
        self._named: dict[str, dict[str, list[int]]] = {}
        for place in positions:
            compiled = silences[place]
            fixed = min(fixed_values(compiled.silence), key=shared.__getitem__, default=None)
            pattern = next(compiled.patterns(), None)
            if fixed is not None and (pattern is None or shared[fixed] <= _FEW):
                self._named.setdefault(fixed[0], {}).setdefault(fixed[1], []).append(place)
            elif pattern is not None:
                patterns.setdefault(pattern[0], {}).setdefault(pattern[1], []).append(place)
            else:
                self._others.append(place)
        self._patterns = {
            label: (PatternSet(list(found)), list(found.values()))
            for label, found in patterns.items()
        }

    def candidates(self, event: EventFields) -> list[int]:
        """Return the positions of those that may match an event, in their order."""
        found = list(self._others)
        for label in labels_of(event):
            if label in self._named:
                found += self._named[label].get(text_of(event, label), ())
            if label in self._patterns:
                patterns, places = self._patterns[label]
                for number in patterns.may_match(text_of(event, label)):
                    found += places[number]
        found.sort()
        return found
