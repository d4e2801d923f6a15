"""Carries batches from the bus to the store."""

from ahcollector.worker._dead_file import FileDeadBatches
from ahcollector.worker._dead_memory import MemoryDeadBatches
from ahcollector.worker.deadletter import DeadBatch, DeadBatches, replay_dead_batches
from ahcollector.worker.worker import Worker, WorkerStats

__all__ = [
    "DeadBatch",
    "DeadBatches",
    "FileDeadBatches",
    "MemoryDeadBatches",
    "Worker",
    "WorkerStats",
    "replay_dead_batches",
]
