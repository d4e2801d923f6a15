"""Books over points: what was sent, what a door said of it, and what a store and its drops show.

Nothing here is a fault or a service: `test_ledger.py` tries the books themselves, too.
"""

import json
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ahwire.agent_pb2 import MetricsBatch

PREFIX = "ah_ledger_"  # of every name as it is stored


@dataclass(frozen=True)
class Tenant:
    company: str
    server: str


@dataclass(frozen=True)
class Sent:
    """A batch as its sender knows it.

    `points` are those a door takes: (name as stored, stamp in ms) to value. `faults` counts the
    others by the code that the protocol has for them. `is_poison`: a store refuses it for good.
    """

    request_id: str
    tenant: Tenant
    seq: int
    points: dict[tuple[str, int], float]
    faults: Counter
    is_poison: bool
    body: bytes = field(repr=False)


class BatchMaker:
    """Makes batches whose points nobody else has: each stamp of a series comes once."""

    def __init__(self, *, tenant, number, now_ms, rng):
        self._tenant = tenant
        self._number = number
        self._now_ms = now_ms
        self._stamp_ms = now_ms - 3_600_000
        self._rng = rng
        self._seq = 0

    def make(self, *, poison=False):
        """A batch of a few series, some of them with points that no door takes."""
        rng = self._rng
        self._seq += 1
        batch = MetricsBatch(seq=self._seq, sent_at_ms=self._now_ms, collected_at_ms=self._now_ms)
        points, faults = {}, Counter()
        kind = "poison" if poison else "value"
        for number in rng.sample(range(12), rng.randint(1, 8)):
            series = batch.series.add(name=f"ledger_{kind}_{number}")
            series.labels.add(name="kind", value=kind)
            for _ in range(rng.randint(1, 4)):
                self._stamp_ms += rng.randint(1, 20)
                # Who reads a value knows whose it is: none of another sender's is like it.
                value = float(self._stamp_ms % 1_000_000_000 * 16 + self._number)
                series.points.add(ts_ms=self._stamp_ms, value=value)
                points[PREFIX + series.name.removeprefix("ledger_"), self._stamp_ms] = value
            self._spoil(series, faults)
        return Sent(
            request_id=f"{rng.getrandbits(64):016x}",
            tenant=self._tenant,
            seq=self._seq,
            points=points,
            faults=faults,
            is_poison=poison,
            body=batch.SerializeToString(),
        )

    def make_hopeless(self):
        """A batch of which no door takes a point."""
        self._seq += 1
        batch = MetricsBatch(seq=self._seq)
        series = batch.series.add(name="ledger_value_0")
        series.points.add(ts_ms=self._now_ms, value=float("nan"))
        return Sent(
            request_id=f"{self._rng.getrandbits(64):016x}",
            tenant=self._tenant,
            seq=self._seq,
            points={},
            faults=Counter(not_finite=1),
            is_poison=False,
            body=batch.SerializeToString(),
        )

    def _spoil(self, series, faults):
        """Add points that are not taken; far from the edges, which another test looks at."""
        if self._rng.random() < 0.1:
            value = self._rng.choice([float("nan"), float("inf"), float("-inf")])
            series.points.add(ts_ms=self._stamp_ms, value=value)
            faults["not_finite"] += 1
        if self._rng.random() < 0.1:
            series.points.add(ts_ms=self._now_ms - 48 * 3_600_000, value=1.0)
            faults["too_old"] += 1
        if self._rng.random() < 0.1:
            series.points.add(ts_ms=self._now_ms + 48 * 3_600_000, value=1.0)
            faults["in_future"] += 1


@dataclass(frozen=True)
class Balance:
    """What became of the points that were acknowledged, and what is wrong with it."""

    acknowledged: int
    readable: int
    dropped: Counter  # by reason
    wrong: dict[str, list]  # what is wrong, to some of its places

    def check(self):
        assert not self.wrong, {what: places[:5] for what, places in self.wrong.items()}
        assert self.acknowledged == self.readable + self.dropped.total()


