"""Says in the log which rule does not judge which series."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ahcollector.alerts.base import UnitKey
from ahrules import Unjudged

__all__ = ["UnjudgedLog"]

_log = logging.getLogger("ahcollector.alerts")

_NAMED_MAX: Final = 1_000
_KEY_CHARS_MAX: Final = 200
_FAILED: Final = "a rule failed when it judged a series, the other rules judged it: mend the rule"
_NO_ROOM: Final = (
    "a rule does not judge a series: too many rules meet too many series; let fewer meet it "
    "(servers, matchers), or raise the bound"
)


class UnjudgedLog:
    """The log of one unit: a rule is named once for each reason, with the first series.

    Args:
        key: Which unit.
    """

    def __init__(self, key: UnitKey) -> None:
        self._key = key
        self._named: set[tuple[str, str]] = set()

    def name(self, unjudged: Iterable[Unjudged]) -> None:
        """Name those that were not named yet."""
        for one in unjudged:
            if (one.reason, one.rule_id) in self._named or len(self._named) >= _NAMED_MAX:
                continue
            self._named.add((one.reason, one.rule_id))
            extra: dict[str, object] = {
                "company_id": self._key.company_id,
                "shard": self._key.shard,
                "server_id": one.server_id,
                "rule_id": one.rule_id,
                "series_key": one.series_key[:_KEY_CHARS_MAX],
                "reason": one.reason,
            }
            if one.bound is None:
                _log.error(_FAILED, extra=extra | {"error": one.error})
            else:
                _log.error(_NO_ROOM, extra=extra | {"bound": one.bound})
