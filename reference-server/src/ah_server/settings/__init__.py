"""All settings of the server: their shape, where they come from, what is wrong with them."""

from ah_server.settings._alerting import AlertingSettings, CompanyAlertingSettings
from ah_server.settings._backends import (
    HELD_HOURS_MAX,
    BusSettings,
    NatsSettings,
    RedisSettings,
    StoreSettings,
    TsdbSettings,
    WorkerSettings,
)
from ah_server.settings._fields import Address, Network, Secret, Shards
from ah_server.settings._load import ENVIRONMENT_PREFIX, load_settings, settings_from
from ah_server.settings._model import (
    AdminSettings,
    ConsoleSettings,
    HubSettings,
    IngestSettings,
    LogSettings,
    MailSettings,
    NotifySettings,
    OutboxSettings,
    RegistrySettings,
    ServerSettings,
)
from ah_server.settings._reference import SettingLine, setting_lines

__all__ = [
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
]
