"""What a try of an entry is, step by step, with a shard and a handler of the test's own."""

import pytest

from ahcollector.bus import TRIES_MAX, _hand_over
from ahcollector.bus._alone import Alone
from ahcollector.bus._entries import encode
from ahcollector.bus._hand_over import Entry, HandOver, Read, taken_over
from ahcollector.errors import BusError
from ahcollector.metrics import NullMetrics
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of

pytestmark = pytest.mark.anyio
ENTRY = b"7-0"


class Shard:
    """A tenure and its backend that note what is asked of them."""

    shard, lease = 3, "lease"

    def __init__(self, handler=None):
        self.notes = []
        self.held = {}
        self.handler = handler
        self.room = True

    def is_valid(self):
        return True

    def hold(self, entry_id):
        self.held[entry_id] = 1
        return 1

    def ack(self, entry_id, hand_over):
        del self.held[entry_id]

    def begun(self, entry_id, tries):
        self.notes.append(("begun", tries))

    def may_keep_tries(self):
        return self.room

    def clear_tries(self, entry_id):
        self.notes.append("cleared")

    def forget(self, entry_id):
        self.held.pop(entry_id, None)

    async def begin(self, shard, lease, entry_id, tries):
        self.notes.append(("counted", tries))
        return 1

    async def bury(self, shard, lease, entry_id, *, reason, now, dead_max):
        self.notes.append(("buried", reason))
        return 0

    async def handle(self, delivery):
        self.notes.append(("handled", delivery.attempt))
        if self.handler is not None:
            await self.handler(delivery)

    async def run(self, entry):
        await HandOver(
            tenure=self,
            streams=self,
            handler=self.handle,
            clock=FakeClock(),
            metrics=NullMetrics(),
            retry_seconds=0.0,
            dead_max=1,
            alone=Alone(),
        ).run(entry)


def pending(tries, *, counted=()):
    read = Read(entry_id=ENTRY, tries=tries, data=encode(batch_of(0)))
    return taken_over(read, counted)


@pytest.fixture
def decoded(monkeypatch):
    """Has the shard note that an entry is decoded."""

    def listen(shard):
        def decode(data):
            shard.notes.append("decoded")
            return batch_of(0)

        monkeypatch.setattr(_hand_over, "decode", decode)
        return shard

    return listen


@pytest.mark.fault
@pytest.mark.parametrize("tries", range(2, TRIES_MAX))
async def test_the_next_try_of_what_a_process_died_with_is_counted_before_it_is_decoded(
    decoded, tries
):
    """C9: for what kills may be what reads it."""
    shard = decoded(Shard())
    await shard.run(pending(tries))
    count = tries + 1
    assert shard.notes == [
        ("counted", count),
        "decoded",
        ("begun", count),
        ("handled", count),
        "cleared",
    ]


@pytest.mark.fault
async def test_what_had_all_its_tries_is_set_aside_without_being_decoded(decoded):
    """C9."""
    shard = decoded(Shard())
    await shard.run(pending(TRIES_MAX))
    assert shard.notes == [("buried", "the process ended, or its lease, in each of 5 tries")]


async def test_a_second_try_is_kept_until_the_handler_clears_it_or_settles_the_entry():
    shard = Shard()
    await shard.run(pending(1, counted={ENTRY}))
    assert shard.notes == [("begun", 2), ("handled", 2)]

    async def clears(delivery):
        await delivery.clear_tries()
        await delivery.ack()
        # It is settled.
        await delivery.clear_tries()

    shard = Shard(clears)
    await shard.run(pending(1, counted={ENTRY}))
    assert shard.notes == [("begun", 2), ("handled", 2), "cleared"]


async def test_where_there_is_no_room_to_keep_tries_the_return_of_the_handler_clears_them():
    shard = Shard()
    shard.room = False
    await shard.run(pending(1, counted={ENTRY}))
    assert shard.notes == [("begun", 2), ("handled", 2), "cleared"]


async def test_a_first_try_costs_nothing():
    shard = Shard()
    read = Read(entry_id=ENTRY, tries=1, data=encode(batch_of(0)))
    await shard.run(Entry(read=read, is_counted=True, is_first=True, tries=1))
    assert shard.notes == [("handled", 1)]


async def test_what_cannot_be_read_is_set_aside_in_the_try_that_finds_it(monkeypatch):
    def decode(_):
        raise BusError("no batch")

    monkeypatch.setattr(_hand_over, "decode", decode)
    shard = Shard()
    await shard.run(pending(2))
    assert shard.notes == [("counted", 3), ("buried", "no batch")]


class Patient(Shard):
    """A shard whose handler tells when it is ready."""

    def __init__(self, handler=None, error=None):
        super().__init__(handler)
        self.error = error
        self.handle = self

    async def __call__(self, delivery):
        await Shard.handle(self, delivery)

    async def ready(self, shard):
        self.notes.append(("ready", shard))
        if self.error is not None:
            raise self.error


@pytest.mark.fault
@pytest.mark.parametrize("error", [None, LookupError("odd")])
async def test_a_further_try_is_counted_when_the_handler_is_ready_for_it(error):
    """C9: and is made, whatever that raises."""
    shard = Patient(error=error)
    await shard.run(pending(2))
    assert shard.notes == [("ready", 3), ("counted", 3), ("begun", 3), ("handled", 3), "cleared"]
    shard = Patient(error=error)
    await shard.run(pending(TRIES_MAX))
    assert shard.notes == [("buried", "the process ended, or its lease, in each of 5 tries")]


async def test_what_was_settled_meanwhile_is_tried_no_more():
    shard = Patient()

    async def ready(number):
        shard.held.clear()

    shard.ready = ready
    await shard.run(pending(2))
    assert shard.notes == []


async def test_a_try_that_is_counted_already_asks_nobody():
    shard = Patient()
    await shard.run(pending(1, counted={ENTRY}))
    assert shard.notes == [("begun", 2), ("handled", 2)]
