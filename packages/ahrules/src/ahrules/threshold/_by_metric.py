"""The rules on one metric, kept so that a series is asked only for those that it may meet.

Law: a rule that names servers stands under each of them, another one that names the value of a
label under that, and the rest are asked of every series. What `candidates` leaves out does not meet
the series; what it gives still has to be asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ahrules.threshold._rules import Compiled
from ahrules.threshold._series import Series
from ahwire.hub import MatchOp

_NONE: Final[Mapping[str, list[int]]] = {}


class MetricRules:
    """Rules on one metric, in their order.

    Attributes:
        all: All of them.
    """

    def __init__(self, rules: Iterable[Compiled]) -> None:
        self.all = tuple(rules)
        self._others: list[int] = []
        self._by_server: dict[str, list[int]] = {}
        self._by_label: dict[str, dict[str, list[int]]] = {}
        for place, compiled in enumerate(self.all):
            fixed = _fixed_value(compiled)
            if compiled.server_ids is not None and not compiled.server_globs:
                for server in compiled.server_ids:
                    self._by_server.setdefault(server, []).append(place)
            elif fixed is not None:
                label, value = fixed
                self._by_label.setdefault(label, {}).setdefault(value, []).append(place)
            else:
                self._others.append(place)

    def candidates(self, server: str, series: Series) -> Sequence[Compiled]:
        """Return the rules that may meet a series of this metric, in their order."""
        places = [*self._others, *self._by_server.get(server, ())]
        if self._by_label:
            for label, value in series.labels.items():
                places += self._by_label.get(label, _NONE).get(value, ())
        if len(places) == len(self.all):
            return self.all
        places.sort()
        return [self.all[place] for place in places]


def _fixed_value(compiled: Compiled) -> tuple[str, str] | None:
    """Return the label and text without which the rule meets no series; no empty text."""
    for matcher in compiled.rule.matchers:
        if matcher.op is MatchOp.EQ and matcher.value:
            return matcher.label, matcher.value
    return None
