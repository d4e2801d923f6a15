"""Nothing that was stored is lost, whenever the power goes.

Random histories run on a simulated disk whose power is cut at each single system call in turn, then
once more while recovering or soon after, and then what is there is compared with a ledger.
"""

import errno
import logging
from contextlib import suppress
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahwal.errors import WALWriteError
from ahwal.testing import PowerCut, SimulatedDisk
from ahwal.wal import WAL, Entry

SEGMENT_BYTES = 400
EVERYTHING = 10**9
KINDS = {"append": 30, "many": 8, "first": 25, "any": 10, "replace": 12, "reopen": 3, "read": 4}
KINDS_WITHOUT_REOPENING = KINDS | {"reopen": 0}


class Ledger:
    """What a caller of the WAL may rely on."""

    def __init__(self):
        self.stored: dict[int, bytes] = {}  # returned by append, and remove not called
        self.data: dict[int, bytes] = {}  # every id ever seen
        self.order: list[int] = []  # every id ever seen, as the queue is ordered
        self.removed: set[int] = set()
        self.replaced: set[int] = set()
        self.in_flight: list[bytes] = []
        self.swap: tuple[int, list[bytes]] | None = None

    def store(self, entry_id, data, before=None):
        assert entry_id not in self.data, f"id {entry_id} was given out twice"
        self.stored[entry_id] = self.data[entry_id] = data
        self.order.insert(len(self.order) if before is None else self.order.index(before), entry_id)

    def check(self, entries: list[Entry], *, removals_are_safe: bool):
        ids = [entry.id for entry in entries]
        assert len(set(ids)) == len(ids), "an id is in the queue twice"
        unknown = [entry for entry in entries if entry.id not in self.data]
        for entry in entries:
            if entry.id in self.data:
                assert entry.data == self.data[entry.id], "a record is corrupt"
        swap_old, swap_new = self.swap or (None, [])
        news = [entry.data for entry in unknown if entry.data in swap_new]
        others = [entry.data for entry in unknown if entry.data not in swap_new]
        assert set(others) <= set(self.in_flight), "a record that nobody wrote"
        if swap_old in self.stored:
            assert news == ([] if swap_old in ids else swap_new), "half a replacement"
            if news:
                first_new = next(n for n, entry in enumerate(entries) if entry.data in swap_new)
                older = set(self.order[: self.order.index(swap_old)])
                present_older = [entry_id for entry_id in ids if entry_id in older]
                assert ids[:first_new] == present_older, "a replacement lost its place"
        missing = self.stored.keys() - set(ids) - {swap_old}
        assert not missing, f"lost {missing}"
        assert not self.replaced & set(ids), "what was replaced came back"
        if removals_are_safe:
            assert not self.removed & set(ids), "what was removed came back"
        known = [entry_id for entry_id in ids if entry_id in self.data]
        assert known == [entry_id for entry_id in self.order if entry_id in set(known)], "order"
        self._adopt(entries)

    def _adopt(self, entries):
        """What was read after a crash is there from now on."""
        self.stored = {entry.id: entry.data for entry in entries}
        self.data |= self.stored
        self.order = [entry.id for entry in entries]
        self.removed -= self.stored.keys()
        self.in_flight.clear()
        self.swap = None


