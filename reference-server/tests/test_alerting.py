"""A whole server tells of thresholds and silent agents; what silences and groups make of both."""

import uuid
from datetime import datetime, timedelta

import anyio
import pytest
from servers import running, until

from ah_server.settings import settings_from
from ah_server.wiring._companies import alert_settings, company_defaults, group_down_of
from ahcollector.alerts.redis import RedisKeptLists
from ahcollector.detector import AGENTS_SHARD
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry import CompanyDefaults
from ahwire.hub import CompanySettings, EventType, GroupDownSettings

pytestmark = pytest.mark.anyio
RULE = {
    "rule_id": "load",
    "version": 1,
    "metric": "load",
    "op": "gt",
    "threshold": 50,
    "severity": "warning",
}
QUICK = {
    "alerting": {
        "agent_interval_seconds": 1,
        "down_min_seconds": 1,
        "scan_interval_seconds": 0.2,
        "lease_seconds": 1,
        "blind_grace_max_seconds": 0,
        "rules_sync_interval_seconds": 1,
        "silences_sync_interval_seconds": 1,
    },
    "outbox": {"flush_interval_seconds": 0.1},
}


@pytest.fixture(
    params=["embedded", pytest.param("redis", marks=[pytest.mark.service, pytest.mark.fault])]
)
def data(request):
    if request.param == "embedded":
        return QUICK
    redis = request.getfixturevalue("private_redis")
    return {**QUICK, "redis": {"addr": f"127.0.0.1:{redis.port}"}}


def silence(company, server):
    return {
        "silence_id": "work",
        "company_id": company,
        "matchers": [{"label": "server_id", "op": "eq", "value": server}],
        "starts_at": "2026-01-01T00:00:00Z",
    }


class Told:
    """What the hub of a server was told."""

    def __init__(self, server):
        self._server = server
        self.put = server.assembly.hub.lists.put

    async def events(self):
        log = self._server.assembly.hub.event_log
        return [each.event for each in await log.after(0, 1_000)]

    async def words(self):
        return [
            (event.server_id, event.type.value, event.suppress_reason or event.reason)
            for event in await self.events()
        ]

    async def until(self, *wanted):
        words = []

        async def look():
            words[:] = await self.words()
            return all(word in words for word in wanted)

        try:
            await until(look)
        except TimeoutError:
            raise AssertionError(f"the hub was told {words}, and not all of {wanted}") from None

    async def reload(self, what, count):
        reply = await self._server.admin_root("POST", f"reload/{what}")
        assert reply.json() == {"in_force": count}


async def speak(server, tokens, stop):
    while not stop.is_set():
        for token in tokens:
            assert await server.send(token, 10.0, name="other") == 202
        await anyio.sleep(0.3)


async def test_a_server_tells_of_thresholds_groups_and_silences_over_a_restart(tmp_path, data):
    """C18: each once, though the server stops in the middle of an alert and of a group."""
    company = f"co-{uuid.uuid4().hex[:8]}"
    names = ["web1", "web2", "web3", "web4"]
    async with running(tmp_path, company=company, data=data) as server:
        told = Told(server)
        grouped = GroupDownSettings(enabled=True, min=3, ratio=0.5, window_seconds=60)
        await server.assembly.hub.settings.put(company, CompanySettings(group_down=grouped))
        await told.put("rules", {"rules": [RULE]})
        await told.put("silences", {"silences": [silence(company, "web4")]})
        await told.reload("rules", 1)
        await told.reload("silences", 1)
        tokens = [await server.enrol(name) for name in names]
        for token in tokens:
            assert await server.send(token, 99.0) == 202
        await told.until(
            *((name, "alert.opened", "condition") for name in names[:3]),
            ("web4", "alert.opened", "silence:work"),
        )
        # They are silent from now on.
        await told.until(("web4", "agent.down", "silence:work"), (None, "group.down", None))
    async with running(tmp_path, company=company, data=data) as server:
        told, stop = Told(server), anyio.Event()
        await told.put("silences", {"silences": []})
        await told.reload("silences", 0)
        await told.until(("web4", "alert.opened", "silence_ended"))
        async with anyio.create_task_group() as group:
            group.start_soon(speak, server, tokens, stop)
            for token in tokens:
                assert await server.send(token, 1.0) == 202
            await told.until(
                *((name, "alert.resolved", "condition") for name in names),
                (None, "group.up", None),
            )
            stop.set()
        words = await told.words()
        for name in names:
            assert words.count((name, "alert.opened", "condition")) == (name != "web4")
            ups = [word for word in words if word[:2] == (name, "agent.up")]
            assert len(ups) == 1
        assert await server.metric("ahc_events_lost_total") == 0
        assert await server.metric("ahc_detector_turn") == 1
        events = await told.events()
        # On a busy machine web4's silence may end behind the group, and make a second one.
        began, ended = (
            [event.group_key for event in events if event.type is kind]
            for kind in (EventType.GROUP_DOWN, EventType.GROUP_UP)
        )
        assert sorted(ended) == sorted(set(began))
        assert len({event.event_id for event in events}) == len(events)


