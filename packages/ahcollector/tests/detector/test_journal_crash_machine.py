"""C18: the same crashes where decisions are in a journal, and the snapshot comes later."""

import pytest
from agents_crashes import BOUNDS, CrashMachine, StagedCrashMachine, life
from lit_fuse import InjectedError

from ahcollector.presence._journal import JournalFile, with_journal
from ahcollector.presence._snapshot import PresenceImage
from ahwire import EventType


class WiredJournal(JournalFile):
    """A journal whose process can die before, while and after it is written."""

    fuse = None
    adds = 0

    def add(self, decided, told):
        told = list(told)
        try:
            self.fuse.burn()
            if len(decided) > 1:
                # Half of it, as by a power cut.
                super().add(decided[:1], ())
                self.fuse.burn()
            super().add(decided, told)
            self.fuse.burn()
        except InjectedError as fault:
            raise OSError("no space") from fault
        type(self).adds += 1

    def turn_over(self):
        self._burning(super().turn_over)

    def settle(self):
        self._burning(super().settle)

    def _burning(self, work):
        try:
            self.fuse.burn()
            work()
            self.fuse.burn()
        except InjectedError as fault:
            raise OSError("no space") from fault


class Journalled:
    """Presence with a journal beside its snapshot."""

    def saved(self, file):
        found = super().saved(file)
        journal = WiredJournal(self.directory / "presence.jsonl", agents_min=0)
        journal.fuse = self.fuse
        image = with_journal(
            found["image"] or PresenceImage(),
            journal.read(),
            down_min_seconds=9,
            default_interval_seconds=3,
        )
        assert image.damaged == 0
        return {"snapshot": file, "journal": journal, "image": image}


class JournalCrashMachine(Journalled, CrashMachine):
    pass


class StagedJournalCrashMachine(Journalled, StagedCrashMachine):
    pass


JournalCrashMachine.TestCase.settings = BOUNDS
TestJournalCrashMachine = pytest.mark.fault(JournalCrashMachine.TestCase)
StagedJournalCrashMachine.TestCase.settings = BOUNDS
TestStagedJournalCrashMachine = pytest.mark.fault(StagedJournalCrashMachine.TestCase)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("kind", "stride"),
    [
        (JournalCrashMachine, 1),
        (StagedJournalCrashMachine, 6),
        pytest.param(StagedJournalCrashMachine, 1, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("what", ["killed", "call fails", "cancelled"])
def test_every_single_step_of_a_down_and_an_up_can_go_wrong(what, kind, stride):
    """C18: any await, and any step of the journal."""
    WiredJournal.adds = 0
    calm = life(None, what, kind)
    assert WiredJournal.adds > 1
    assert [event.type for event in calm.events] == [EventType.AGENT_DOWN, EventType.AGENT_UP]
    for step in range(len(what) % stride, calm.steps, stride):
        kinds = [event.type for event in life(step, what, kind).events]
        assert kinds == [EventType.AGENT_DOWN, EventType.AGENT_UP], step