class Caller:
    """Does random things to a WAL and keeps the ledger."""

    def __init__(self, disk: SimulatedDisk, ledger: Ledger, rng: Random, tag: str):
        self.disk, self.ledger, self.rng, self.tag = disk, ledger, rng, tag
        self.count = 0

    def open(self):
        return WAL.open(
            "simulated",
            storage=self.disk.storage(),
            segment_bytes=SEGMENT_BYTES,
            max_bytes=10**9,
            max_age_seconds=None,
        )

    def payload(self) -> bytes:
        self.count += 1
        return f"{self.tag}.{self.count}.".encode() + self.rng.randbytes(self.rng.randint(0, 120))

    def run(self, wal: WAL, steps: int, kinds=KINDS):
        for _ in range(steps):
            kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
            live = [entry_id for entry_id in self.ledger.order if entry_id in self.ledger.stored]
            if kind == "append":
                self.append(wal, 1)
            elif kind == "many":
                self.append(wal, self.rng.randint(2, 8))
            elif kind == "first" and live:
                entry = wal.oldest()
                assert entry is not None
                assert entry.id == live[0]
                self.remove(wal, entry.id)
            elif kind == "any" and live:
                self.remove(wal, self.rng.choice(live))
            elif kind == "replace" and live:
                self.replace(wal, self.rng.choice(live))
            elif kind == "reopen":
                wal.close()
                wal = self.open()
            else:
                assert [entry.id for entry in wal.peek(EVERYTHING, EVERYTHING)] == live

    def append(self, wal, count):
        batches = [self.payload() for _ in range(count)]
        self.ledger.in_flight += batches
        with suppress(WALWriteError):
            for entry_id, data in zip(wal.append_many(batches), batches, strict=True):
                self.ledger.store(entry_id, data)

    def remove(self, wal, entry_id):
        del self.ledger.stored[entry_id]
        wal.remove(entry_id)
        self.ledger.removed.add(entry_id)

    def replace(self, wal, old):
        new = [self.payload() for _ in range(self.rng.randint(1, 3))]
        self.ledger.swap = (old, new)
        try:
            ids = wal.replace(old, new)
        except WALWriteError:
            # Refused: the old one stands, and a power cut may show some of the others beside it.
            self.ledger.swap = None
            self.ledger.in_flight += new
            return
        for entry_id, data in zip(ids, new, strict=True):
            self.ledger.store(entry_id, data, before=old)
        del self.ledger.stored[old]
        self.ledger.replaced.add(old)
        self.ledger.swap = None


FAULTS = ["write", "datasync", "create", "rename", "unlink", "sync_directory", "truncate"]


def trouble(disk: SimulatedDisk, rng: Random) -> None:
    """Calls fail now and then."""
    for _ in range(rng.randint(1, 8)):
        fault = rng.choice(FAULTS)
        error = rng.choice([errno.EIO, errno.ENOSPC])
        disk.fail(fault, error, skip=rng.randint(0, 6), times=rng.randint(1, 3))


def crash_once(
    seed: int,
    steps: int,
    cut: int,
    *,
    kill_only: bool = False,
    failing: bool = False,
    room_bytes: int | None = None,
    short_writes: bool = False,
) -> str | None:
    """Run a history and crash it in its call number `cut`, then again soon after.

    Args:
        seed: Of the history.
        steps: How long it is.
        cut: The call in which the power goes.
        kill_only: Only the process ends.
        failing: Calls fail now and then.
        room_bytes: The disk is full from then on, until the first crash.
        short_writes: Writes take only a part now and then.

    Returns:
        The call it was cut in; None when it ended before.
    """
    disk = SimulatedDisk(Random(seed * 7919 + cut), short_writes=short_writes)
    ledger = Ledger()
    first = Caller(disk, ledger, Random(seed), "a")
    kinds = KINDS
    if failing or room_bytes is not None:
        kinds = KINDS_WITHOUT_REOPENING
        first.open().close()
        disk.set_capacity(room_bytes)
    disk.cut_in(cut, kill_only=kill_only)
    try:
        wal = first.open()
        if failing:
            trouble(disk, Random(seed + 3))
        first.run(wal, steps, kinds)
    except PowerCut:
        crashed = True
    else:
        crashed = False
        disk.cut_power()
    where = disk.last_cut if crashed else None
    disk.heal()
    disk.set_capacity(None)

    # Again, while it recovers or soon after: the ledger knows nothing about what it recovered, so
    # nothing is done to it but appending.
    second = Caller(disk, ledger, Random(seed + 1), "b")
    disk.cut_in(Random(cut).randint(0, 25), kill_only=kill_only)
    try:
        wal = second.open()
        second.append(wal, 1)
        second.append(wal, 3)
    except PowerCut:
        pass
    else:
        disk.kill_process() if kill_only else disk.cut_power()

    third = Caller(disk, ledger, Random(seed + 2), "c")
    safe = kill_only and crashed and kinds is KINDS
    with third.open() as wal:
        ledger.check(wal.peek(EVERYTHING, EVERYTHING), removals_are_safe=safe)
        third.run(wal, 5)
    disk.kill_process()
    with third.open() as wal:
        assert [entry.id for entry in wal.peek(EVERYTHING, EVERYTHING)] == [
            entry_id for entry_id in ledger.order if entry_id in ledger.stored
        ]
    return where


