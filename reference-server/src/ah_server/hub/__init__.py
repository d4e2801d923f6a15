"""The development hub: plays the access hub for development, the demo and the tests."""

from ah_server.hub._database import HubDatabase, open_database
from ah_server.hub.alerting_lists import AlertingLists, ListName
from ah_server.hub.app import PREFIX, hub_app
from ah_server.hub.bridge import Bridge, to_incident
from ah_server.hub.company_settings import CompanySettingsTable
from ah_server.hub.event_log import EventLog, FencedError, LoggedEvent
from ah_server.hub.faults import FaultPlan, Faults
from ah_server.hub.identities import AgentLine, EnrollRefusedError, Identities, LicenseLine

__all__ = [
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
]
