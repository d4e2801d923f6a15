"""A plain daemon with threads: the agent in a thread of its own, SIGTERM in the daemon's hands."""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio

from ahwal import Agent, AgentConfig, Sample, enroll
from ahwal.testing import ScriptedCollector


class Shop:
    """Stands for the daemon's own work."""

    def __init__(self) -> None:
        self.open_orders = 17
        self.closing = threading.Event()

    def collect(self) -> Iterator[Sample]:
        """What the agent asks for once an interval, in a thread of its own."""
        yield Sample("orders_open", self.open_orders, {"shop": "north"})

    def serve(self) -> None:
        """Work until somebody asks to close."""
        while not self.closing.wait(0.02):
            self.open_orders += 1


def main() -> None:
    """Runs the daemon until SIGTERM."""
    shop = Shop()
    # The library sets no handler: what a signal means is the program's decision.
    signal.signal(signal.SIGTERM, lambda *_: shop.closing.set())
    with ScriptedCollector() as collector, tempfile.TemporaryDirectory() as folder:
        config = AgentConfig(
            collector_url=collector.url,
            state_dir=Path(folder),
            interval_seconds=1,
            allow_short_interval=True,  # below 10 s is for tests and examples
            shutdown_flush_seconds=2,  # at the end of `with`: how long it may go on sending
        )
        anyio.run(enroll, config, "a one-time license")
        threading.Thread(target=service_manager, args=(collector,), daemon=True).start()
        with Agent(config, shop.collect) as agent:
            shop.serve()
        print(agent.status().line())
        names = {series.name for batch in collector.batches() for series in batch.series}
        print("delivered orders_open:", "orders_open" in names)


def service_manager(collector: ScriptedCollector) -> None:
    """Stands for systemd, which ends the daemon after two batches were delivered."""
    collector.wait_for(2)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
