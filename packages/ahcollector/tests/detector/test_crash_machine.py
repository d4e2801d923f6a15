"""C18, C19: a crash at every step between "decided" and "sent", as `agents_crashes` does it."""

import pytest
from agents_crashes import BOUNDS, CrashMachine, StagedCrashMachine, life

from ahwire import EventType

CrashMachine.TestCase.settings = BOUNDS
TestCrashMachine = CrashMachine.TestCase
StagedCrashMachine.TestCase.settings = BOUNDS
TestStagedCrashMachine = StagedCrashMachine.TestCase


@pytest.mark.parametrize(
    ("kind", "stride"),
    [
        (CrashMachine, 1),
        # At every await it is done without files: see test_stage_crash_machine.
        (StagedCrashMachine, 6),
        pytest.param(StagedCrashMachine, 1, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("what", ["killed", "call fails", "cancelled"])
def test_every_single_step_of_a_down_and_an_up_can_go_wrong(what, kind, stride):
    calm = life(None, what, kind)
    kinds = [event.type for event in calm.events]
    assert kinds == [EventType.AGENT_DOWN, EventType.AGENT_UP]
    assert calm.steps > 60
    for step in range(len(what) % stride, calm.steps, stride):
        kinds = [event.type for event in life(step, what, kind).events]
        assert kinds == [EventType.AGENT_DOWN, EventType.AGENT_UP], step
