"""Following the hub: pages, failures, tombstones, presence."""

import anyio
import attrs
import pytest

from ahcollector.errors import PermanentHubError, TemporaryHubError
from ahcollector.registry import Verdict
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


async def test_pages_are_read_to_the_end_and_the_cursor_stays(known):
    for number in range(1_201):
        known.hub.change(record(number))
    result = await known.syncer.sync_once()
    assert (result.pages, result.records, result.applied) == (3, 1_201, 1_201)
    assert (await known.registry.count()).active == 1_201
    assert await known.registry.cursor() == "1201"
    known.hub.change(record(7, state=AgentState.REVOKED, version=2))
    result = await known.syncer.sync_once()
    assert (result.pages, result.records) == (1, 1)
    assert (await known.presence.counts()).agents == 1_200


async def test_a_failure_deletes_nothing_and_the_next_round_goes_on(known):
    for number in range(700):
        known.hub.change(record(number))
    original = known.hub.agents_since

    async def second_page_fails(cursor, limit):
        if cursor:
            raise TemporaryHubError("down")
        return await original(cursor, limit)

    known.hub.agents_since = second_page_fails
    with pytest.raises(TemporaryHubError):
        await known.syncer.sync_once()
    assert (await known.registry.count()).active == 500
    known.hub.agents_since = original
    result = await known.syncer.sync_once()
    assert result.records == 200
    assert (await known.registry.count()).active == 700


async def test_a_cursor_that_the_hub_refuses_stops_nobody_for_ever(known, caplog):
    for number in range(700):
        known.hub.change(record(number))
    original = known.hub.agents_since

    async def picky(cursor, limit):
        if cursor and not cursor.isdigit():
            raise PermanentHubError("since is not a cursor of this hub", status=400)
        return await original(cursor, limit)

    known.hub.agents_since = picky
    await known.registry.set_cursor("of another hub")
    assert (await known.syncer.sync_once()).applied == 700
    assert await known.registry.cursor() == "700"
    assert "hub refuses the stored cursor" in caplog.text


async def test_a_hub_that_refuses_every_cursor_moves_none(known, caplog):
    async def refuses(cursor, limit):
        raise PermanentHubError("no", status=400)

    known.hub.agents_since = refuses
    await known.registry.set_cursor("7")
    with pytest.raises(PermanentHubError):
        await known.syncer.sync_once()
    assert await known.registry.cursor() == "7"
    assert "stored cursor" not in caplog.text


async def test_a_hub_that_repeats_its_cursor_does_not_hold_us_for_ever(known):
    async def stuck(cursor, limit):
        return AgentPage(agents=(record(1),), more=True, next_since="same")

    known.hub.agents_since = stuck
    result = await known.syncer.sync_once()
    assert result.pages == 2


async def test_run_follows_at_once_then_each_minute_and_outlives_failures(known, caplog):
    async with anyio.create_task_group() as group:
        group.start_soon(known.syncer.run)
        await anyio.wait_all_tasks_blocked()
        assert known.hub.calls == ["agents_since"]
        known.hub.fails = TemporaryHubError("down")
        await known.clock.run_for(180)
        assert len(known.hub.calls) == 4
        assert caplog.text.count("hub could not be followed") == 1
        known.hub.fails = None
        known.hub.change(record(1))
        await known.clock.run_for(60)
        assert (await known.registry.count()).active == 1
        group.cancel_scope.cancel()


async def test_old_tombstones_are_swept(known):
    known.hub.change(record(1))
    await known.syncer.sync_once()
    await known.directory.revoke("a1")
    known.clock.advance(89 * 86_400)
    await known.syncer.sync_once()
    assert (await known.registry.count()).revoked == 1
    known.clock.advance(2 * 86_400)
    await known.syncer.sync_once()
    assert (await known.registry.count()).revoked == 0


async def test_local_revocation_outlives_a_sync_of_the_same_version(known):
    known.hub.change(record(1))
    await known.syncer.sync_once()
    await known.directory.revoke("a1")
    known.hub.change(record(1))
    await known.syncer.sync_once()
    entry = await known.registry.lookup(f"{1:064x}")
    from datetime import UTC, datetime

    assert entry.verdict(datetime.now(UTC)) is Verdict.REVOKED


async def test_after_a_start_all_known_agents_are_watched(known):
    for number in range(3):
        await known.registry.put(record(number), now=1.0)
    await known.registry.revoke("a0", now=2.0)
    assert (await known.presence.counts()).agents == 0
    await known.directory.ensure_all(known.registry.active_agents())
    assert (await known.presence.counts()).agents == 2


async def test_presence_follows_a_move_to_another_company(known):
    await known.directory.put(record(1))
    await known.directory.put(attrs.evolve(record(1), company_id="globex", version=2))
    (agent,) = await known.presence.agents()
    assert agent.agent.company_id == "globex"
    assert set(await known.presence.company_counts()) == {"globex"}


async def test_deleting_a_company_ends_its_watch(known):
    await known.directory.put(record(1))
    await known.directory.put(record(2, company_id="globex"))
    gone = await known.directory.delete_company("acme")
    assert [agent.agent_id for agent in gone] == ["a1"]
    assert set(await known.presence.company_counts()) == {"globex"}
