"""Rules and silences from the hub: on time, by etag, and kept for a start without it."""

import json
import logging

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from ahcollector.alerts import (
    FileKeptLists,
    MemoryKeptLists,
    RulePuller,
    SilencePuller,
    rules_in_force,
)
from ahcollector.errors import AlertStateError, HubError, TemporaryHubError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing import FakeClock, FakeHub
from ahrules import Evaluator, FieldError, RuleError, SilenceError
from ahwire.hub import Silence, ThresholdRule
from ahwire.names import metric_name

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def rule(rule_id, **fields):
    known = {"version": 1, "metric": "ah_cpu", "op": "gt", "threshold": 90, "severity": "warning"}
    return ThresholdRule.from_json(json.dumps({"rule_id": rule_id, **known, **fields}).encode())


def test_rules_of_every_company_stand_among_those_of_each():
    rules = rules_in_force(
        [
            rule("a", company_id="acme"),
            rule("all", metric="disk.used"),
            rule("b", company_id="blue", metric="ah_mem"),
            rule("off", company_id="blue", metric="ah_load", enabled=False),
        ]
    )
    assert [one.rule_id for one in rules.of("acme")] == ["a", "all"]
    assert [one.rule_id for one in rules.of("blue")] == ["all", "b", "off"]
    assert [one.rule_id for one in rules.of("other")] == ["all"]
    assert rules.metrics("blue") == {"ah_disk_used", "ah_mem"}
    assert rules.metrics("other") == {"ah_disk_used"}, "as it is stored, however it was written"
    assert (rules.count, rules.refused) == (4, ())


def test_rule_that_cannot_be_used_is_named_once_and_stops_no_other():
    broken = rule("bad", matchers=[{"label": "core", "op": "re", "value": "[0-9"}])
    rules = rules_in_force(
        [broken, rule("a", company_id="acme"), rule("b", company_id="blue"), rule("b")]
    )
    paths = [(one.rule_id, [error.path for error in one.errors]) for one in rules.refused]
    assert sorted(paths) == [("b", ["rule_id"]), ("bad", ["matchers[0].value"])]
    assert rules.count == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from([None, "acme", "blue"]),
            st.sampled_from(["[0-9]", "[0-9"]),
            st.booleans(),
        ),
        max_size=10,
    )
)
def test_rules_are_refused_as_an_evaluator_of_each_company_refuses_them(rows):
    rules = [
        rule(
            rule_id,
            enabled=enabled,
            matchers=[{"label": "core", "op": "re", "value": pattern}],
            **({} if company is None else {"company_id": company}),
        )
        for rule_id, company, pattern, enabled in rows
    ]
    expected = set()
    for company in ("acme", "blue", "other"):
        trial = Evaluator(company_id=company)
        trial.set_rules(rules, 0.0)
        expected |= {(one.tenant_id, one.rule_id, one.errors) for one in trial.refused}
    found = [(one.tenant_id, one.rule_id, one.errors) for one in rules_in_force(rules).refused]
    assert len(found) == len(set(found))
    assert set(found) == expected


class CountedText(str):
    """A text that counts how often it is looked up."""

    __slots__ = ()

    asked = 0

    def __hash__(self):
        CountedText.asked += 1
        return super().__hash__()


