"""Who the hub lists no more is found, and nobody is removed by an answer that is in doubt."""

import anyio
import attrs
import pytest

from ahcollector.errors import TemporaryHubError
from ahcollector.registry import FullSync
from ahwire import AgentRecord
from ahwire.hub import AgentPage, AgentState

pytestmark = pytest.mark.anyio


def record(number, **fields):
    return AgentRecord(
        **{
            "agent_id": f"a{number}",
            "company_id": "acme",
            "server_id": "s",
            "state": AgentState.ACTIVE,
            "token_hash": f"{number:064x}",
            "version": 1,
            **fields,
        }
    )


def full(known, **options):
    return FullSync(
        **{
            "hub": known.hub,
            "registry": known.registry,
            "directory": known.directory,
            "clock": known.clock,
            "metrics": known.metrics,
            "remove_orphans": True,
            "page_size": 10,
            **options,
        }
    )


def hub_forgets(known, *numbers):
    for number in numbers:
        known.hub.forget(f"a{number}")


def gauge(known, name):
    return known.metrics.registry.get_sample_value(name)


@pytest.fixture
async def thirty(known):
    for number in range(30):
        known.hub.change(record(number))
    await known.syncer.sync_once()
    return known


async def test_an_agent_that_the_hub_lists_no_more_is_removed(thirty, caplog):
    hub_forgets(thirty, 3, 17)
    cursor = await thirty.registry.cursor()
    result = await full(thirty).sync()
    assert (result.pages, result.records) == (3, 28)
    assert (result.orphans, result.removed, result.kept_because) == (("a17", "a3"), 2, None)
    assert (await thirty.registry.count()).active == 28
    assert (await thirty.presence.counts()).agents == 28
    assert await thirty.resolver.resolve(f"{3:064x}") is None, "unknown, as the hub says"
    assert await thirty.registry.cursor() == cursor, "the minute's sync goes on where it was"
    assert gauge(thirty, "ahc_registry_orphans") == 2
    assert gauge(thirty, "ahc_registry_orphans_removed_total") == 2
    assert "lists some agents no more" in caplog.text
    assert (await full(thirty).sync()).orphans == ()
    assert gauge(thirty, "ahc_registry_orphans") == 0


async def test_an_orphan_that_was_down_is_told_to_be_up_because_it_was_removed(thirty):
    thirty.clock.advance(3_600)
    await thirty.presence.expire(thirty.clock.time(), 500)
    for transition in await thirty.presence.pending(500):
        await thirty.presence.confirm(transition)
    hub_forgets(thirty, 3)
    await full(thirty).sync()
    (transition,) = await thirty.presence.pending(500)
    assert (transition.agent.agent_id, transition.reason) == ("a3", "removed")


async def test_by_default_orphans_are_only_reported(thirty, caplog):
    hub_forgets(thirty, 3)
    result = await full(thirty, remove_orphans=False).sync()
    assert (result.orphans, result.removed, result.kept_because) == (("a3",), 0, None)
    assert (await thirty.registry.count()).active == 30
    assert gauge(thirty, "ahc_registry_orphans") == 1


async def test_a_hub_that_lists_nobody_removes_nobody(thirty, caplog):
    hub_forgets(thirty, *range(30))
    result = await full(thirty).sync()
    assert (len(result.orphans), result.removed) == (30, 0)
    assert "no agent" in result.kept_because
    assert (await thirty.registry.count()).active == 30
    assert "in doubt" in caplog.text


async def test_a_hub_that_lost_most_removes_nobody(thirty):
    hub_forgets(thirty, *range(16))
    result = await full(thirty).sync()
    assert (len(result.orphans), result.removed) == (16, 0)
    assert "16 of 30" in result.kept_because
    hub_forgets(thirty, *range(16))
    assert (await full(thirty, orphan_share_max=0.6).sync()).removed == 16


async def test_a_reading_that_fails_in_the_middle_removes_nobody(thirty):
    hub_forgets(thirty, 3)
    original = thirty.hub.agents_since

    async def third_page_fails(cursor, limit):
        if cursor == "20":
            raise TemporaryHubError("down")
        return await original(cursor, limit)

    thirty.hub.agents_since = third_page_fails
    with pytest.raises(TemporaryHubError):
        await full(thirty).sync()
    assert (await thirty.registry.count()).active == 30


@pytest.mark.parametrize("cursor", ["", "same"])
async def test_a_list_that_does_not_go_on_is_no_list(thirty, cursor):
    async def stuck(since, limit):
        return AgentPage(agents=(record(1),), more=True, next_since="same")

    thirty.hub.agents_since = stuck
    with pytest.raises(TemporaryHubError, match="again"):
        await full(thirty).sync()
    assert (await thirty.registry.count()).active == 30


async def test_a_list_that_never_ends_ends(thirty):
    async def endless(since, limit):
        return AgentPage(agents=(), more=True, next_since=str(int(since or "0") + 1))

    thirty.hub.agents_since = endless
    with pytest.raises(TemporaryHubError, match="does not end after 5 pages"):
        await full(thirty, pages_max=5).sync()


async def test_the_hubs_word_on_the_token_counts_more_than_its_list(thirty, caplog):
    """A list read page by page may miss somebody who moves in it."""
    thirty.hub._stream = [one for one in thirty.hub._stream if one.agent_id != "a3"]
    result = await full(thirty).sync()
    assert (result.orphans, result.removed) == (("a3",), 0)
    assert "did not list an agent whose token it knows" in caplog.text
    assert await thirty.resolver.resolve(f"{3:064x}") is not None


