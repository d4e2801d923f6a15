"""The parts that decide without I/O: books, state, pace, suspicion."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ahwal.sender._books import Books, DropReason, Key
from ahwal.sender._pace import Pace
from ahwal.sender._state import TRANSITIONS, Delivery, DeliveryState, Signal
from ahwal.sender._suspect import ODD_ANSWERS_MAX, Suspicion
from ahwire import Backoff, limits, phase_offset


def balanced(books):
    figures = books.figures()
    lost = figures.dropped_total
    return figures.produced + figures.inherited == figures.delivered + lost + figures.queued


class BooksMachine(RuleBasedStateMachine):
    """Random histories of a queue; a plain model says what the books must show."""

    @initialize(inherited=st.lists(st.integers(0, 50), max_size=4))
    def start(self, inherited):
        self.books = Books()
        self.next_id = 100
        self.queue = [(i + 1, points) for i, points in enumerate(inherited)]
        self.unread = {batch_id for batch_id, _ in self.queue}
        self.dropped = self.delivered = 0

    def _read(self, count):
        head = self.queue[:count]
        self.books.seen(durable=True, batches=head)
        self.unread -= {batch_id for batch_id, _ in head}
        return head

    @rule(points=st.integers(0, 50))
    def append(self, points):
        self.queue.append((self.next_id, points))
        self.books.appended(Key(durable=True, id=self.next_id), points)
        self.next_id += 1

    @rule(count=st.integers(1, 3), refused=st.integers(0, 200))
    def deliver(self, count, refused):
        head = self._read(count)
        keys = [Key(durable=True, id=batch_id) for batch_id, _ in head]
        self.books.settle(keys, {DropReason.REFUSED: refused})
        points = sum(points for _, points in head)
        self.dropped += min(refused, points)
        self.delivered += points - min(refused, points)
        del self.queue[: len(head)]

    @rule()
    def drop(self):
        for batch_id, points in self._read(1):
            self.books.drop(Key(durable=True, id=batch_id), DropReason.BAD_REQUEST)
            self.dropped += points
            del self.queue[0]

    @rule(data=st.data())
    def split(self, data):
        for batch_id, points in self._read(1):
            cut = data.draw(st.integers(0, points))
            parts = [(self.next_id, cut), (self.next_id + 1, points - cut)]
            self.next_id += 2
            self.books.replaced(Key(durable=True, id=batch_id), parts, DropReason.TOO_OLD)
            self.queue[:1] = parts

    @rule(count=st.integers(1, 3))
    def evict(self, count):
        for batch_id, points in self.queue[:count]:
            if batch_id not in self.unread:
                self.dropped += points
            self.unread.discard(batch_id)
        del self.queue[:count]

    @rule()
    def refuse(self):
        self.books.refuse(DropReason.NOT_FINITE, 3)
        self.dropped += 3

    @invariant()
    def every_point_is_somewhere(self):
        assert balanced(self.books)
        self._read(2)
        assert balanced(self.books)
        figures = self.books.figures()
        assert figures.delivered == self.delivered
        assert figures.dropped_total == self.dropped
        known = sum(points for batch_id, points in self.queue if batch_id not in self.unread)
        assert figures.queued == known


TestBooks = BooksMachine.TestCase


def test_a_batch_that_moves_from_memory_to_disk_stays_counted_once():
    books = Books()
    old, new = Key(durable=False, id=1), Key(durable=True, id=9)
    books.appended(old, 5)
    books.moved(old, new)
    books.seen(durable=False, batches=[])
    assert books.figures().queued == 5
    books.settle([new], {})
    assert (books.figures().delivered, books.figures().queued) == (5, 0)
    assert balanced(books)


def test_no_row_of_the_state_table_leads_out_of_revoked():
    assert not [state for state, _ in TRANSITIONS if state is DeliveryState.AGENT_REVOKED]
    delivery = Delivery(backoff=Backoff(rng=random.Random(1)))
    delivery.signal(Signal.REVOKED, now=0.0)
    for signal in Signal:
        delivery.signal(signal, now=1e9)
        assert delivery.revoked
        assert not delivery.may_send(1e9)
        assert not delivery.may_probe(1e9)


@pytest.mark.parametrize("state", [DeliveryState.OK, DeliveryState.BACKOFF])
@pytest.mark.parametrize("signal", [s for s in Signal if s is not Signal.PROBE_PASSED])
def test_every_signal_that_can_come_while_sending_has_a_row(state, signal):
    assert (state, signal) in TRANSITIONS


def test_probes_are_never_closer_than_their_interval():
    delivery = Delivery(backoff=Backoff(rng=random.Random(1)), probe_interval_seconds=600)
    delivery.signal(Signal.UNAUTHORIZED, now=0.0)
    probes = []
    for now in range(0, 7200, 5):
        if delivery.may_probe(now):
            probes.append(now)
            delivery.signal(Signal.FAILED, now=now)
    assert len(probes) == 11
    assert all(later - earlier >= 600 for earlier, later in pairwise(probes))


def test_a_thousand_senders_at_the_cap_come_back_spread_over_the_whole_cap():
    # W20: jitter is not lost in the cap, and no second sees a crowd.
    outage_seconds, cap_seconds = 1800, 300
    tries = [0] * outage_seconds
    waits = []
    for seed in range(1000):
        delivery = Delivery(backoff=Backoff(rng=random.Random(seed)))
        now = phase_offset(f"agent-{seed}", 30)
        step = 5.0
        while now < outage_seconds:
            tries[int(now)] += 1
            delivery.signal(Signal.FAILED, now=now)
            due = delivery.due_in(now)
            assert due is not None
            if step >= cap_seconds:
                waits.append(due)
            step = min(step * 2, cap_seconds)
            now += due
    # Uniform on [0, 300 s]: each tenth has its share, the last no more than the others.
    tenths = [sum(30 * n <= wait < 30 * (n + 1) for wait in waits) for n in range(10)]
    share = len(waits) / 10
    assert all(0.9 * share < count < 1.1 * share for count in tenths)
    assert max(waits) <= cap_seconds
    # After ten minutes all are at the cap.
    steady = tries[600:]
    assert max(steady) <= 3 * sum(steady) / len(steady)


@given(st.floats(0, 1e7), st.integers(10, 300), st.lists(st.floats(0, 100), max_size=20))
def test_a_wait_of_the_pace_is_over_when_it_was_waited(start, interval, pauses):
    pace, now = Pace(interval_seconds=interval, now=start), start
    for pause in [0.0] * limits.METRICS_BURST + pauses:
        now += pause
        pace.take(now)
    wait = pace.wait_seconds(now)
    # A wait that a clock cannot measure would be waited again and again.
    assert wait == 0 or now + wait > now
    assert pace.take(now + wait)


def test_the_pace_is_the_protocols_and_a_429_slows_it_for_a_while():
    pace = Pace(interval_seconds=30, now=0.0)
    assert sum(pace.take(0.0) for _ in range(50)) == limits.METRICS_BURST
    assert pace.wait_seconds(0.0) == pytest.approx(15)
    assert not pace.take(14.9)
    assert pace.take(15.1)
    pace.limited(15.1)
    assert pace.wait_seconds(15.1) == pytest.approx(30)
    for _ in range(10):
        pace.accepted(16.0)
    assert pace.per_second == pytest.approx(4 / 60)


def test_only_odd_answers_in_a_row_to_one_batch_make_the_next_one_tried():
    suspicion = Suspicion()
    for _ in range(ODD_ANSWERS_MAX - 1):
        suspicion.odd("a")
    assert not suspicion.try_next("a")
    suspicion.odd("b")
    assert not suspicion.try_next("b")
    for _ in range(ODD_ANSWERS_MAX - 1):
        suspicion.odd("b")
    assert suspicion.try_next("b")
    suspicion.clear()
    assert not suspicion.try_next("b")
