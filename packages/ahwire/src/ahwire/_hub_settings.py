"""What is set for a company, as the hub says it. Public as names of `ahwire.hub`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import attrs
from attrs import field
from attrs.validators import optional

from ahwire import _fields as check
from ahwire import limits
from ahwire._json import JsonContract

if TYPE_CHECKING:
    from ahwire.agent_pb2 import AgentConfig

_LABELS_MAX = 64
_COLLECTORS_MAX = 256
_UINT32_MAX = (1 << 32) - 1


@attrs.frozen(kw_only=True)
class AgentSettings(JsonContract):
    """What a company lets its agents be told; what is absent leaves the agent's own value.

    Its JSON is that of the message AgentConfig, so both spellings of protobuf's mapping are read
    (`interval_seconds` and `intervalSeconds`); the first is written.

    Attributes:
        interval_seconds: between two samples, 1 to 300.
        catch_up_batches: requests that a cycle may make after its first, 1 to 10.
        disabled_collectors: names of what an agent measures by itself and shall not; at most 256.
        labels: put on every series of the agent; at most 64. Copied; treat as read-only.
        max_point_age_seconds: older points are dropped and counted by the agent; 0: 24 h.
    """

    _json_aliases: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "intervalSeconds": "interval_seconds",
            "catchUpBatches": "catch_up_batches",
            "disabledCollectors": "disabled_collectors",
            "maxPointAgeSeconds": "max_point_age_seconds",
        }
    )

    interval_seconds: int | None = field(
        default=None, validator=optional(check.integer(1, limits.MAX_INTERVAL_SECONDS))
    )
    catch_up_batches: int | None = field(default=None, validator=optional(check.integer(1, 10)))
    disabled_collectors: tuple[str, ...] = field(
        default=(), validator=check.items(check.text(), 0, _COLLECTORS_MAX)
    )
    labels: Mapping[str, str] = field(
        factory=dict,
        converter=check.as_json,
        validator=check.mapping(
            check.text(chars_max=limits.MAX_NAME_BYTES),
            check.text(chars_min=0, chars_max=limits.MAX_LABEL_VALUE_BYTES),
            _LABELS_MAX,
        ),
        hash=False,
    )
    max_point_age_seconds: int | None = field(
        default=None, validator=optional(check.integer(0, _UINT32_MAX))
    )

    def to_proto(self, etag: str) -> "AgentConfig":
        """The same as the message that agents are sent; what is absent stays unset."""
        from ahwire.agent_pb2 import AgentConfig  # noqa: PLC0415  # slow, seldom needed

        return AgentConfig(
            etag=etag,
            interval_seconds=self.interval_seconds,
            catch_up_batches=self.catch_up_batches,
            disabled_collectors=self.disabled_collectors,
            labels=self.labels,
            max_point_age_seconds=self.max_point_age_seconds,
        )


@attrs.frozen(kw_only=True)
class GroupDownSettings(JsonContract):
    """When many agents of a company being down at once becomes one event.

    Attributes:
        enabled: whether it becomes one at all.
        min: agents that must be down.
        ratio: part of the company's agents that must be down, 0 to 1.
        window_seconds: within which they must have gone down.
    """

    enabled: bool = field(validator=check.boolean)
    min: int = field(validator=check.integer(least=1))
    ratio: float = field(converter=check.as_number, validator=check.number(least=0, most=1))
    window_seconds: float = field(converter=check.as_number, validator=check.number(least=0))


@attrs.frozen(kw_only=True)
class CompanySettings(JsonContract):
    """Answer to `GET /settings/{company_id}`; what is absent is the collector's to decide.

    Attributes:
        group_down: when many downs become one event.
        down_min_seconds: the least silence after which an agent of the company is down.
        agent: what its agents are told.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    group_down: GroupDownSettings | None = field(
        default=None, validator=optional(check.instance(GroupDownSettings))
    )
    down_min_seconds: float | None = field(
        default=None, converter=check.as_float, validator=optional(check.number(least=0))
    )
    agent: AgentSettings = field(factory=AgentSettings, validator=check.instance(AgentSettings))