def test_settings_reach_the_flap_detector(tmp_path):
    def flapping(**alerting):
        return alert_settings(settings_from({"alerting": alerting}, {}).alerting, 300.0).flapping

    assert flapping(flap_transitions=0) is None
    made = flapping(flap_transitions=3, flap_window_seconds=60, flap_stable_seconds=90)
    assert (made.changes, made.window_seconds, made.quiet_seconds) == (3, 60.0, 90.0)


def test_settings_of_a_company_reach_what_judges_it_and_leave_the_others_alone():
    """What is not set for it is as for all."""
    own = {
        "agent_interval_seconds": 60,
        "down_min_seconds": 600,
        "no_data_after_seconds": 900,
        "flap_window_seconds": 77,
        "group_down": {"min": 2},
    }
    alerting = {"flap_transitions": 3, "group_down": {"ratio": 0.9}, "companies": {}}
    alerting["companies"] = {"acme": own, "bolt": {"flap_transitions": 0}}
    made = settings_from({"alerting": alerting}, {}).alerting
    general = GroupDownSettings(enabled=True, min=5, ratio=0.9, window_seconds=60.0)
    acmes = GroupDownSettings(enabled=True, min=2, ratio=0.9, window_seconds=60.0)
    assert company_defaults(made) == {
        "acme": CompanyDefaults(interval_seconds=60.0, down_min_seconds=600.0, group_down=acmes),
        "bolt": CompanyDefaults(group_down=general),
    }
    groups = group_down_of(made)
    assert [groups(name) for name in ("acme", "bolt", "other")] == [acmes, general, general]
    settings = alert_settings(made, 3_600.0)
    assert settings.of("other") == settings
    assert settings.of("other").flapping.changes == 3
    assert settings.of("acme").no_data_after_seconds == 900
    assert settings.of("acme").ahead_seconds == 3_900  # more than the door lets in
    assert settings.of("acme").flapping.window_seconds == 77
    assert settings.of("bolt").flapping is None
    assert settings.of("bolt").no_data_after_seconds == settings.no_data_after_seconds


async def test_a_company_has_its_own_patience_with_silent_agents(tmp_path, data):
    """The configuration's where the hub says nothing, the hub's as soon as it says something."""
    patient, moody = (f"co-{uuid.uuid4().hex[:8]}" for _ in range(2))
    companies = {patient: {"down_min_seconds": 3600}, moody: {"down_min_seconds": 3600}}
    data = {**data, "alerting": {**data["alerting"], "companies": companies}}
    async with running(tmp_path, company=patient, data=data) as server:
        told = Told(server)
        settings = server.assembly.hub.settings
        await settings.put(moody, CompanySettings(down_min_seconds=1))
        assert await server.send(await server.enrol("patient"), 1.0) == 202
        server.company = "other"
        assert await server.send(await server.enrol("usual"), 1.0) == 202
        server.company = moody
        token = await server.enrol("moody")

        async def hears_the_hub():
            assert await server.send(token, 1.0) == 202
            reply = await server.admin_root("GET", f"presence?company_id={moody}")
            (agent,) = reply.json()["agents"]
            await anyio.sleep(0.3)
            deadline, seen = (
                datetime.fromisoformat(agent[name]) for name in ("deadline_at", "last_seen_at")
            )
            return deadline - seen < timedelta(seconds=60)

        await until(hears_the_hub)
        await told.until(("usual", "agent.down", None), ("moody", "agent.down", None))
        assert "patient" not in {event.server_id for event in await told.events()}