class Ledger:
    """Every batch that was sent and what a door answered; used by several threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._sent = {}
        self._acknowledged = set()
        self.answers = Counter()  # by status, or by the error's name
        self.problems = []
        # What an incarnation of a server surely counted, and what it may have counted besides.
        self.told = defaultdict(Counter)
        self.unsure = defaultdict(Counter)

    def sends(self, batch):
        with self._lock:
            self._sent[batch.request_id] = batch

    def answered(self, what):
        with self._lock:
            self.answers[str(what)] += 1

    def unanswered(self, batch, incarnations):
        with self._lock:
            for incarnation in set(incarnations):
                self.unsure[incarnation] += _counted(batch)

    def acknowledges(self, batch, ack, incarnations):
        """A door said for good what it takes of a batch; it must say what is true."""
        said = Counter()
        for rejected in ack.rejected:
            said[rejected.code] += rejected.points
        with self._lock:
            if ack.ack_seq != batch.seq or ack.accepted_points != len(batch.points):
                self.problems.append(f"{batch} is answered by {ack}")
            if said != batch.faults or ack.dropped_points != said.total():
                self.problems.append(f"{batch} is answered by {ack}")
            self._acknowledged.add(batch.request_id)
            if len(set(incarnations)) == 1:
                self.told[incarnations[0]] += _counted(batch)
            else:
                for incarnation in set(incarnations):
                    self.unsure[incarnation] += _counted(batch)

    def problem(self, text):
        with self._lock:
            self.problems.append(text)

    @property
    def acknowledged(self):
        with self._lock:
            return len(self._acknowledged)

    def balance(self, stored, *, dead):
        """Compare with what a store shows, and with what is set aside.

        `stored` are lines of an export, `dead` the reasons by request id of batches that workers or
        the bus set aside.
        """
        wrong = defaultdict(list)
        shown = _shown(stored, wrong)
        sent = {
            (batch.tenant, *place): (batch, value)
            for batch in self._sent.values()
            for place, value in batch.points.items()
        }
        for place, value in shown.items():
            if place not in sent:
                wrong["never sent"].append(place)
            elif sent[place][1] != value:
                wrong["another value"].append((place, value, sent[place][1]))
        readable, dropped = 0, Counter()
        for request_id in self._acknowledged:
            batch = self._sent[request_id]
            dropped += batch.faults
            here = [place for place in batch.points if (batch.tenant, *place) in shown]
            readable += len(here)
            reason = dead.get(request_id)
            if batch.is_poison and (here or reason is None):
                wrong["refused by the store, and not set aside"].append(batch)
            elif reason is not None and reason.startswith("worker") and not batch.is_poison:
                wrong["set aside, and nothing is wrong with it"].append((batch, reason))
            if reason is not None:
                # An entry that the bus gave up may have been written before.
                dropped[reason] += len(batch.points) - len(here)
            elif len(here) < len(batch.points):
                missing = set(batch.points) - set(here)
                wrong["lost"] += [(batch.request_id, batch.tenant, *place) for place in missing]
        acknowledged = sum(
            len(self._sent[request_id].points) + self._sent[request_id].faults.total()
            for request_id in self._acknowledged
        )
        return Balance(
            acknowledged=acknowledged, readable=readable, dropped=+dropped, wrong=dict(wrong)
        )


def _counted(batch):
    """What a server counts of a batch when it has judged it and the bus took it."""
    return batch.faults + Counter(accepted=len(batch.points))


def _shown(stored, wrong):
    """(tenant, name, stamp) to value, of an export's lines."""
    shown = {}
    for line in stored:
        series = json.loads(line)
        labels = series["metric"]
        tenant = Tenant(labels.pop("company_id", "?"), labels.pop("server_id", "?"))
        name = labels.pop("__name__", "?")
        if labels != {"kind": name.removeprefix(PREFIX).partition("_")[0]}:
            wrong["other labels"].append((tenant, name, labels))
        for stamp_ms, value in zip(series["timestamps"], series["values"], strict=True):
            place = (tenant, name, stamp_ms)
            if place in shown:
                wrong["twice"].append(place)
            shown[place] = value
    return shown
