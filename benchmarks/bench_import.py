"""How long does `import ahwal` take, in a fresh process?

Beside it, in turns, what loads the whole agent. Wall time counts, and a busy machine makes it
longer; the CPU time beside it hardly changes.
"""

import statistics
import subprocess
import sys
from collections.abc import Callable

from _harness import Options, Row, in_turns, main

ROUNDS = 15
TIMED = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
STATEMENTS = {
    "ahwal": "import ahwal",
    "agent": "from ahwal import Agent",
}


def seconds(statement: str) -> tuple[float, float]:
    """The time of a statement in a process of its own, and its CPU time."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(statement)], capture_output=True, text=True, check=True
    )
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


def measure(options: Options) -> list[Row]:
    """All statements in turns."""
    cpu: dict[str, list[float]] = {name: [] for name in STATEMENTS}

    def case(name: str) -> Callable[[], float]:
        def once() -> float:
            wall, used = seconds(STATEMENTS[name])
            cpu[name].append(used)
            return wall

        return once

    times = in_turns({name: case(name) for name in STATEMENTS}, rounds=options.rounds(ROUNDS))
    cpu_ms = round(statistics.median(cpu["ahwal"]) * 1000, 1)
    ms = {name: round(found.median * 1000, 1) for name, found in times.items()}
    low, high = times["ahwal"].quartiles
    return [
        Row(
            question="`import ahwal`, in a fresh process",
            measured=f"{ms['ahwal']:.0f} ms ({low * 1000:.0f} to {high * 1000:.0f})",
            value=ms["ahwal"],
            limit=150.0,
            less_is_better=True,
            target="under 150 ms",
            note=f"{cpu_ms:.0f} ms of CPU; `from ahwal import Agent`, with the whole agent, takes "
            f"{ms['agent']:.0f} ms",
            figures={f"{name}_ms": value for name, value in ms.items()} | {"cpu_ms": cpu_ms},
        )
    ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "ahwire", "protobuf", "httpx", "anyio"])
