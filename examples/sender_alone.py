"""Only the sender: a program with a loop of its own decides when to measure and when to send."""

import tempfile
from pathlib import Path

import anyio

from ahwal import WAL, AgentConfig, Client, Sample, Sender, enroll
from ahwal.testing import ScriptedCollector, refuse


async def main() -> None:
    """Makes three turns of a machine; the collector has a bad moment at the second."""
    with (
        ScriptedCollector() as collector,
        tempfile.TemporaryDirectory() as folder,
        WAL.open(Path(folder) / "wal") as queue,
    ):
        config = AgentConfig(collector_url=collector.url, state_dir=folder)
        identity = await enroll(config, "a one-time license")
        async with Client(collector_url=collector.url, token=identity.agent_token) as client:
            sender = Sender(queue=queue, transport=client)
            for turn in range(1, 4):
                # On disk when this returns; nothing was sent yet.
                await sender.enqueue([Sample("turns_total", turn)])
                if turn == 2:
                    collector.script(refuse(503, "unavailable", retry_after="1"))
                acknowledged = await sender.tick()
                print(f"turn {turn}: {acknowledged} acknowledged, {sender.status().line()}")
            # The pause keeps the backoff and the protocol's rate; None means revoked, for good.
            while sender.status().queued_batches and (pause := sender.due_in_seconds()) is not None:
                await anyio.sleep(pause)
                await sender.tick()
            status = sender.status()
            print(f"{status.delivered} of {status.produced} points delivered")


if __name__ == "__main__":
    anyio.run(main)