@pytest.mark.parametrize(("general", "companies"), [(200, 1), (200, 200), (1, 200)])
def test_rules_of_every_company_are_looked_at_once_however_many_companies_there_are(
    general, companies
):
    plain = rule("plain")
    given = [
        *(attrs.evolve(plain, rule_id=CountedText(f"all-{n}")) for n in range(general)),
        *(
            attrs.evolve(plain, rule_id=CountedText(f"own-{n}"), company_id=f"c{n}")
            for n in range(companies)
        ),
    ]
    CountedText.asked = 0
    rules = rules_in_force(given)
    assert CountedText.asked <= 12 * (general + companies)
    assert rules.count == general + companies
    assert [len(rules.of(name)) for name in ("c0", "other")] == [general + 1, general]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "acme", "blue"]),
            st.sampled_from(["ah_cpu", "ah_mem", "disk"]),
            st.booleans(),
        ),
        max_size=10,
    )
)
def test_rules_and_metrics_of_a_company_are_its_own_and_those_of_all_in_order(rows):
    given_rules = [
        rule(f"r{n}", metric=metric, enabled=enabled, **({"company_id": name} if name else {}))
        for n, (name, metric, enabled) in enumerate(rows)
    ]
    rules = rules_in_force(given_rules)
    for company in ("acme", "blue", "other"):
        mine = [one for one in given_rules if one.company_id in (None, company)]
        assert [one.rule_id for one in rules.of(company)] == [one.rule_id for one in mine]
        metrics = {metric_name(one.metric) for one in mine if one.enabled}
        found = rules.metrics(company)
        assert found == metrics
        assert (len(found), sorted(found)) == (len(metrics), sorted(metrics))
        assert bool(found) is bool(metrics)


class World:
    """A hub, and a puller of each kind beside it."""

    def __init__(self, kept=None):
        self.clock = FakeClock()
        self.hub = FakeHub()
        self.kept = kept if kept is not None else MemoryKeptLists()
        self.start()

    def start(self):
        """A new process."""
        self.metrics = PrometheusMetrics()
        options = {
            "hub": self.hub,
            "kept": self.kept,
            "clock": self.clock,
            "metrics": self.metrics,
        }
        self.rules = RulePuller(**options)
        self.silences = SilencePuller(**options)

    def metric(self, line):
        found = [
            text.rpartition(" ")[2]
            for text in generate_latest(self.metrics.registry).decode().splitlines()
            if text.startswith(f"{line} ")
        ]
        return float(found[0]) if found else None


def silence(silence_id="s1"):
    return Silence.from_json(
        b'{"silence_id":"%s","company_id":"acme","all":true,"matchers":[],'
        b'"starts_at":"2026-01-01T00:00:00Z"}' % silence_id.encode()
    )


async def test_hub_is_asked_at_once_and_each_minute_and_by_etag():
    world = World()
    world.hub.threshold_rules = (rule("a"),)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.rules.run)
        await world.clock.run_for(0)
        first = world.rules.current
        assert [one.rule_id for one in first.of("acme")] == ["a"]
        await world.clock.run_for(60)
        assert world.rules.current is first, "what did not change is no new object"
        world.hub.threshold_rules = (rule("a", version=2),)
        await world.clock.run_for(60)
        assert world.rules.current.of("acme")[0].version == 2
        tasks.cancel_scope.cancel()
    assert world.hub.calls == ["rules"] * 3
    assert world.metric("ahc_rules_in_force") == 1
    assert world.metric("ahc_last_rules_sync_timestamp_seconds") == world.clock.time()


async def test_hub_that_fails_changes_nothing_and_is_told_once_a_minute(caplog):
    world = World()
    world.hub.threshold_rules = (rule("a"),)
    world.hub.company_silences = (silence(),)
    await world.rules.pull()
    assert await world.silences.pull() == 1
    world.hub.fails = TemporaryHubError("hub is away")
    with pytest.raises(HubError, match="away"):
        await world.rules.pull()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.rules.run)
        await world.clock.run_for(30)
        assert "could not be read" in caplog.text
        world.hub.fails = None
        await world.clock.run_for(60)
        tasks.cancel_scope.cancel()
    assert world.rules.current.count == 1
    assert len(world.silences.current.silences) == 1
    assert world.metric('ahc_hub_pull_failures_total{list="rules"}') == 2


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_start_without_a_hub_has_what_was_kept(kind, tmp_path):
    kept = MemoryKeptLists() if kind == "memory" else FileKeptLists(directory=tmp_path / "rules")
    world = World(kept)
    world.hub.threshold_rules = (rule("a", labels={"team": "ops"}),)
    world.hub.company_silences = (silence(),)
    await world.rules.pull()
    await world.silences.pull()
    world.hub.fails = TemporaryHubError("hub is away")
    world.start()
    await world.rules.recall()
    await world.silences.recall()
    assert world.rules.current.of("acme") == (rule("a", labels={"team": "ops"}),)
    assert world.silences.current.count == 1
    # The first pull of a process asks for all, so that what is broken is named again.
    world.hub.fails = None
    world.hub.refused_rules = (
        RuleError(tenant_id="", rule_id="odd", errors=(FieldError("op", "is new"),)),
    )
    await world.rules.pull()
    assert world.metric("ahc_rules_refused") == 1


