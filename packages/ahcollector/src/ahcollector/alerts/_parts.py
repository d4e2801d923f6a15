"""What is stored of a unit: the parts of a whole snapshot, and pieces of what moved since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from ahcollector.alerts._journal import Journal
from ahcollector.alerts._reading import JOURNAL, read_image
from ahcollector.alerts._returned import Returned
from ahcollector.alerts.base import AlertImage
from ahcollector.alerts.lists import ListTimes
from ahcollector.alerts.stages import Pipeline
from ahrules import Evaluator, EventKey

__all__ = ["UnitParts"]

_RULES: Final = "rules"
_RETURNED: Final = "returned"
_LISTS: Final = "lists"
_NOTHING: Final = "{}"
_CHUNK_SERIES: Final = 500
_PIECES_MIN: Final = 20


class UnitParts:
    """Writes and reads the state of an evaluator and its stages.

    Args:
        evaluator: Judges.
        pipeline: Leads what it tells through the stages.

    Attributes:
        journal: The points in windows that are not stored yet.
        returned: Which servers are back.
        lists: Of when the newest lists are that it was judged by.
        moved_series: Server and key of series that moved and are not stored yet.
        moved_alerts: Alerts of which the stages may have moved something, likewise.
    """

    def __init__(self, evaluator: Evaluator, pipeline: Pipeline) -> None:
        self._evaluator = evaluator
        self._pipeline = pipeline
        self.journal = Journal()
        self.returned = Returned()
        self.lists = ListTimes()
        self.moved_series: dict[tuple[str, str], None] = {}
        self.moved_alerts: dict[EventKey, None] = {}
        self._stored_lists = self.lists

    @property
    def is_dirty(self) -> bool:
        """Whether something moved that the next decisions hang on."""
        self._note_moved()
        return bool(self.moved_series or self.moved_alerts or self.journal)

    def whole(self) -> Iterator[tuple[str, str]]:
        """Yield a whole snapshot in parts, each made when it is asked for."""
        self._note_moved()
        for chunk in self._evaluator.snapshot_chunks(_CHUNK_SERIES):
            yield _RULES, chunk.decode()
        returned = self.returned.text()
        if returned is not None:
            yield _RETURNED, returned
        yield _LISTS, self.lists.to_text()
        yield from self._pipeline.snapshot().items()

    def pieces(self) -> dict[str, str | None] | None:
        """Return what moved, by name; None when that needs a whole snapshot."""
        self._note_moved()
        moved = len(self.moved_series)
        # A piece names its rules again, and so costs as much as several series of a whole one.
        is_most = moved > _PIECES_MIN and moved * 8 > self._evaluator.series_count
        if is_most or self.journal.is_full:
            return None
        found: dict[str, str | None] = {}
        for server_id, series_key in self.moved_series:
            data = self._evaluator.snapshot_series(server_id, series_key)
            if data is None:
                return None  # the series left with its alert
            found[_name("s", server_id, series_key)] = data.decode()
        for key in self.moved_alerts:
            # Also where nothing is kept any more: the snapshot before may still have it.
            found[_name("a", *key)] = self._pipeline.snapshot_alert(key) or _NOTHING
        if self.lists != self._stored_lists:
            found[_name(_LISTS)] = self.lists.to_text()
        points = self.journal.piece()
        if points is not None:
            number, text = points
            found[_name(JOURNAL, number)] = text
        return found

    def stored(self, *, whole: bool) -> None:
        """Note that all of it is stored."""
        self.moved_series.clear()
        self.moved_alerts.clear()
        self.journal.stored(whole=whole)
        self._stored_lists = self.lists

    def restore(self, image: AlertImage) -> list[str]:
        """Become what is stored, as far as it can be read; return what could not be."""
        faults = read_image(
            image,
            parts={
                _RULES: lambda text: self._evaluator.restore(text.encode()),
                _RETURNED: self.returned.restore,
                _LISTS: self._restore_lists,
                **self._pipeline.restorers(),
            },
            pieces={
                "s": lambda _, text: self._evaluator.merge(text.encode()),
                "a": self._restore_alert,
                _LISTS: lambda _, text: self._restore_lists(text),
                JOURNAL: lambda name, text: self.journal.restore(name[0], text, self._evaluator),
            },
        )
        self._stored_lists = self.lists
        return faults

    def _note_moved(self) -> None:
        """Note which states moved, also those that told nothing."""
        self.moved_series.update(dict.fromkeys(self._evaluator.take_moved()))

    def _restore_lists(self, text: str) -> None:
        self.lists = ListTimes.from_text(text)

    def _restore_alert(self, names: list[str], text: str) -> None:
        company, server, rule, series, agent, group = names
        self._pipeline.restore_alert((company, server, rule, series, agent, group), text)


def _name(*parts: str) -> str:
    return json.dumps(parts, separators=(",", ":"))
