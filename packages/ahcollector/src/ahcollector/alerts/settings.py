"""How alerts of threshold rules are judged, and how much of them is held."""

from __future__ import annotations

import attrs
from attrs import validators

from ahrules import EvaluatorBounds, FlapSettings

__all__ = ["AlertSettings"]


@attrs.frozen(kw_only=True)
class AlertSettings:
    """Settings of `AlertEngine`.

    Attributes:
        no_data_after_seconds: Silence that counts, for rules that do not say.
        flapping: When an alert flaps; None: none does.
        bounds: How many series one unit (a company in one shard) holds.
        waiting_max: Events of one unit that may wait for their store or the outbox. Beyond, its
            points are not judged, and counted, until some have left.
        held_max: Alerts of one unit that silences may hold back.
        patience_seconds: For so long a failure of the store of states holds back the samples that
            could not be judged; afterwards they are acknowledged all the same.
    """

    no_data_after_seconds: float = attrs.field(default=300.0, validator=validators.gt(0))
    flapping: FlapSettings | None = attrs.field(factory=FlapSettings)
    bounds: EvaluatorBounds = attrs.field(
        factory=lambda: EvaluatorBounds(series_max=20_000, rule_series_max=20_000)
    )
    waiting_max: int = attrs.field(default=10_000, validator=validators.ge(1))
    held_max: int = attrs.field(default=10_000, validator=validators.ge(1))
    patience_seconds: float = attrs.field(default=60.0, validator=validators.ge(0))
