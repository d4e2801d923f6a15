"""What the collector configures from afar, within the ranges of the agent's own settings. Pure."""

from collections.abc import Mapping

from attrs import frozen

from ahwal.agent._config import AgentConfig
from ahwal.sender._sendable import label_fault, shown
from ahwire import agent_pb2, limits

_NAMES_MAX = 64
_REFUSED_MAX = 20
_MAX_AGE_SECONDS_LOW = 60
_MAX_AGE_SECONDS_HIGH = 365 * 86400


@frozen(kw_only=True)
class Effective:
    """The settings in force: the agent's own, and what was configured from afar over them."""

    interval_seconds: float
    catch_up_batches: int
    disabled_collectors: frozenset[str]
    labels: Mapping[str, str]
    max_point_age_seconds: float


def local(config: AgentConfig) -> Effective:
    """Return the agent's own settings."""
    return Effective(
        interval_seconds=config.interval_seconds,
        catch_up_batches=config.catch_up_batches,
        disabled_collectors=frozenset(config.disabled_collectors),
        labels=dict(config.labels),
        max_point_age_seconds=float(limits.MAX_POINT_AGE_SECONDS),
    )


def apply(config: AgentConfig, remote: agent_pb2.AgentConfig) -> tuple[Effective, list[str]]:
    """Lay a remote configuration over the agent's own.

    Unset fields keep the agent's own value; so does a value out of its range, which is named.

    Returns:
        The settings in force, and one sentence for each value that was not taken.
    """
    own = local(config)
    refused: list[str] = []

    def within(name: str, value: int, low: float, high: float, otherwise: float) -> float:
        if value == 0:
            return otherwise
        if low <= value <= high:
            return float(value)
        refused.append(f"{name} is {value}; valid is {int(low)} to {int(high)}")
        return otherwise

    lowest = (
        limits.MIN_SHORT_INTERVAL_SECONDS
        if config.allow_short_interval
        else limits.MIN_INTERVAL_SECONDS
    )
    interval = within(
        "interval_seconds",
        remote.interval_seconds,
        lowest,
        limits.MAX_INTERVAL_SECONDS,
        own.interval_seconds,
    )
    catch_up = within("catch_up_batches", remote.catch_up_batches, 1, 10, own.catch_up_batches)
    age = within(
        "max_point_age_seconds",
        remote.max_point_age_seconds,
        _MAX_AGE_SECONDS_LOW,
        _MAX_AGE_SECONDS_HIGH,
        own.max_point_age_seconds,
    )
    labels = dict(own.labels)
    for name, value in sorted(remote.labels.items()):
        fault = label_fault(name, value)
        if fault is None and name not in labels and len(labels) >= limits.MAX_LABELS_PER_SERIES:
            fault = f"only {limits.MAX_LABELS_PER_SERIES} labels are taken"
        if fault is None:
            labels[name] = value
        elif len(refused) < _REFUSED_MAX:
            refused.append(f"label {shown(name)}: {fault}")
    return (
        Effective(
            interval_seconds=interval,
            catch_up_batches=int(catch_up),
            disabled_collectors=own.disabled_collectors
            | frozenset(remote.disabled_collectors[:_NAMES_MAX]),
            labels=labels,
            max_point_age_seconds=age,
        ),
        refused,
    )
