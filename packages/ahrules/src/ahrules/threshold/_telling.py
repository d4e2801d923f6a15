"""From a state that moved to what is told of it."""

from types import MappingProxyType

from ahrules.threshold._book import RuleBook
from ahrules.threshold._tracked import NEVER, Tracked
from ahrules.threshold._transition import Transition, TransitionKind, TransitionReason
from ahrules.threshold._watch import AlertState, Told, Watch
from ahwire.hub import ThresholdRule


class Teller:
    """Makes transitions of one company."""

    def __init__(self, company_id: str) -> None:
        self._company_id = company_id

    def tell(
        self, tracked: Tracked, watch: Watch, told: list[Told], at: float, into: list[Transition]
    ) -> None:
        """Add what a watch told; the next tick looks at the series again."""
        for one in told:
            into.append(self.transition(tracked, watch, one, at))
            tracked.due_at = NEVER

    def close(
        self,
        tracked: Tracked,
        watch: Watch,
        reason: TransitionReason,
        at: float,
        into: list[Transition],
        *,
        rule: ThresholdRule | None = None,
    ) -> None:
        """End a watch: its alert, if one is open, is resolved in the name of `rule`."""
        if watch.is_open:
            told = watch.told(TransitionKind.RESOLVED, reason)
            into.append(self.transition(tracked, watch, told, at, rule=rule))
        watch.state = AlertState.OK

    def transition(
        self,
        tracked: Tracked,
        watch: Watch,
        told: Told,
        at: float,
        *,
        rule: ThresholdRule | None = None,
    ) -> Transition:
        """Return what is told; it never lies before the start of its alert."""
        rule = rule or watch.rule.rule
        at = max(at, told.started_at)
        series = tracked.series
        return Transition(
            kind=told.kind,
            reason=told.reason,
            rule_id=rule.rule_id,
            rule_version=rule.version,
            company_id=self._company_id,
            server_id=tracked.server,
            series_key=series.key,
            labels=MappingProxyType({**series.labels, **rule.labels}),
            severity=rule.severity,
            value=watch.value,
            threshold=rule.threshold,
            started_at=told.started_at,
            duration_seconds=at - told.started_at,
            peak_value=told.peak,
            at=at,
        )


def cause(watch: Watch) -> TransitionReason:
    """Why an alert is open."""
    if watch.state is AlertState.SILENT:
        return TransitionReason.NO_DATA
    return TransitionReason.CONDITION


def why_gone(book: RuleBook, rule_id: str) -> TransitionReason:
    """Why a rule is not in the book any more."""
    if rule_id in book.disabled:
        return TransitionReason.RULE_DISABLED
    if rule_id in book.refused_ids:
        return TransitionReason.RULE_REFUSED
    return TransitionReason.RULE_REMOVED
