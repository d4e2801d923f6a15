"""Carries batches from the bus to the store."""

from ahcollector.worker.deadletter import (
    DeadBatch,
    DeadBatches,
    FileDeadBatches,
    MemoryDeadBatches,
)
from ahcollector.worker.worker import Worker, WorkerStats

__all__ = [
    "DeadBatch",
    "DeadBatches",
    "FileDeadBatches",
    "MemoryDeadBatches",
    "Worker",
    "WorkerStats",
]
