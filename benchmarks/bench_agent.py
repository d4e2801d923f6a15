"""What does the agent cost its host, idle and offline with a full buffer?

Two real `ahagent run` processes with the host's collectors and a cycle of 10 s: one beside a
collector that takes everything, one whose collector is away and whose WAL holds 50 MiB of real
150-point batches, so that each new one costs an old one. After a time to settle, memory is the
resident size at the end and CPU what each used over the window. Then an agent is started on a copy
of the full WAL, three times: until its log says that the batches were recovered.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import anyio
from _batches import host_batch
from _harness import Options, Row, Times, main, work_folder

from ahwal import WAL, AgentConfig, enroll
from ahwal.testing import ScriptedCollector
from testkit import free_port

# As `ahagent`, where `pip install 'ahwal[host,cli]'` put it: without the libraries of developers
# that httpx loads for a command line of its own when they are there.
AGENT = """
import sys
sys.modules.update(dict.fromkeys(("click", "pygments", "rich")))
from ahwal.__main__ import main
sys.exit(main(["run"]))
"""
BUFFER_BYTES = 50 * 2**20
SETTLE_SECONDS = 15.0
WINDOW_SECONDS = 60.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
LIMIT_MIB = 56.0


def prepare(folder: Path, collector: ScriptedCollector) -> Path:
    """A state directory with an identity."""
    config = AgentConfig(collector_url=collector.url, state_dir=str(folder))
    anyio.run(enroll, config, "a license")
    return folder


def fill(folder: Path) -> int:
    """Fill the WAL of a state directory to its limit and return its batches."""
    with WAL.open(folder / "wal", max_bytes=BUFFER_BYTES) as queue:
        number = 0
        while not queue.stats().dropped:
            group = [host_batch(150, number=number + n) for n in range(200)]
            # As this moment's, or they would be too old to be kept.
            for message in group:
                message.collected_at_ms = time.time_ns() // 1_000_000
                for series in message.series:
                    series.points[0].ts_ms = message.collected_at_ms
            queue.append_many([message.SerializeToString() for message in group])
            number += len(group)
        return queue.stats().batches


def start(folder: Path, url: str) -> "subprocess.Popen[bytes]":
    """Run the agent on a state directory."""
    own = {"AH_COLLECTOR_URL": url, "AH_STATE_DIR": str(folder), "AH_INTERVAL": "10s"}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", AGENT], env=os.environ | own, stdout=log, stderr=log
        )


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End one of ours."""
    process.terminate()
    process.wait(15)


def resident_mib(process: "subprocess.Popen[bytes]") -> float:
    """Its resident size now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_seconds(process: "subprocess.Popen[bytes]") -> float:
    """What it used so far, in the kernel too."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def recovery_seconds(folder: Path, url: str) -> float:
    """From the start of the process to the line that says how many batches were recovered."""
    began = time.monotonic()
    process = start(folder, url)
    try:
        while b"were recovered from the WAL" not in (folder / "log").read_bytes():
            if time.monotonic() - began > 60 or process.poll() is not None:
                raise RuntimeError((folder / "log").read_text()[-2000:])
            time.sleep(0.01)
        return time.monotonic() - began
    finally:
        stop(process)


def measure(options: Options) -> list[Row]:
    """Both agents at once, then the restart."""
    window = 10.0 if options.quick else WINDOW_SECONDS
    with work_folder() as home, ScriptedCollector() as collector:
        idle, offline, again = (home / part for part in ("idle", "offline", "again"))
        for folder in (idle, offline):
            prepare(folder, collector)
        batches = fill(offline)
        shutil.copytree(offline, again)
        away = f"http://127.0.0.1:{free_port()}"
        running = {"idle": start(idle, collector.url), "offline": start(offline, away)}
        try:
            time.sleep(SETTLE_SECONDS)
            before = {name: cpu_seconds(process) for name, process in running.items()}
            time.sleep(window)
            used = {name: cpu_seconds(process) - before[name] for name, process in running.items()}
            memory = {name: resident_mib(process) for name, process in running.items()}
        finally:
            for process in running.values():
                stop(process)
        restarts = Times(values=[recovery_seconds(again, away) for _ in range(3)])
    percent = {name: seconds / window * 100 for name, seconds in used.items()}
    rows = [row(name, memory[name], percent[name], window, batches) for name in running]
    return [row for pair in rows for row in pair] + [restart_row(restarts, batches)]


def row(name: str, mib: float, percent: float, window: float, batches: int) -> list[Row]:
    """Memory and CPU of one agent."""
    state = "idle" if name == "idle" else "offline with a full buffer of 50 MiB"
    figures = {"resident_mib": round(mib, 1), "cpu_percent": round(percent, 2)}
    note = "with the extras host and cli, and nothing of the developers' environment"
    if name == "offline":
        note = f"{batches:,} batches in the buffer"
    return [
        Row(
            question=f"memory of `ahagent run`, {state}",
            measured=f"{mib:.1f} MiB resident",
            value=round(mib, 1),
            limit=LIMIT_MIB,
            less_is_better=True,
            target="under 56 MiB",
            note=note,
            figures=figures,
        ),
        Row(
            question=f"CPU of `ahagent run`, {state}",
            measured=f"{percent:.2f} % of one core",
            value=round(percent, 2),
            limit=0.5,
            less_is_better=True,
            target="under 0.5 %",
            note=f"over {window:g} s with a cycle of 10 s, host metrics of this machine",
            figures=figures,
        ),
    ]


def restart_row(restarts: Times, batches: int) -> Row:
    """The time from the start of the process to the end of recovery."""
    return Row(
        question="start of `ahagent run` and scan of a full buffer of 50 MiB",
        measured=f"{restarts.each(2)} s",
        value=round(restarts.median, 2),
        limit=3.0,
        less_is_better=True,
        target="under 3 s",
        note=f"{batches:,} batches, from the start of the process, imports included",
        figures={"seconds": round(restarts.median, 2), "batches": batches},
    )


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "ahwire", "protobuf", "httpx", "anyio", "psutil"])
