"""Threshold rules over a real host: ten minutes of ahwal's collectors, with a busy loop in them.

`recorded/host.json.gz` holds what `ahwal.host.collectors()` measured on a machine of two processors
each 5 s. Two processes computed from the 180th to the 330th second, and what else ran afterwards
was a team at work. What must be told is worked out by a model of the rules that is written anew
here, over all points at once.
"""

import gzip
import json
from pathlib import Path
from random import Random

import anyio
import pytest
from alert_world import World, rule

from ahcollector.alerts import AlertSettings, ObservingWriter
from ahcollector.bus import InProcessBus, SampleBatch, StoredSeries, shard_for
from ahcollector.store import MemoryStore
from ahcollector.worker import Worker

pytestmark = pytest.mark.anyio

RECORDED = json.loads(
    gzip.decompress((Path(__file__).parent / "recorded/host.json.gz").read_bytes())
)
RULES = {
    "hot": {
        "metric": "cpu_usage_percent",
        "threshold": 90,
        "for_seconds": 20,
        "resolve_threshold": 60,
        "keep_firing_seconds": 15,
        "reminder_seconds": 60,
    },
    "restless": {"metric": "cpu_usage_percent", "threshold": 50},
    "idle": {"metric": "cpu_usage_percent", "op": "lt", "threshold": 1, "for_seconds": 15},
    "loaded": {"metric": "load_1m", "op": "gte", "threshold": 2, "keep_firing_seconds": 20},
    "full": {"metric": "disk_used_percent", "threshold": 99},
}


def batches():
    """What the host's agent would have sent, a batch a cycle."""
    made = []
    for number, at_ms in enumerate(RECORDED["times_ms"]):
        series = tuple(
            StoredSeries(
                labels=(
                    ("__name__", f"ah_{one['name']}"),
                    ("company_id", "acme"),
                    ("server_id", "web-1"),
                    *sorted(one["labels"].items()),
                ),
                points=((at_ms, one["values"][number]),),
            )
            for one in RECORDED["series"]
            if one["values"][number] is not None
        )
        made.append(
            SampleBatch(
                company_id="acme",
                server_id="web-1",
                agent_id="a1",
                request_id=f"r{number}",
                received_at_ms=at_ms,
                series=series,
            )
        )
    return made


BATCHES = batches()


def model(fields):
    """What a rule tells over the whole recording: (type, Unix seconds, duration, peak)."""
    above = {"gt": lambda a, b: a > b, "lt": lambda a, b: a < b, "gte": lambda a, b: a >= b}
    holds = above[fields.get("op", "gt")]
    farther = min if fields.get("op") == "lt" else max
    ends_at = fields.get("resolve_threshold", fields["threshold"])
    (series,) = [one for one in RECORDED["series"] if one["name"] == fields["metric"]]
    told, since, over, opened, peak = [], None, None, None, None
    for at_ms, value in zip(RECORDED["times_ms"], series["values"], strict=True):
        at = at_ms / 1000
        if opened is None:
            if not holds(value, fields["threshold"]):
                since = peak = None
                continue
            since, peak = (at, value) if since is None else (since, farther(peak, value))
            if at - since >= fields.get("for_seconds", 0):
                opened, over = at, None
                told.append(("alert.opened", at, None, peak))
            continue
        limit = fields["threshold"] if over is not None else ends_at
        if holds(value, limit):
            over, peak = None, farther(peak, value)
            continue
        over = at if over is None else over
        if at - over >= fields.get("keep_firing_seconds", 0):
            told.append(("alert.resolved", at, at - opened, peak))
            opened = since = over = peak = None
    return rounded(told)


def rounded(told):
    """To the millisecond, in which the points' times are."""
    return [tuple(round(x, 3) if isinstance(x, float) else x for x in one) for one in told]


def told_by(events, rule_id):
    mine = [event for event in events if event.rule_id == rule_id]
    return rounded(
        (one.type.value, one.occurred_at.timestamp(), one.duration_seconds, one.peak_value)
        for one in mine
        if one.type.value in ("alert.opened", "alert.resolved")
    )


