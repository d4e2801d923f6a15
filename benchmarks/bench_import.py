"""How long does `import ahwal` take, in a fresh process?

Beside it, in turns, a process that imports nothing, and what starts the whole agent.
"""

import subprocess
import sys

from _harness import Options, Row, in_turns, main

ROUNDS = 15
TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
STATEMENTS = {
    "ahwal": "import ahwal",
    "agent": "from ahwal import Agent",
    "protobuf": "from ahwire.agent_pb2 import MetricsBatch",
}


def seconds(statement: str) -> float:
    """The time of a statement in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(statement)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(options: Options) -> list[Row]:
    """All statements in turns."""
    cases = {name: (lambda line=line: seconds(line)) for name, line in STATEMENTS.items()}
    times = in_turns(cases, rounds=options.rounds(ROUNDS))
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
            note=f"of it the generated protobuf code {ms['protobuf']:.0f} ms; with the whole "
            f"agent {ms['agent']:.0f} ms",
            figures={f"{name}_ms": value for name, value in ms.items()},
        )
    ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "ahwire", "protobuf", "httpx", "anyio"])
