"""Writes `tests/faults/README.md`: which fault of the field is shown by which tests.

A test says which faults it shows by their numbers, in its name, its docstring, a comment or its
module's docstring. Run this file after adding such a test; `test_fault_table.py` compares.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "faults" / "README.md"
NUMBER = re.compile(
    r"(?<![A-Za-z0-9])([WCNA]\d{1,2})(?:\s*(?:-|–|to)\s*([WCNA]\d{1,2}))?(?![A-Za-z0-9])"
)

FAULTS = {
    "W1": "a checkpoint that is damaged, or names an id that is not there",
    "W2": "crash, write, crash again",
    "W3": "a segment missing in the middle, and strangers beside it",
    "W4": "a tail of zeros or a hole",
    "W5": "the last record cut at any byte",
    "W6": "a length field that cannot be",
    "W7": "short writes",
    "W8": "the disk fills up, is freed, the process crashes",
    "W9": "a full disk while everything is acknowledged",
    "W10": "one failed sync",
    "W11": "hours of steady append and acknowledge",
    "W12": "drained, restarted, used again",
    "W13": "far more data than the size cap, offline",
    "W14": "an endpoint that never answered",
    "W15": "steps of the wall clock",
    "W16": "a dead holder of the lock, and a race for it",
    "W17": "fork while the queue is open",
    "W18": "every form of Retry-After",
    "W19": "413 to everything",
    "W20": "a thousand senders after one outage",
    "W21": "a long queue, a stop while offline, a start online",
    "W22": "a black hole and a hanging name look-up at the stop",
    "W23": "a slow disk beside an event loop",
    "W24": "a token that cannot stand in a header",
    "W25": "answers that look like success and are none",
    "W26": "every failure of the network",
    "W27": "a state directory that cannot be used",
    "W28": "401 for a while",
    "W29": "an hour of outage in the log",
    "W30": "offline for longer than the collector's window",
    "C1": "bombs, cut bodies, lying lengths, slow bodies",
    "C2": "text that is not UTF-8",
    "C3": "NaN, infinities and the edges of doubles",
    "C4": "labels, names and values over the limits",
    "C5": "labels that pretend to be the tenant's",
    "C6": "the same batch three times",
    "C7": "timestamps at the edges of the window and in wrong units",
    "C8": "a full bus",
    "C9": "an entry that no handler can take",
    "C10": "a write whose reply is lost",
    "C13": "cancellation at every await",
    "C14": "a restart storm with three that really died",
    "C15": "a presence store that fails for ten minutes",
    "C16": "a sign of life exactly at the deadline",
    "C17": "clock steps at the collector, and an agent from the future",
    "C18": "death at every step between decision and outbox",
    "C19": "the hub dies before its answer",
    "C20": "a sender that lost its lease without noticing",
    "C21": "a first event that can never be delivered",
    "C22": "a token refused before it was known",
    "C23": "a single flight whose leader is cancelled or fails",
    "C24": "a million ids in one millisecond",
    "C25": "twenty senders with a backlog",
    "C26": "label maps that must not be one series",
    "A1": "points that are no numbers",
    "A2": "a breach with half of its points missing",
    "A3": "points delayed by up to a minute",
    "A4": "a restart while an alert is pending, firing, kept",
    "A5": "a silence ends while the condition still holds",
    "A6": "silences on absent labels, with empty matchers, with patterns",
    "A7": "maintenance windows on the days clocks change",
    "A8": "a day of reminders, slow to send, and a restart",
    "A9": "thirty agents down at once, and a thirty-first",
    "A10": "a group that ends with two agents still down",
    "A11": "a host down with its series, and a series missing on a host that is up",
    "N1": "a channel that always fails",
    "N5": "an event exactly at a bucket's end",
    "N6": "days without midnight, and a day that was skipped",
    "N7": "the hour that happens twice",
    "N8": "time zones that are none",
    "N10": "rows that arrive while their digest is made",
    "N11": "a subject that tries to add headers",
    "N12": "a team of which some are refused",
    "N13": "a connection that ends after DATA",
    "N14": "a mail server without STARTTLS",
    "N19": "addresses and networks in odd spellings",
    "N21": "two tenants with the same recipient",
    "N22": "more events than the limit",
    "N24": "incidents that are not stored yet",
}


def shown() -> dict[str, list[str]]:
    """The tests of each fault, as `path::name`."""
    found: dict[str, list[str]] = defaultdict(list)
    files = [*ROOT.glob("packages/*/src/*/testing/_contracts/*.py")]
    files += [*ROOT.glob("packages/*/tests/**/*.py"), *ROOT.glob("reference-server/tests/**/*.py")]
    files += [*ROOT.glob("tests/end_to_end/*.py"), *ROOT.glob("tests/faults/*.py")]
    for path in sorted(files):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines = source.splitlines()
        place = str(path.relative_to(ROOT))
        for fault in numbers(ast.get_docstring(tree) or ""):
            found[fault].append(place)
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("test_"):
                continue
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            # Not the rest of the code: a cursor or a byte in hex may look like a number of ours.
            comments = [line.partition("#")[2] for line in lines[first - 1 : node.end_lineno]]
            name = node.name.upper().replace("_", " ")
            text = " ".join([name, ast.get_docstring(node) or "", *comments])
            for fault in numbers(text):
                found[fault].append(f"{place}::{node.name}")
    return found


def numbers(text: str) -> set[str]:
    """The faults a text names; `W3-W5` names three."""
    named = set()
    for first, last in NUMBER.findall(text):
        named.add(first)
        if last and last[0] == first[0]:
            named |= {f"{first[0]}{n}" for n in range(int(first[1:]), int(last[1:]) + 1)}
    return named & set(FAULTS)


def table() -> str:
    """The page."""
    tests = shown()
    lines = [
        "# Faults of the field, and the tests that show them",
        "",
        "Each line is a fault that really happened to systems of this kind. The tests beside it",
        "put it in and check the right outcome. Written by `tests/project/fault_table.py`.",
        "",
        "| fault | what happens | shown by |",
        "| --- | --- | --- |",
    ]
    for fault, title in FAULTS.items():
        names = "<br>".join(f"`{name}`" for name in sorted(tests.get(fault, ())))
        lines.append(f"| {fault} | {title} | {names} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
