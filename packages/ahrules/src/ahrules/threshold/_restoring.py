"""From a snapshot to series and rules that can be used."""

from collections.abc import Iterable, Mapping

from ahrules._reading import shown
from ahrules.errors import SnapshotError
from ahrules.threshold._book import RuleBook, make_book
from ahrules.threshold._rules import Compiled
from ahrules.threshold._snapshot import Document, read_document
from ahrules.threshold._tracked import Tracked
from ahwire.hub import ThresholdRule


class Restored:
    """A snapshot of one company, read and made ready; nothing else was touched.

    Args:
        data: The snapshot.
        company_id: Whose it must be.
        no_data_after_seconds: For rules that do not say.
        points_max: Of a window.
        known: Rules that stay as they are; the snapshot's are added where their id is new.

    Raises:
        SnapshotError: It is damaged, of another version or company, or its rules cannot be used.
    """

    def __init__(
        self,
        data: bytes,
        *,
        company_id: str,
        no_data_after_seconds: float,
        points_max: int,
        known: Mapping[str, Compiled],
    ) -> None:
        document = read_document(data)
        if document.company_id != company_id:
            raise SnapshotError(
                f"the snapshot is of company {document.company_id!r}, and this evaluator is of "
                f"{company_id!r}; give each its own"
            )
        fresh = [rule for rule in document.rules if rule.rule_id not in known]
        self.has_new_rules = bool(fresh)
        self.book = self._checked(
            make_book(
                _chained(known, fresh),
                company_id=company_id,
                no_data_after_seconds=no_data_after_seconds,
                before=known,
            ),
            document,
        )
        self._meet(document)
        self.series = [row.tracked(self.book.rules, points_max) for row in document.rows]

    def _checked(self, book: RuleBook, document: Document) -> RuleBook:
        lost = [rule.rule_id for rule in document.rules if rule.rule_id not in book.rules]
        if lost:
            raise SnapshotError(
                f"the snapshot has rules that cannot be used here ({', '.join(lost[:8])}); start "
                "from an older one"
            )
        return book

    def _meet(self, document: Document) -> None:
        """Refuse a watch of a rule that leaves the series alone, where it is the rule used here."""
        given = {rule.rule_id: rule for rule in document.rules}
        for row in document.rows:
            for watch in row.watches:
                used = self.book.rules[watch[0]]
                if used.rule == given[watch[0]] and not used.meets(row.server, row.series):
                    raise SnapshotError(
                        f"the snapshot is damaged: the rule {watch[0]!r} watches the series "
                        f"{shown(row.series.key)} of {shown(row.server)}, which it does not meet; "
                        "start from an older one"
                    )

    def count(self) -> list[Tracked]:
        """Count the series at their rules, once they are to be held, and return them."""
        for tracked in self.series:
            for watch in tracked.watches:
                watch.rule.series += 1
        return self.series


def _chained(known: Mapping[str, Compiled], fresh: Iterable[ThresholdRule]) -> list[ThresholdRule]:
    return [*(compiled.rule for compiled in known.values()), *fresh]