async def test_there_is_nothing_before_the_first_answer_ever():
    world = World()
    await world.rules.recall()
    assert world.rules.current is None
    await world.rules.pull()
    assert world.rules.current.count == 0, "the hub has none, which is an answer"


async def test_what_was_kept_does_not_replace_what_the_hub_said():
    world = World()
    await world.kept.save("rules", [{"rule_id": "old"}])
    world.hub.threshold_rules = (rule("new"),)
    await world.rules.pull()
    await world.rules.recall()
    assert world.rules.current.of("acme")[0].rule_id == "new"


async def test_broken_one_is_named_once_in_log_and_metric(caplog):
    world = World()
    world.hub.threshold_rules = (rule("good"),)
    world.hub.refused_rules = (
        RuleError(tenant_id="acme", rule_id="bad", errors=(FieldError("op", "is unknown"),)),
    )
    world.hub.refused_silences = (
        SilenceError(company_id="acme", silence_id="x", errors=(FieldError("ends_at", "early"),)),
    )
    with caplog.at_level(logging.INFO):
        await world.rules.pull()
        await world.silences.pull()
        world.hub.threshold_rules = (rule("good"), rule("more"))
        await world.rules.pull()
    named = [record for record in caplog.records if "cannot be used" in record.message]
    assert [record.error for record in named] == ["op: is unknown", "ends_at: early"]
    assert (named[0].company_id, named[0].rule_id) == ("acme", "bad")
    assert named[1].silence_id == "x"
    assert world.metric("ahc_rules_refused") == 1
    assert world.metric("ahc_rules_in_force") == 2
    assert world.metric("ahc_silences_refused") == 1


def unread(rule_id, company_id=""):
    fault = FieldError("op", "is new")
    return RuleError(tenant_id=company_id, rule_id=rule_id, errors=(fault,))


async def test_rule_that_cannot_be_read_stays_as_it_was_until_it_can_be_or_is_gone(caplog):
    """A newer hub changed it and did not take it away; also over a start without the hub."""
    world = World()
    old, own = rule("a"), rule("a", company_id="acme")
    world.hub.threshold_rules = (old, own, rule("b"))
    await world.rules.pull()
    world.hub.threshold_rules = (rule("b"),)
    world.hub.refused_rules = (unread("a"), unread("never"))
    await world.rules.pull()
    assert world.rules.current.of("acme") == (rule("b"), old), "the company's own one is gone"
    assert [one.rule_id for one in world.rules.current.refused] == ["a", "never"]
    listed = world.rules.listed_at
    await world.rules.pull()
    assert world.rules.listed_at == listed
    (told,) = [one for one in caplog.records if "stay in force" in one.message]
    assert (told.count, told.rules) == (1, ["/a"])
    world.hub.fails = TemporaryHubError("hub is away")
    world.start()
    await world.rules.recall()
    assert world.rules.current.of("acme") == (rule("b"), old)
    world.hub.fails = None
    await world.rules.pull()
    assert world.rules.current.of("acme") == (rule("b"), old)
    world.hub.threshold_rules, world.hub.refused_rules = (rule("a", version=2),), (unread("b"),)
    await world.rules.pull()
    assert world.rules.current.of("acme") == (rule("a", version=2), rule("b"))
    world.hub.threshold_rules, world.hub.refused_rules = (rule("a", version=2),), ()
    await world.rules.pull()
    assert world.rules.current.of("acme") == (rule("a", version=2),)


