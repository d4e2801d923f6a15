"""Settings of what is told: silence of agents, thresholds, and what groups make of it."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from ah_server.settings._checks import check_changes, check_company
from ah_server.settings._fields import section, sections, setting

_COMPANIES_MAX = 10_000


@attrs.frozen(kw_only=True)
class GroupDownSettings:
    """When many silent agents of a company are told as one group; a company's own go before."""

    enabled: bool = setting(default=True, doc="whether many downs at once become one event")
    min: int = setting(5, "so many agents must be down", between=(1, 100_000))
    ratio: float = setting(0.3, "so large a part of the company must be down", between=(0, 1))
    window_seconds: float = setting(
        60.0, "within so long they must have gone down", between=(0, 86_400)
    )


@attrs.frozen(kw_only=True)
class CompanyGroupDownSettings:
    """What is set of groups for one company; what is None is as for all."""

    enabled: bool | None = setting(None, "as alerting.group_down.enabled")
    min: int | None = setting(None, "as alerting.group_down.min", between=(1, 100_000))
    ratio: float | None = setting(None, "as alerting.group_down.ratio", between=(0, 1))
    window_seconds: float | None = setting(
        None, "as alerting.group_down.window_seconds", between=(0, 86_400)
    )


@attrs.frozen(kw_only=True)
class CompanyAlertingSettings:
    """What is set for one company, where the hub says nothing of it; None is as for all."""

    agent_interval_seconds: float | None = setting(
        None, "as alerting.agent_interval_seconds", between=(1, 300)
    )
    down_min_seconds: float | None = setting(
        None, "as alerting.down_min_seconds", between=(1, 86_400)
    )
    no_data_after_seconds: float | None = setting(
        None, "as alerting.no_data_after_seconds", between=(1, 86_400)
    )
    flap_transitions: int | None = setting(
        None, "as alerting.flap_transitions", between=(0, 100), check=check_changes
    )
    flap_window_seconds: float | None = setting(
        None, "as alerting.flap_window_seconds", between=(1, 31 * 86_400)
    )
    flap_stable_seconds: float | None = setting(
        None, "as alerting.flap_stable_seconds", between=(1, 31 * 86_400)
    )
    group_down: CompanyGroupDownSettings = section(CompanyGroupDownSettings)


@attrs.frozen(kw_only=True)
class AlertingSettings:
    """How silence and thresholds are judged."""

    agent_interval_seconds: float = setting(
        30.0, "interval of agents that name none", between=(1, 300)
    )
    down_min_seconds: float = setting(
        90.0, "an agent is never down before this much silence", between=(1, 86_400)
    )
    scan_interval_seconds: float = setting(
        10.0, "time between two looks for silent agents and at alerts", between=(0.1, 300)
    )
    lease_seconds: float = setting(
        15.0,
        "so long after its last sign of life a server that tells of agents keeps the others on the"
        " same Redis waiting",
        between=(1, 300),
    )
    blind_grace_max_seconds: float = setting(
        300.0,
        "grace after a time in which nobody could be heard; under the agents' longest backoff,"
        " which is 300 s by default, living agents are told as down",
        between=(0, 3600),
    )
    seen_interval_seconds: float = setting(
        60.0, "time between two reports of who was seen", between=(1, 60)
    )
    heartbeat_interval_seconds: float = setting(
        60.0, "time between two signs of life to the hub", between=(1, 3600)
    )
    rules_sync_interval_seconds: float = setting(
        60.0, "time between two pulls of threshold rules", between=(1, 3600)
    )
    silences_sync_interval_seconds: float = setting(
        60.0, "time between two pulls of silences", between=(1, 3600)
    )
    rules_dir: Path | None = setting(
        None,
        "directory of the states of alerts where the bus is in this process, and of the hub's last"
        " rules and silences without redis.addr; empty: alerts under state_dir",
    )
    rules_state_interval_seconds: float = setting(
        30.0,
        "time between two whole copies of the states of alerts; decisions, and what the next ones"
        " hang on, are kept at once",
        between=(1, 3600),
    )
    no_data_after_seconds: float = setting(
        300.0, "silence of a series that counts, for rules that do not say", between=(1, 86_400)
    )
    flap_transitions: int = setting(
        4,
        "so many changes of an alert make it flap, at least 2; 0: none flaps",
        between=(0, 100),
        check=check_changes,
    )
    flap_window_seconds: float = setting(
        1800.0, "within so long they must have been", between=(1, 31 * 86_400)
    )
    flap_stable_seconds: float = setting(
        1800.0, "so long without a change it has settled", between=(1, 31 * 86_400)
    )
    group_down: GroupDownSettings = section(GroupDownSettings)
    companies: Mapping[str, CompanyAlertingSettings] = sections(
        CompanyAlertingSettings,
        "settings of single companies by their ids; what the hub says of a company goes before",
        check_name=check_company,
        entries_max=_COMPANIES_MAX,
    )
