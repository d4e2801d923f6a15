"""What tests of this package and of programs that embed it need. Never for production."""

from ahwal.testing._queue_contract import QueueContract
from ahwal.testing._storage import PowerCut, SimulatedDisk, SimulatedStorage

__all__ = ["PowerCut", "QueueContract", "SimulatedDisk", "SimulatedStorage"]
