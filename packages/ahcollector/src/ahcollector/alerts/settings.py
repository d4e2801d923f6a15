"""How alerts of threshold rules are judged, and how much of them is held."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from attrs import validators

from ahrules import EvaluatorBounds, FlapSettings

__all__ = ["AlertSettings", "CompanyAlerts"]


@attrs.frozen(kw_only=True)
class CompanyAlerts:
    """How the alerts of one company are judged.

    Attributes:
        no_data_after_seconds: Silence that counts, for rules that do not say.
        flapping: When an alert flaps; None: none does.
    """

    no_data_after_seconds: float = attrs.field(default=300.0, validator=validators.gt(0))
    flapping: FlapSettings | None = attrs.field(factory=FlapSettings)


@attrs.frozen(kw_only=True)
class AlertSettings:
    """Settings of `AlertEngine`.

    Attributes:
        no_data_after_seconds: Silence that counts, for rules that do not say.
        flapping: When an alert flaps; None: none does.
        ahead_seconds: A series whose newest point lies so far ahead of now had a wrong clock, and
            is turned back: more than the door lets in, and by how much your clocks may differ.
        bounds: How much one unit (a company in one shard) holds: series, and rules over them, of
            some 120 bytes each.
        waiting_max: Events of one unit that may wait for their store or the outbox. Beyond, its
            points are not judged, and counted, until some have left.
        held_max: Alerts of one unit that silences may hold back.
        left_seconds: For so long a unit stays in memory whose shard is no longer this process' own
            and that no other has claimed, in case its store forgets everything meanwhile; longer
            only while what moved in it cannot be stored.
        left_units_max: So many of those stay; the ones that were left first go first.
        left_series_max: So many series they have together.
        lists_wait_seconds: For so long a unit that was taken over waits for rules and silences as
            new as those of its last owner; afterwards it is judged by what there is.
        companies: What differs for single companies, in `CompanyAlerts`.
        patience_seconds: For so long a failure of the store of states holds back the samples that
            could not be judged; afterwards they are acknowledged all the same.
    """

    no_data_after_seconds: float = attrs.field(default=300.0, validator=validators.gt(0))
    flapping: FlapSettings | None = attrs.field(factory=FlapSettings)
    ahead_seconds: float = attrs.field(default=600.0, validator=validators.gt(0))
    bounds: EvaluatorBounds = attrs.field(
        factory=lambda: EvaluatorBounds(
            series_max=20_000, rule_series_max=20_000, watches_max=200_000
        )
    )
    waiting_max: int = attrs.field(default=10_000, validator=validators.ge(1))
    held_max: int = attrs.field(default=10_000, validator=validators.ge(1))
    patience_seconds: float = attrs.field(default=60.0, validator=validators.ge(0))
    left_seconds: float = attrs.field(default=900.0, validator=validators.gt(0))
    left_units_max: int = attrs.field(default=1_000, validator=validators.ge(0))
    left_series_max: int = attrs.field(default=100_000, validator=validators.ge(0))
    lists_wait_seconds: float = attrs.field(default=600.0, validator=validators.ge(0))
    companies: Mapping[str, CompanyAlerts] = attrs.field(factory=dict)

    def of(self, company_id: str) -> AlertSettings:
        """Return what is good for one company."""
        own = self.companies.get(company_id)
        if own is None:
            return self
        return attrs.evolve(
            self, no_data_after_seconds=own.no_data_after_seconds, flapping=own.flapping
        )
