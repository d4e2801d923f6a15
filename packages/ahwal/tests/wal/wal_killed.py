"""Kills a writing process again and again, and compares what is there with what it was told.

Run as: wal_killed.py DIRECTORY KILLS SEED. Prints one line of JSON; an assertion is its exit code.
The writers are forked from this process, so that a kill costs no start of Python.
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from random import Random

from ahwal.wal import WAL

EVERYTHING = 10**9
OPTIONS = {"segment_bytes": 20_000, "max_bytes": 50_000_000, "max_age_seconds": None}


def payload(number: int) -> bytes:
    return b"%d," % number * 40


def write(directory: str, reports: int, seed: int) -> None:
    """Append, remove and replace for ever; report each call before and after."""

    def report(*words: object) -> None:
        os.write(reports, (" ".join(map(str, words)) + "\n").encode())

    rng = Random(seed)
    wal = WAL.open(directory, **OPTIONS)
    number = seed * 1_000_000
    while True:
        count = rng.randint(1, 4)
        report("appending", number, count)
        report("appended", number, *wal.append_many([payload(number + n) for n in range(count)]))
        number += count
        entry = wal.oldest()
        if rng.random() < 0.4:
            report("removing", entry.id)
            wal.remove(entry.id)
            report("removed", entry.id)
        elif rng.random() < 0.2:
            report("replacing", entry.id, number)
            ids = wal.replace(entry.id, [payload(number), payload(number + 1)])
            report("replaced", entry.id, number, *ids)
            number += 2


class Ledger:
    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.given: set[int] = set()
        self.gone: set[int] = set()
        self.written: set[bytes] = set()

    def take(self, lines: list[str]) -> None:
        self.maybe: set[int] = set()
        for line in lines:
            word, *rest = line.split()
            numbers = list(map(int, rest))
            if word == "appending":
                self.written |= {payload(numbers[0] + n) for n in range(numbers[1])}
            elif word == "appended":
                self._store(numbers[0], numbers[1:])
            elif word == "replacing":
                self.written |= {payload(numbers[1] + n) for n in range(2)}
                self.maybe.add(numbers[0])
            elif word == "replaced":
                self._forget(numbers[0])
                self._store(numbers[1], numbers[2:])
            elif word == "removing":
                self.maybe.add(numbers[0])
            else:
                self._forget(numbers[0])

    def _store(self, number: int, ids: list[int]) -> None:
        for n, entry_id in enumerate(ids):
            assert entry_id not in self.given, f"id {entry_id} was given out twice"
            self.given.add(entry_id)
            self.stored[entry_id] = payload(number + n)

    def _forget(self, entry_id: int) -> None:
        del self.stored[entry_id]
        self.gone.add(entry_id)

    def check(self, found: dict[int, bytes]) -> None:
        assert not self.stored.keys() - found.keys() - self.maybe, "lost"
        assert not self.gone & found.keys(), "came back"
        for entry_id, data in found.items():
            assert data == self.stored.get(entry_id, data), "another record"
            assert data in self.written, "a record that nobody wrote"
        self.stored = dict(found)
        self.given |= found.keys()


def main(directory: str, kills: int, seed: int) -> None:
    rng = Random(seed)
    ledger = Ledger()
    while_opening = operations = 0
    for n in range(kills):
        reading, writing = os.pipe()
        writer = os.fork()
        if writer == 0:
            os.close(reading)
            try:
                write(directory, writing, seed * 1000 + n + 1)
            finally:
                traceback.print_exc()
                os._exit(1)
        os.close(writing)
        # Some are killed while they recover.
        text = b""
        if rng.random() < 0.7:
            text = os.read(reading, 65536)
        until = time.monotonic() + rng.random() * 0.08
        while (left := until - time.monotonic()) > 0:
            if select.select([reading], [], [], left)[0]:
                text += os.read(reading, 65536)
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the writer ended by itself"
        while piece := os.read(reading, 65536):
            text += piece
        os.close(reading)
        lines = text.decode().splitlines()
        while_opening += not lines
        operations += len(lines)
        ledger.take(lines)
        with WAL.open(directory, **OPTIONS) as wal:
            ledger.check({entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)})
            assert not wal.recovery.damaged
    document = {"kills": kills, "while_opening": while_opening, "reports": operations}
    print(json.dumps(document | {"ids": len(ledger.given)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
