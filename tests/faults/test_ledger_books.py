"""The books of the ledger find what they are there to find."""

import json
import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger import BatchMaker, Ledger, Tenant

from ahwire.agent_pb2 import MetricsAck, RejectedSeries

TENANTS = [Tenant("acme", "web1"), Tenant("umbra", "web1")]
NOW_MS = 1_700_000_000_000


def acknowledgement(batch):
    rejected = [RejectedSeries(code=code, points=n) for code, n in batch.faults.items()]
    return MetricsAck(
        ack_seq=batch.seq,
        accepted_points=len(batch.points),
        dropped_points=batch.faults.total(),
        rejected=rejected,
    )


def exported(points):
    """Lines of an export of (tenant, name, stamp, value)."""
    series = defaultdict(lambda: ([], []))
    for tenant, name, stamp, value in points:
        stamps, values = series[tenant, name]
        stamps.append(stamp)
        values.append(value)
    return [
        json.dumps(
            {
                "metric": {
                    "__name__": name,
                    "company_id": tenant.company,
                    "server_id": tenant.server,
                    "kind": name.split("_")[2],
                },
                "timestamps": stamps,
                "values": values,
            }
        )
        for (tenant, name), (stamps, values) in series.items()
    ]


class Story:
    """Batches of two tenants, all acknowledged but one; the store has what it should have."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.ledger = Ledger()
        self.batches = []
        makers = [
            BatchMaker(tenant=tenant, number=number, now_ms=NOW_MS, rng=self.rng)
            for number, tenant in enumerate(TENANTS)
        ]
        for number in range(6):
            batch = makers[number % 2].make(poison=number == 4)
            self.ledger.sends(batch)
            self.batches.append(batch)
            if number < 5:
                self.ledger.acknowledges(batch, acknowledgement(batch), [("first", 0)])
        self.poison, self.unanswered = self.batches[4:]
        self.dead = {self.poison.request_id: "worker: refused"}
        self.stored = self.points(*self.batches[:4])

    @staticmethod
    def points(*batches):
        return [
            (batch.tenant, name, stamp, value)
            for batch in batches
            for (name, stamp), value in batch.points.items()
        ]

    def balance(self):
        return self.ledger.balance(exported(self.stored), dead=self.dead)

    def lose(self):
        self.stored.pop(self.rng.randrange(len(self.stored)))

    def double(self):
        self.stored.append(self.rng.choice(self.stored))

    def mix_tenants(self):
        tenant, *rest = self.stored.pop()
        self.stored.append((TENANTS[tenant == TENANTS[0]], *rest))

    def invent(self):
        tenant, name, stamp, value = self.stored[0]
        self.stored.append((tenant, name, stamp - 1, value))

    def alter(self):
        *place, value = self.stored.pop()
        self.stored.append((*place, value + 1))

    def store_poison(self):
        self.stored += self.points(self.poison)

    def forget_poison(self):
        self.dead.clear()

    def bury_the_living(self):
        self.dead[self.batches[0].request_id] = "worker: refused"


@given(st.integers(), st.booleans())
def test_books_that_are_right_balance_whether_or_not_the_unanswered_one_arrived(seed, arrived):
    story = Story(seed)
    if arrived:
        story.stored += story.points(story.unanswered)
    balance = story.balance()
    balance.check()
    assert not story.ledger.problems
    assert balance.dropped["worker: refused"] == len(story.poison.points)
    assert balance.readable == sum(len(batch.points) for batch in story.batches[:4])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("lose", "lost"),
        ("double", "twice"),
        ("mix_tenants", "lost"),
        ("invent", "never sent"),
        ("alter", "another value"),
        ("store_poison", "refused by the store, and not set aside"),
        ("forget_poison", "refused by the store, and not set aside"),
        ("bury_the_living", "set aside, and nothing is wrong with it"),
    ],
)
@given(seed=st.integers())
def test_each_fault_is_told_by_its_name(fault, told, seed):
    story = Story(seed)
    getattr(story, fault)()
    balance = story.balance()
    assert told in balance.wrong
    with pytest.raises(AssertionError):
        balance.check()


@given(st.integers(), st.sampled_from(["accepted_points", "dropped_points", "ack_seq"]))
def test_an_answer_that_is_not_true_is_a_problem(seed, field):
    story = Story(seed)
    ack = acknowledgement(story.unanswered)
    setattr(ack, field, getattr(ack, field) + 1)
    story.ledger.acknowledges(story.unanswered, ack, [("first", 0)])
    assert story.ledger.problems


def test_what_the_bus_gave_up_is_a_drop_even_where_a_part_of_it_was_written():
    story = Story(1)
    given_up = story.batches[0]
    story.stored = story.points(*story.batches[1:4], given_up)
    story.stored.pop()
    story.dead[given_up.request_id] = "bus: five tries"
    balance = story.balance()
    balance.check()
    assert balance.dropped["bus: five tries"] == 1