async def states_in(redis, prefix):
    """The shards of which something is kept in Redis."""
    client = RedisClient(config=RedisConfig(port=redis.port, prefix=prefix))
    keys = await client.call("KEYS", f"{prefix}rules:units:*")
    await client.aclose()
    return {int(key.rsplit(b":", 1)[1]) for key in keys}


@pytest.mark.service
async def test_servers_with_a_bus_of_their_own_each_judge_their_own_samples(
    tmp_path, private_redis, caplog
):
    """On one Redis neither takes the alerts of the other over, tick by tick, not even a silenced
    one; those of agents are told by one of them.
    """
    company, prefix = f"co-{uuid.uuid4().hex[:8]}", f"test-{uuid.uuid4().hex}:"
    redis = {"addr": f"127.0.0.1:{private_redis.port}", "prefix": prefix}
    data = {**QUICK, "redis": redis, "bus": {"backend": "inproc"}}
    async with running(tmp_path / "a", company=company, data=data) as first:
        hub = {"base_url": first.url("hub", ""), "token": first.assembly.hub_token.reveal()}
        told = Told(first)
        await told.put("rules", {"rules": [RULE]})
        await told.put("silences", {"silences": [silence(company, "web2")]})
        await told.reload("rules", 1)
        await told.reload("silences", 1)
        async with running(tmp_path / "b", company=company, data={**data, "hub": hub}) as second:
            web1, web2, web3 = [await first.enrol(name) for name in ("web1", "web2", "web3")]
            hears = {web1: first, web2: second, web3: second}
            for value in (99.0, 99.0, 99.0, 99.0, 1.0):
                for token, server in hears.items():
                    assert await server.send(token, value) == 202
                # Some ticks, in which each could take what is the other's.
                await anyio.sleep(0.7)
            await told.until(
                ("web1", "alert.resolved", "condition"), ("web3", "alert.resolved", "condition")
            )
            await told.until(("web1", "agent.down", None), ("web3", "agent.down", None))
            for server in (first, second):
                assert await server.metric("ahc_rules_state_failures_total") == 0
                assert await server.metric("ahc_events_lost_total") == 0
            words = await told.words()
    for name, kind, why in (
        ("web1", "alert.opened", "condition"),
        ("web2", "alert.opened", "silence:work"),
        ("web2", "alert.resolved", "silence:work"),
        ("web3", "alert.opened", "condition"),
        ("web3", "alert.resolved", "condition"),
    ):
        assert words.count((name, kind, why)) == 1, (name, kind, words)
    assert await states_in(private_redis, prefix) <= {AGENTS_SHARD}
    assert "taken over" not in caplog.text
    assert "judges alerts over the samples that come to it" in caplog.text


async def test_states_of_alerts_are_where_they_are_set_to_be(tmp_path):
    directory = tmp_path / "elsewhere"
    async with running(tmp_path / "state", data={"alerting": {"rules_dir": str(directory)}}):
        await until(lambda: found(directory / "rules.list"))
        assert (directory / "alerts.lock").exists()
        assert not (tmp_path / "state" / "alerts").exists()


async def found(path):
    return path.exists()


@pytest.mark.service
@pytest.mark.fault
async def test_server_takes_newer_lists_that_another_one_kept(tmp_path, private_redis):
    """C18: its own pull is up to a minute old, and another server heard of a rule since."""
    prefix = f"test-{uuid.uuid4().hex}:"
    redis = {"addr": f"127.0.0.1:{private_redis.port}", "prefix": prefix}
    alerting = QUICK["alerting"] | {"rules_sync_interval_seconds": 3600}
    data = {**QUICK, "alerting": alerting, "redis": redis}
    async with running(tmp_path, data=data) as server:

        async def has_pulled():
            return await server.metric("ahc_last_rules_sync_timestamp_seconds")

        await until(has_pulled)
        client = RedisClient(config=RedisConfig(port=private_redis.port, prefix=prefix))
        kept = RedisKeptLists(client=client)
        await kept.save("rules", [RULE], as_of=await kept.now())
        await client.aclose()

        async def has_taken_it():
            return await server.metric("ahc_rules_in_force") == 1

        await until(has_taken_it)
