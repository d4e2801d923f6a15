"""The client of the hub: the protocols, and their HTTP implementation."""

from ahcollector.hub.base import (
    AgentsHub,
    EnrollHub,
    EventsHub,
    Hub,
    InventoryHub,
    RenewalHub,
    ReportsHub,
    RulesHub,
    RulesReply,
    SettingsHub,
    SettingsReply,
    SilencesHub,
    SilencesReply,
)
from ahcollector.hub.http import RESPONSE_BYTES_MAX, HttpHub

__all__ = [
    "RESPONSE_BYTES_MAX",
    "AgentsHub",
    "EnrollHub",
    "EventsHub",
    "HttpHub",
    "Hub",
    "InventoryHub",
    "RenewalHub",
    "ReportsHub",
    "RulesHub",
    "RulesReply",
    "SettingsHub",
    "SettingsReply",
    "SilencesHub",
    "SilencesReply",
]
