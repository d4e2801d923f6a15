"""The whole system, composed from settings: begin reading at `assembled`."""

from ah_server.wiring._assembly import Assembly, assembled
from ah_server.wiring._hub import HubSide
from ah_server.wiring._identities import CollectorSide
from ah_server.wiring._notify import NotifySide
from ah_server.wiring._reach import reach_each
from ah_server.wiring._samples import victoria_metrics
from ah_server.wiring._seams import Seams

__all__ = [
    "Assembly",
    "CollectorSide",
    "HubSide",
    "NotifySide",
    "Seams",
    "assembled",
    "reach_each",
    "victoria_metrics",
]