async def test_who_comes_or_changes_during_the_reading_is_no_orphan(thirty):
    hub_forgets(thirty, 3, 4)
    original = thirty.hub.agents_since

    async def while_reading(cursor, limit):
        if cursor == "10":
            await thirty.directory.put(record(99))
            await thirty.directory.put(record(3, version=0, token_hash="f" * 64))
        return await original(cursor, limit)

    thirty.hub.agents_since = while_reading
    result = await full(thirty).sync()
    assert result.orphans == ("a4",)
    assert await thirty.registry.get("a99") is not None
    assert await thirty.registry.get("a3") is not None


async def test_who_changes_just_before_the_removal_stays(thirty):
    hub_forgets(thirty, 3)
    original = thirty.presence.remove

    async def meanwhile(agent_id, now, reason):
        await original(agent_id, now, reason)
        await thirty.registry.put(record(3, version=2), now=now)

    thirty.presence.remove = meanwhile
    result = await full(thirty).sync()
    assert (result.orphans, result.removed) == (("a3",), 0)
    assert await thirty.registry.get("a3") is not None
    assert (await thirty.presence.counts()).agents == 30, "and it is watched"


async def test_tombstones_are_no_orphans(thirty):
    await thirty.directory.revoke("a3")
    hub_forgets(thirty, 3)
    result = await full(thirty).sync()
    assert result.orphans == ()
    assert (await thirty.registry.count()).revoked == 1


async def test_changes_that_the_minutes_sync_missed_are_taken(thirty):
    thirty.hub._stream.insert(0, record(3, state=AgentState.REVOKED, version=9))
    await full(thirty).sync()
    assert (await thirty.registry.get("a3")).record.state is AgentState.REVOKED


async def test_it_reads_once_a_day_over_restarts_and_again_soon_when_it_failed(thirty):
    async with anyio.create_task_group() as group:
        calls = thirty.hub.calls
        calls.clear()
        group.start_soon(full(thirty).run)
        await anyio.wait_all_tasks_blocked()
        assert len(calls) == 3
        await thirty.clock.run_for(86_400 - 60)
        assert len(calls) == 3
        group.cancel_scope.cancel()
    async with anyio.create_task_group() as group:
        group.start_soon(full(thirty).run)
        await anyio.wait_all_tasks_blocked()
        assert len(calls) == 3, "another process would do it again"
        thirty.hub.fails = TemporaryHubError("down")
        await thirty.clock.run_for(120)
        assert len(calls) == 4
        await thirty.clock.run_for(900)
        assert len(calls) == 5, "claimed, and tried again when the claim is over"
        thirty.hub.fails = None
        await thirty.clock.run_for(960)
        assert len(calls) == 8
        group.cancel_scope.cancel()


async def test_of_two_processes_one_reads(thirty):
    thirty.hub.calls.clear()
    thirty.hub.holds = anyio.Event()
    results = []

    async def one():
        results.append(await full(thirty).sync_if_due())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        thirty.hub.holds.set()
    assert [result is None for result in results].count(False) == 1
    assert len(thirty.hub.calls) == 3


async def test_two_that_read_at_once_do_no_harm(thirty):
    hub_forgets(thirty, 3)
    results = []

    async def one():
        results.append(await full(thirty).sync())

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        group.start_soon(one)
    assert sum(result.removed for result in results) == 1
    assert (await thirty.registry.count()).active == 29


async def test_deleting_a_company_can_be_repeated_when_presence_failed(thirty):
    """The registry forgets whom presence watches only after presence let go."""
    from ahcollector.errors import PresenceError

    original, left = thirty.presence.remove, [5]

    async def fails_after_five(agent_id, now, reason):
        left[0] -= 1
        if left[0] == 0:
            raise PresenceError("no answer")
        await original(agent_id, now, reason)

    thirty.presence.remove = fails_after_five
    with pytest.raises(PresenceError):
        await thirty.directory.delete_company("acme")
    thirty.presence.remove = original
    gone = await thirty.directory.delete_company("acme")
    assert len(gone) == 30
    assert (await thirty.presence.counts()).agents == 0
    assert (await thirty.registry.count()).active == 0


async def test_a_start_watches_everybody_who_is_active(thirty):
    await thirty.registry.put(attrs.evolve(record(50), state=AgentState.PENDING), now=0.0)
    await thirty.presence.remove("a1", 0.0, "removed")
    assert await thirty.directory.ensure_known() == 30
    assert (await thirty.presence.counts()).agents == 30


async def test_a_watch_that_a_revocation_left_behind_is_ended(thirty):
    """A node that heard of it very late took one more sign of life: it would be told as down."""
    (watched,) = [one for one in await thirty.presence.agents() if one.agent.agent_id == "a3"]
    await thirty.directory.revoke("a3")
    thirty.clock.advance(60)
    await thirty.presence.touch(watched.agent, thirty.clock.time(), None)
    await thirty.presence.touch(
        attrs.evolve(watched.agent, agent_id="never heard of"), thirty.clock.time(), None
    )
    assert (await thirty.presence.counts()).agents == 31
    result = await full(thirty, remove_orphans=False).sync()
    assert result.strays == 2
    assert (await thirty.presence.counts()).agents == 29


async def test_no_watch_is_ended_when_the_hubs_list_is_in_doubt(thirty):
    (watched,) = [one for one in await thirty.presence.agents() if one.agent.agent_id == "a3"]
    await thirty.presence.touch(
        attrs.evolve(watched.agent, agent_id="unknown"), thirty.clock.time(), None
    )
    hub_forgets(thirty, *range(30))
    result = await full(thirty).sync()
    assert (result.strays, result.removed) == (0, 0)
    assert (await thirty.presence.counts()).agents == 31
