"""The client of the hub: the protocol, and its HTTP implementation."""

from ahcollector.hub.base import Hub, RulesReply, SettingsReply, SilencesReply
from ahcollector.hub.http import RESPONSE_BYTES_MAX, HttpHub

__all__ = [
    "RESPONSE_BYTES_MAX",
    "HttpHub",
    "Hub",
    "RulesReply",
    "SettingsReply",
    "SilencesReply",
]
