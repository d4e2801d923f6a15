"""Company settings: always an answer, the last word stays, the etag is of the content."""

import anyio
import pytest

from ahcollector.errors import RegistryError, TemporaryHubError
from ahcollector.registry import CompanySettingsCache, KeptSettings, agent_config
from ahcollector.testing import FakeClock, FakeHub
from ahwire.hub import AgentSettings, CompanySettings

pytestmark = pytest.mark.anyio


def settings_of(seconds):
    return CompanySettings(
        agent=AgentSettings(interval_seconds=seconds, labels={"b": "2", "a": "1"})
    )


async def test_current_never_waits_and_run_fills_it():
    hub, clock = FakeHub(), FakeClock()
    hub.company["acme"] = settings_of(60)
    cache = CompanySettingsCache(hub=hub, clock=clock)
    before = cache.current("acme")
    assert before.config.interval_seconds == 0
    async with anyio.create_task_group() as group:
        group.start_soon(cache.run)
        await clock.run_for(1)
        after = cache.current("acme")
        assert after.config.interval_seconds == 60
        assert after.etag != before.etag
        hub.company["acme"] = settings_of(20)
        await clock.run_for(61)
        assert cache.current("acme").config.interval_seconds == 20
        group.cancel_scope.cancel()


async def test_unchanged_settings_are_asked_for_by_etag_and_stay():
    hub, clock = FakeHub(), FakeClock()
    hub.company["acme"] = settings_of(60)
    cache = CompanySettingsCache(hub=hub, clock=clock)
    first = await cache.get("acme")
    clock.advance(61)
    async with anyio.create_task_group() as group:
        group.start_soon(cache.run)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert hub.calls == ["settings", "settings"]
    assert cache.current("acme") is first


async def test_a_hub_that_is_down_costs_nobody_the_last_word(caplog):
    hub, clock = FakeHub(), FakeClock()
    hub.company["acme"] = settings_of(60)
    cache = CompanySettingsCache(hub=hub, clock=clock)
    await cache.get("acme")
    hub.fails = TemporaryHubError("down")
    clock.advance(61)
    async with anyio.create_task_group() as group:
        group.start_soon(cache.run)
        await clock.run_for(5)
        group.cancel_scope.cancel()
    assert cache.current("acme").config.interval_seconds == 60
    assert caplog.text.count("company settings could not be read") == 1


async def test_a_hub_that_hangs_delays_the_first_answer_by_a_moment_only():
    hub, clock = FakeHub(), FakeClock()
    hub.holds = anyio.Event()
    cache = CompanySettingsCache(hub=hub, clock=clock, wait_seconds=0.01)
    assert (await cache.get("acme")).settings is None


async def test_memory_is_bounded():
    cache = CompanySettingsCache(hub=None, clock=FakeClock(), companies_max=3)
    for number in range(10):
        cache.current(f"c{number}")
    assert len(cache._known) == 3


def test_the_etag_is_of_the_content_and_not_of_the_order():
    one = AgentSettings(interval_seconds=60, labels={"a": "1", "b": "2"})
    two = AgentSettings(interval_seconds=60, labels={"b": "2", "a": "1"})
    other = AgentSettings(interval_seconds=61, labels={"a": "1", "b": "2"})
    assert agent_config(one).etag == agent_config(two).etag != agent_config(other).etag
    assert agent_config(AgentSettings()).etag


class Kept:
    """A store of settings in a dictionary."""

    def __init__(self):
        self.kept = {}
        self.saves = 0
        self.fails = False

    async def load(self, company_id):
        if self.fails:
            raise RegistryError("no answer")
        return self.kept.get(company_id)

    async def save(self, company_id, kept):
        if self.fails:
            raise RegistryError("no answer")
        self.saves += 1
        self.kept[company_id] = kept


async def test_a_new_process_has_the_last_word_while_the_hub_is_down():
    hub, clock, store = FakeHub(), FakeClock(), Kept()
    hub.company["acme"] = CompanySettings(agent=AgentSettings(interval_seconds=77))
    first = CompanySettingsCache(hub=hub, clock=clock, store=store)
    assert (await first.get("acme")).config.interval_seconds == 77
    hub.fails = TemporaryHubError("down")
    second = CompanySettingsCache(hub=hub, clock=clock, store=store)
    assert await second.get("acme") == await first.get("acme")
    hub.fails = None
    hub.calls.clear()
    third = CompanySettingsCache(hub=hub, clock=clock, store=store)
    assert (await third.get("acme")).config.interval_seconds == 77
    assert store.saves == 2, "the hub said that it is still the same; it is kept once a process"


async def test_a_hub_that_hangs_does_not_hide_what_is_kept():
    hub, clock, store = FakeHub(), FakeClock(), Kept()
    settings = CompanySettings(agent=AgentSettings(interval_seconds=77))
    store.kept["acme"] = KeptSettings(settings=settings, etag=None)
    hub.holds = anyio.Event()
    cache = CompanySettingsCache(hub=hub, clock=clock, store=store, wait_seconds=0.01)
    assert (await cache.get("acme")).config.interval_seconds == 77


async def test_what_stays_the_same_is_kept_again_once_a_day():
    hub, clock, store = FakeHub(), FakeClock(), Kept()
    hub.company["acme"] = CompanySettings(agent=AgentSettings(interval_seconds=77))
    cache = CompanySettingsCache(hub=hub, clock=clock, store=store)
    await cache.get("acme")
    async with anyio.create_task_group() as group:
        group.start_soon(cache.run)
        await clock.run_for(3_600)
        assert store.saves == 1
        hub.company["acme"] = CompanySettings(agent=AgentSettings(interval_seconds=78))
        await clock.run_for(120)
        assert store.saves == 2
        clock.advance(86_400)
        await clock.run_for(120)
        assert store.saves == 3
        group.cancel_scope.cancel()


async def test_a_store_that_fails_changes_no_answer_and_is_told_once(caplog):
    caplog.set_level("INFO", logger="ahcollector.registry")
    hub, clock, store = FakeHub(), FakeClock(), Kept()
    store.fails = True
    hub.company["acme"] = CompanySettings(agent=AgentSettings(interval_seconds=77))
    cache = CompanySettingsCache(hub=hub, clock=clock, store=store)
    assert (await cache.get("acme")).config.interval_seconds == 77
    for number in range(50):
        await cache.get(f"c{number}")
    assert caplog.text.count("company settings cannot be shared") == 1
    store.fails = False
    await cache.get("globex")
    assert caplog.text.count("company settings are shared again") == 1
    assert "globex" in store.kept
