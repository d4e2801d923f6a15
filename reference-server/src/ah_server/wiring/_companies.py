"""What the settings say of single companies, as the parts of the collector take it."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs

from ah_server.settings import AlertingSettings, CompanyAlertingSettings
from ahcollector.alerts import AlertSettings, CompanyAlerts
from ahcollector.registry import CompanyDefaults
from ahrules import FlapSettings
from ahwire.hub import GroupDownSettings

_T = TypeVar("_T")
# The clocks of a door and of a worker may differ by so much.
_CLOCKS_SECONDS = 300.0


def company_defaults(alerting: AlertingSettings) -> Mapping[str, CompanyDefaults]:
    """What gives the deadlines and the groups of those companies of which something is set."""
    return {
        company_id: CompanyDefaults(
            interval_seconds=own.agent_interval_seconds,
            down_min_seconds=own.down_min_seconds,
            group_down=_group_down(alerting, own),
        )
        for company_id, own in alerting.companies.items()
    }


def group_down_of(alerting: AlertingSettings) -> Callable[[str], GroupDownSettings]:
    """What makes the silent agents of a company a group, while its hub says nothing."""
    nobodys = CompanyAlertingSettings()
    return lambda company_id: _group_down(alerting, alerting.companies.get(company_id, nobodys))


def alert_settings(alerting: AlertingSettings, point_future_seconds: float) -> AlertSettings:
    """How alerts are judged, each company's as it is set for it.

    Args:
        alerting: What is set.
        point_future_seconds: So far from the future the door lets points in.
    """
    silence = alerting.no_data_after_seconds
    return AlertSettings(
        no_data_after_seconds=silence,
        ahead_seconds=point_future_seconds + _CLOCKS_SECONDS,
        flapping=_flapping(
            alerting.flap_transitions, alerting.flap_window_seconds, alerting.flap_stable_seconds
        ),
        companies={
            company_id: CompanyAlerts(
                no_data_after_seconds=_or(own.no_data_after_seconds, silence),
                flapping=_flapping(
                    _or(own.flap_transitions, alerting.flap_transitions),
                    _or(own.flap_window_seconds, alerting.flap_window_seconds),
                    _or(own.flap_stable_seconds, alerting.flap_stable_seconds),
                ),
            )
            for company_id, own in alerting.companies.items()
        },
    )


def _group_down(alerting: AlertingSettings, own: CompanyAlertingSettings) -> GroupDownSettings:
    general = attrs.asdict(alerting.group_down)
    return GroupDownSettings(
        **{name: _or(value, general[name]) for name, value in attrs.asdict(own.group_down).items()}
    )


def _or(own: _T | None, general: _T) -> _T:
    return general if own is None else own


def _flapping(changes: int, window_seconds: float, quiet_seconds: float) -> FlapSettings | None:
    if not changes:
        return None
    return FlapSettings(changes=changes, window_seconds=window_seconds, quiet_seconds=quiet_seconds)
