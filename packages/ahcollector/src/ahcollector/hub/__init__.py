"""The client of the hub: the protocol, and its HTTP implementation."""

from ahcollector.hub.base import Hub, SettingsReply
from ahcollector.hub.http import HttpHub

__all__ = ["HttpHub", "Hub", "SettingsReply"]
