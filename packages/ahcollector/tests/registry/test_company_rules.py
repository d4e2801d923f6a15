"""What is set for a company: the hub's word, then the configuration, then what is good for all."""

import itertools

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.errors import TemporaryHubError
from ahcollector.presence import AgentRef, WatchRule
from ahcollector.registry import CompanyDefaults, CompanySettingsCache, Directory
from ahcollector.testing import FakeClock, FakeHub
from ahwire.hub import AgentSettings, CompanySettings, GroupDownSettings

HUBS = GroupDownSettings(enabled=True, min=2, ratio=0.5, window_seconds=10.0)
OURS = GroupDownSettings(enabled=False, min=3, ratio=0.6, window_seconds=20.0)


def first(*values):
    return next((value for value in values if value is not None), None)


def cache_of(hub, configured=None):
    known = {} if configured is None else {"acme": configured}
    return CompanySettingsCache(hub=hub, clock=FakeClock(), configured=known)


@given(
    said=st.none() | st.floats(0, 86_400),
    sent=st.none() | st.integers(1, 300),
    group=st.sampled_from([None, HUBS]),
    configured=st.none()
    | st.builds(
        CompanyDefaults,
        interval_seconds=st.none() | st.floats(1, 300),
        down_min_seconds=st.none() | st.floats(1, 86_400),
        group_down=st.sampled_from([None, OURS]),
    ),
)
def test_the_hubs_word_goes_before_the_configuration(said, sent, group, configured):
    async def scenario():
        hub = FakeHub()
        hub.company["acme"] = CompanySettings(
            down_min_seconds=said, group_down=group, agent=AgentSettings(interval_seconds=sent)
        )
        cache, own = cache_of(hub, configured), first(configured, CompanyDefaults())
        assert cache.watch_rule("acme") == WatchRule(
            interval_seconds=own.interval_seconds,
            down_min_seconds=own.down_min_seconds,
            is_firm=False,
        )
        company = await cache.get("acme")
        assert company.watch == cache.watch_rule("acme")
        assert company.watch == WatchRule(
            interval_seconds=first(sent, own.interval_seconds),
            down_min_seconds=first(said, own.down_min_seconds),
        )
        assert company.group_down == first(group, own.group_down)
        assert cache.watch_rule("other") == WatchRule(is_firm=False)

    anyio.run(scenario)


def test_without_a_hub_the_configuration_is_firm():
    rule = cache_of(None, CompanyDefaults(down_min_seconds=600.0)).watch_rule("acme")
    assert rule == WatchRule(down_min_seconds=600.0)
    assert cache_of(None).watch_rule("acme") == WatchRule()


@pytest.mark.anyio
async def test_a_word_of_the_hub_beyond_every_clock_is_bounded():
    hub = FakeHub()
    hub.company["acme"] = CompanySettings(down_min_seconds=1e300)
    cache = cache_of(hub)
    assert (await cache.get("acme")).watch.down_min_seconds == 31 * 86_400


@pytest.mark.anyio
async def test_what_the_hub_takes_back_is_as_configured_again():
    hub, clock = FakeHub(), FakeClock()
    hub.company["acme"] = CompanySettings(down_min_seconds=900)
    defaults = {"acme": CompanyDefaults(down_min_seconds=300.0)}
    cache = CompanySettingsCache(hub=hub, clock=clock, configured=defaults)
    assert (await cache.get("acme")).watch.down_min_seconds == 900
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cache.run)
        hub.fails = TemporaryHubError("down")
        await clock.run_for(200)
        assert cache.watch_rule("acme") == WatchRule(down_min_seconds=900.0)
        hub.fails = None
        hub.company["acme"] = CompanySettings()
        await clock.run_for(61)
        assert cache.watch_rule("acme") == WatchRule(down_min_seconds=300.0)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_directory_has_new_agents_watched_by_their_companys_rule(known):
    """Also one that never speaks; the others by the general interval."""
    rules = {"acme": WatchRule(interval_seconds=50.0, down_min_seconds=600.0)}
    directory = Directory(
        registry=known.registry,
        presence=known.presence,
        negative=known.negative,
        clock=known.clock,
        interval_seconds=20.0,
        rules=lambda company_id: rules.get(company_id, WatchRule(is_firm=False)),
    )
    now, numbers = known.clock.time(), itertools.count()
    for company_id in ("acme", "bolt"):
        record = known.hub.active(f"agent-{next(numbers)}", company_id, company_id=company_id)
        await directory.put(record)
    await directory.ensure_all([AgentRef(agent_id="agent-2", company_id="acme", server_id="s")])
    found = [(one.interval_seconds, one.deadline) for one in await known.presence.agents()]
    assert found == [
        (50.0, now + 100 + 600),
        (20.0, now + 40 + 90),
        (50.0, now + 100 + 600),
    ]
    await directory.ensure_known()
    assert [(one.interval_seconds, one.deadline) for one in await known.presence.agents()] == found
