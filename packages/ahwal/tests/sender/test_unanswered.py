"""A long outage costs the host little: what only asks whether the collector is back is small."""

import pytest

from ahwal.testing import ScriptedAnswer

pytestmark = pytest.mark.anyio


async def test_after_no_answer_one_batch_is_tried_before_the_backlog_is_merged_again(rig):
    rig.sender.catch_up_batches = 1
    for _ in range(10):
        await rig.enqueue()
    rig.collector.script(ScriptedAnswer(reset=True), ScriptedAnswer(reset=True))
    await rig.tick()
    await rig.tick(300.0)
    await rig.tick(300.0)
    points = [sum(len(s.points) for s in b.series) for b in rig.collector.batches()]
    assert points == [10, 1, 1, 9]
    assert rig.status.delivered == 10