def crash_on_a_failing_disk(seed: int) -> None:
    """Calls fail now and then, and in the end the power goes."""
    rng = Random(seed)
    disk = SimulatedDisk(Random(seed + 1), short_writes=rng.random() < 0.3)
    ledger = Ledger()
    caller = Caller(disk, ledger, rng, "a")
    wal = caller.open()
    trouble(disk, rng)
    caller.run(wal, 30, kinds=KINDS_WITHOUT_REOPENING)
    disk.heal()
    caller.run(wal, rng.randint(0, 5), kinds=KINDS_WITHOUT_REOPENING)
    if rng.random() < 0.5:
        disk.cut_power()
    else:
        disk.kill_process()
    with caller.open() as wal:
        ledger.check(wal.peek(EVERYTHING, EVERYTHING), removals_are_safe=False)
        caller.run(wal, 5)


def crash_everywhere(tally, what: str, seed: int, steps: int, **options) -> int:
    """Crash a history in each of its calls; how many there were."""
    cut = 0
    while (call := crash_once(seed, steps, cut, **options)) is not None:
        tally.count(what, call)
        cut += 1
    return cut


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "ahwal.wal")


def test_loses_nothing_at_any_of_500_power_cuts(tally):
    """W2, and at every other call: each history crashes twice in a row."""
    cuts = 0
    seed = 0
    while cuts < 600:
        cuts += crash_everywhere(tally, "power cut", seed, 25)
        seed += 1


def test_loses_nothing_when_the_process_is_killed_at_any_call(tally):
    assert crash_everywhere(tally, "kill", 1000, 40, kill_only=True) > 50


def test_loses_nothing_with_short_writes(tally):
    """W7."""
    assert crash_everywhere(tally, "power cut, short writes", 2000, 25, short_writes=True) > 50


@pytest.mark.parametrize("room_bytes", [900, 2000])
def test_loses_nothing_on_a_full_disk(tally, room_bytes):
    """W8: ENOSPC in the middle of writes, and the power goes at any call."""
    assert crash_everywhere(tally, "power cut, full disk", 3000, 25, room_bytes=room_bytes) > 20


def test_loses_nothing_while_calls_fail(tally):
    """W10: EIO and ENOSPC from any call, and the power goes at any other."""
    assert crash_everywhere(tally, "power cut, failing disk", 4000, 20, failing=True) > 20


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 80),
    cut=st.integers(0, 400),
    kill_only=st.booleans(),
    failing=st.booleans(),
    room_bytes=st.none() | st.integers(200, 5000),
    short_writes=st.booleans(),
)
def test_loses_nothing_in_any_history(seed, steps, cut, **options):
    crash_once(seed, steps, cut, **options)


def test_loses_nothing_on_a_failing_disk():
    for seed in range(250):
        crash_on_a_failing_disk(seed)


@pytest.mark.nightly
def test_loses_nothing_on_a_failing_disk_5000_times(tally):
    for seed in range(1000, 6000):
        crash_on_a_failing_disk(seed)
        tally.count("failing disk, then power cut or kill", "end of the history")


WORLDS = {
    "power cut": {},
    "power cut, short writes": {"short_writes": True},
    "power cut, full disk": {"room_bytes": 1500},
    "power cut, failing disk": {"failing": True, "short_writes": True},
    "kill": {"kill_only": True},
}


@pytest.mark.nightly
@pytest.mark.parametrize("what", WORLDS)
def test_loses_nothing_at_any_of_10000_power_cuts(tally, what):
    """2,500 in each of four worlds, and as many kills."""
    cuts = 0
    seed = 10_000
    while cuts < 2_500:
        cuts += crash_everywhere(tally, what, seed, 30, **WORLDS[what])
        seed += 1
