"""From samples to acknowledged batches: the sender and its values."""

from ahwal.sender._batch import Appended, Enqueued
from ahwal.sender._books import DropReason
from ahwal.sender._sender import Sender
from ahwal.sender._snapshot import SenderStatus
from ahwal.sender._state import DeliveryState

__all__ = ["Appended", "DeliveryState", "DropReason", "Enqueued", "Sender", "SenderStatus"]
