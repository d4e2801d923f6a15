"""The points in windows since the last whole snapshot, stored before their batch is acknowledged.

A window holds many points, and each moves it: to store it with each batch would cost all of them
again. So only the points are, one piece a commit, and a restart puts them into the windows of the
snapshot before.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Final

from ahrules import Evaluator, Series

__all__ = ["Journal"]

_POINTS_MAX: Final = 20_000


class Journal:
    """The points of one unit that are not stored yet, and the number of their piece.

    Attributes:
        is_full: There were too many: a whole snapshot is due in their place.
    """

    def __init__(self) -> None:
        self._number = 0
        self._points: dict[tuple[str, str], tuple[Series, list[float]]] = {}
        self._count = 0
        self.is_full = False

    def __bool__(self) -> bool:
        """Whether there is something to store."""
        return bool(self._points) or self.is_full

    def note(
        self, evaluator: Evaluator, server_id: str, series: Series, at: float, value: float
    ) -> None:
        """Note a point that was judged, where a window holds it."""
        if self.is_full or not isfinite(value) or not evaluator.has_window(server_id, series.key):
            return
        _, points = self._points.setdefault((server_id, series.key), (series, []))
        points += (at, value)
        self._count += 1
        if self._count >= _POINTS_MAX:
            self._forget()
            self.is_full = True

    def piece(self) -> tuple[str, str] | None:
        """Return the piece's number and text; None: there is nothing to store."""
        if not self._points:
            return None
        rows = [
            [server_id, series.name, dict(series.labels), points]
            for (server_id, _), (series, points) in self._points.items()
        ]
        return str(self._number), json.dumps(rows, separators=(",", ":"), allow_nan=False)

    def stored(self, *, whole: bool) -> None:
        """Note that all is stored; the next piece is another one."""
        self._number = 0 if whole else self._number + 1
        self._forget()
        self.is_full = False

    def restore(self, number: str, text: str, evaluator: Evaluator) -> None:
        """Put the points of a piece into an evaluator; pieces come in the order of their numbers.

        Raises:
            ValueError, TypeError: It is no piece of a journal; part of it may be there.
        """
        self._number = max(self._number, int(number) + 1)
        for server_id, name, labels, points in json.loads(text):
            series = Series(name=name, labels=labels)
            for at, value in zip(points[::2], points[1::2], strict=True):
                evaluator.remember(server_id, series, at, value)

    def _forget(self) -> None:
        self._points.clear()
        self._count = 0
