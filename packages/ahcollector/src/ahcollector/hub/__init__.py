"""The client of the hub: the protocol, and its HTTP implementation."""

from ahcollector.hub.base import Hub, RulesReply, SettingsReply, SilencesReply
from ahcollector.hub.http import HttpHub

__all__ = ["HttpHub", "Hub", "RulesReply", "SettingsReply", "SilencesReply"]
