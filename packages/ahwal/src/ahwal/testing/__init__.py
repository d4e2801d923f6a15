"""What tests of this package, and of programs that embed it, need; nothing is for production."""

from ahwal.testing._clock import FakeClock, settle
from ahwal.testing._collector import (
    RecordedRequest,
    Script,
    ScriptedAnswer,
    ScriptedCollector,
    acknowledge,
    protobuf,
    refuse,
)
from ahwal.testing._queue_contract import QueueContract
from ahwal.testing._storage import PowerCut, SimulatedDisk, SimulatedStorage

__all__ = [
    "FakeClock",
    "PowerCut",
    "QueueContract",
    "RecordedRequest",
    "Script",
    "ScriptedAnswer",
    "ScriptedCollector",
    "SimulatedDisk",
    "SimulatedStorage",
    "acknowledge",
    "protobuf",
    "refuse",
    "settle",
]
