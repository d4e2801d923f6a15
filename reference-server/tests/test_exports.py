"""What others may import; a change here is a change of the public interface."""

import importlib

import pytest

EXPORTS = {
    "ah_server": ["__version__"],
    "ah_server.cli": ["EXIT_CODES", "main"],
    "ah_server.console": [
        "CHARTS",
        "ChartSpec",
        "Fleet",
        "FleetView",
        "ServerLine",
        "ServerState",
        "chart_of",
        "console_app",
        "draw",
    ],
    "ah_server.demo": ["AgentFiles", "DemoFolders", "Voice", "check", "default_folder", "show"],
    "ah_server.hub": [
        "PREFIX",
        "AgentLine",
        "AlertingLists",
        "Bridge",
        "CompanySettingsTable",
        "EnrollRefusedError",
        "EventLog",
        "FaultPlan",
        "Faults",
        "FencedError",
        "HubDatabase",
        "Identities",
        "LicenseLine",
        "ListName",
        "LoggedEvent",
        "hub_app",
        "open_database",
        "to_incident",
    ],
    "ah_server.settings": [
        "ENVIRONMENT_PREFIX",
        "HELD_HOURS_MAX",
        "Address",
        "AdminSettings",
        "AlertingSettings",
        "BusSettings",
        "CompanyAlertingSettings",
        "ConsoleSettings",
        "HubSettings",
        "IngestSettings",
        "LogSettings",
        "MailSettings",
        "NatsSettings",
        "Network",
        "NotifySettings",
        "OutboxSettings",
        "RedisSettings",
        "RegistrySettings",
        "Secret",
        "ServerSettings",
        "SettingLine",
        "Shards",
        "StoreSettings",
        "TsdbSettings",
        "WorkerSettings",
        "load_settings",
        "setting_lines",
        "settings_from",
    ],
    "ah_server.wiring": [
        "Assembly",
        "CollectorSide",
        "HubSide",
        "NotifySide",
        "Seams",
        "assembled",
        "reach_each",
        "victoria_metrics",
    ],
}


@pytest.mark.parametrize("module", EXPORTS)
def test_a_module_exports_what_was_agreed(module):
    assert sorted(importlib.import_module(module).__all__) == sorted(EXPORTS[module])
