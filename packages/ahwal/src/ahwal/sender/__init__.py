"""From samples to acknowledged batches: the sender and its values."""

from ahwal.sender._books import DropReason
from ahwal.sender._sender import Appended, Sender
from ahwal.sender._snapshot import SenderStatus
from ahwal.sender._state import DeliveryState

__all__ = ["Appended", "DeliveryState", "DropReason", "Sender", "SenderStatus"]