async def test_rule_that_another_release_kept_stays_as_it_was():
    world = World()
    world.hub.threshold_rules = (rule("a", company_id="acme"), rule("b"))
    await world.rules.pull()
    newer = {"rule_id": "a", "company_id": "acme", "op": "between"}
    await world.kept.save("rules", [newer], as_of=world.rules.as_of + 1)
    await world.rules.catch_up()
    assert world.rules.current.of("acme") == (rule("a", company_id="acme"),)


async def test_many_broken_ones_do_not_fill_the_log(caplog):
    world = World()
    world.hub.refused_rules = tuple(
        RuleError(tenant_id="", rule_id=f"r{n}", errors=(FieldError("op", "?"),))
        for n in range(100)
    )
    await world.rules.pull()
    assert len(caplog.records) == 21
    assert caplog.records[-1].count == 80


async def test_list_that_cannot_be_kept_is_in_force_all_the_same_and_kept_later(caplog):
    class Full(MemoryKeptLists):
        full = True

        async def save(self, name, items, *, as_of=0.0):
            if self.full:
                raise AlertStateError("no space")
            await super().save(name, items, as_of=as_of)

    world = World(Full())
    world.hub.threshold_rules = (rule("a"),)
    assert await world.rules.pull() == 1
    assert "could not be kept" in caplog.text
    assert await world.kept.load("rules") is None
    world.kept.full = False
    await world.rules.pull()
    assert [item["rule_id"] for item in await world.kept.load("rules")] == ["a"]


async def test_damaged_file_is_set_aside_and_told(tmp_path, caplog):
    kept = FileKeptLists(directory=tmp_path)
    await kept.save("rules", [{"rule_id": "a"}])
    path = tmp_path / "rules.list"
    assert path.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert await kept.load("rules") is None, at
        assert not path.exists()
    assert "damaged and set aside" in caplog.text
    assert len((tmp_path / "rules.list.damaged").read_bytes().splitlines()) > 5
    assert await kept.load("rules") is None


async def test_directory_that_cannot_be_used_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    kept = FileKeptLists(directory=tmp_path / "file")
    with pytest.raises(AlertStateError, match=r"rules\.list"):
        await kept.save("rules", [])
    with pytest.raises(AlertStateError, match=r"rules\.list"):
        await kept.load("rules")


async def test_kept_item_that_this_program_cannot_read_costs_no_other(caplog):
    world = World()
    await world.kept.save("rules", [{"rule_id": "odd"}, json.loads(rule("a").to_json())])
    await world.rules.recall()
    assert [one.rule_id for one in world.rules.current.of("acme")] == ["a"]
    assert "cannot be read" in caplog.text


async def test_many_rules_and_silences_are_made_ready_beside_the_loop(monkeypatch):
    """Thousands of patterns take seconds to compile: others have their turns meanwhile."""
    threads = []
    real = anyio.to_thread.run_sync

    async def noted(function, *args):
        threads.append(function.func.__name__)
        return await real(function, *args)

    monkeypatch.setattr(anyio.to_thread, "run_sync", noted)
    world = World()
    world.hub.threshold_rules = (rule("a"),)
    assert await world.rules.pull() == 1
    assert threads == []
    world.hub.threshold_rules = tuple(rule(f"r{n}") for n in range(300))
    assert await world.rules.pull() == 300
    assert threads == ["_make", "_documents"]
    world.start()
    await world.rules.recall()
    assert world.rules.current.count == 300
    assert threads == ["_make", "_documents", "_read_all", "_make"]