def assert_as_the_model_says(events):
    for rule_id, fields in RULES.items():
        assert told_by(events, rule_id) == model(fields), rule_id
    opened = [one for one in events if one.rule_id == "hot" and one.type.value == "alert.opened"]
    reminders = [
        one for one in events if one.rule_id == "hot" and one.type.value == "alert.reminder"
    ]
    resolved = [
        one for one in events if one.rule_id == "hot" and one.type.value == "alert.resolved"
    ]
    due = int(resolved[0].duration_seconds // 60)
    assert len(reminders) == due >= 2
    for number, event in enumerate(reminders, 1):
        late = (event.occurred_at - opened[0].occurred_at).total_seconds() - number * 60
        assert -0.001 <= late <= 10.001


def world():
    made = World(
        *(rule(name, **fields) for name, fields in RULES.items()),
        settings=AlertSettings(flapping=None),
    )
    made.clock.step_wall(BATCHES[0].received_at_ms / 1000 - made.clock.time())
    return made


def test_recording_is_one_in_which_something_happens():
    told = {name: [kind for kind, *_ in model(fields)] for name, fields in RULES.items()}
    assert told["hot"][:2] == ["alert.opened", "alert.resolved"]
    assert len(told["restless"]) > 10
    assert len(told["idle"]) >= 4
    assert told["loaded"] == ["alert.opened", "alert.resolved"]
    assert told["full"] == []


async def follow(made, one):
    """Let the clock go on to a batch, with a tick each 10 s of it."""
    while made.clock.time() < one.received_at_ms / 1000:
        made.clock.advance(min(5.0, one.received_at_ms / 1000 - made.clock.time()))
    await made.show(one)
    await made.engine.tick()


async def test_alerts_of_a_real_host_are_those_of_the_model():
    made = world()
    for one in BATCHES:
        await follow(made, one)
    assert_as_the_model_says(await made.events())


@pytest.mark.fault
@pytest.mark.parametrize("every", [1, 7])
async def test_restarts_in_every_state_change_nothing(every):
    """A4: a new process after each batch, and after each seventh: pending, firing, keep-firing."""
    made = world()
    for number, one in enumerate(BATCHES):
        await follow(made, one)
        if number % every == 0:
            await made.engine.save()
            made.start()
    assert_as_the_model_says(await made.events())


@pytest.mark.fault
async def test_backlog_that_comes_late_and_in_bulk_tells_the_same():
    """A3: the points' own time decides; only reminders go by the clock."""
    made = world()
    made.clock.advance(3600)
    await made.engine.tick()
    shuffled = [BATCHES[at : at + 30] for at in range(0, len(BATCHES), 30)]
    for part in shuffled:
        await made.show(*part, *part[:5])
    for rule_id, fields in RULES.items():
        told = told_by(await made.events(), rule_id)
        assert told == model(fields), rule_id


@pytest.mark.parametrize("anyio_backend", ["trio"])  # which tells at once that all tasks wait
async def test_from_the_bus_through_the_worker_to_the_outbox():
    made = world()
    bus = InProcessBus(clock=made.clock)
    store = MemoryStore(clock=made.clock)
    worker = Worker(
        bus=bus,
        store=ObservingWriter(writer=store, observer=made.engine),
        clock=made.clock,
        rng=Random(1),
        shards=[shard_for("web-1")],
        flush_seconds=2.0,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        tasks.start_soon(made.engine.run)
        for one in BATCHES:
            await made.clock.run_for(one.received_at_ms / 1000 - made.clock.time())
            await bus.publish(one)
        await bus.close()
        await made.clock.run_for(10)
        tasks.cancel_scope.cancel()
    events = await made.events()
    for rule_id, fields in RULES.items():
        assert told_by(events, rule_id) == model(fields), rule_id
    assert len(await store.series("acme")) == len(RECORDED["series"])


async def test_flapping_of_a_real_host_is_told_once():
    made = World(rule("restless", **RULES["restless"]))
    made.clock.step_wall(BATCHES[0].received_at_ms / 1000 - made.clock.time())
    for one in BATCHES:
        await follow(made, one)
    told = await made.told()
    assert told[:5] == [
        ("opened", "condition"),
        ("resolved", "condition"),
        ("opened", "condition"),
        ("resolved", "flapping"),
        ("flapping", None),
    ]
    assert {reason for _, reason in told[5:]} == {"flapping"}
    assert len(told) == len(model(RULES["restless"])) + 1


async def test_other_series_of_the_host_are_not_watched():
    made = world()
    await made.show(BATCHES[0])
    watched = {one["name"] for one in RECORDED["series"]} & {
        fields["metric"] for fields in RULES.values()
    }
    count = sum(one["name"] in watched for one in RECORDED["series"])
    assert made.metric("ahc_rules_series") == count
