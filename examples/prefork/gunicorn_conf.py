"""One agent for all workers of a prefork server: held by one worker, taken over when that one ends.

Run it with `gunicorn -c gunicorn_conf.py shop:app`, with AH_STATE_DIR and PROMETHEUS_MULTIPROC_DIR.
A thread does not survive a fork, so nothing is started in the arbiter. Each worker asks for the
state directory; its lock lets one in, and the system takes it back however that one dies.
"""

import os
import threading
from typing import Any

import anyio
from prometheus_client import CollectorRegistry, multiprocess

import ahwal.prometheus
from ahwal import Agent, WALLockedError
from ahwal.agent import CredentialStore, load_config

workers = 3
# Not `config`: gunicorn would take it for its setting of that name. What is wrong ends its start.
agent_config = load_config(environ=os.environ)
LOCK_RETRY_SECONDS = 1.0


def make_agent() -> Agent:
    """An agent with the sums over all workers, also over those that have ended."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # has no types
    return Agent(agent_config, [ahwal.prometheus.collector(registry, "shop")])


class Candidate(threading.Thread):
    """Is the agent whenever no other worker is."""

    def __init__(self) -> None:
        super().__init__(name="agent candidate", daemon=True)
        self.over = threading.Event()
        self.agent = make_agent()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                anyio.run(self.agent.run)
                self.over.set()
            except WALLockedError:  # another worker is the agent
                self.over.wait(LOCK_RETRY_SECONDS)
                self.agent = make_agent()

    def end(self) -> None:
        self.over.set()
        self.agent.stop()
        self.join(agent_config.shutdown_flush_seconds + 3.0)


def on_starting(_arbiter: Any) -> None:
    CredentialStore(state_dir=agent_config.state_dir).load()  # raises when it is not enrolled


def post_worker_init(worker: Any) -> None:
    worker.candidate = Candidate()
    worker.candidate.start()


def worker_exit(_arbiter: Any, worker: Any) -> None:
    if hasattr(worker, "candidate"):  # not when the arbiter calls this for a worker long gone
        worker.candidate.end()


def child_exit(_arbiter: Any, worker: Any) -> None:
    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]  # has no types
