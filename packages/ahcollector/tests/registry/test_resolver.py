"""Whose token it is, when the hub must be asked, and what is never concluded from its silence."""

import logging

import anyio
import attrs
import pytest

from ahcollector.errors import (
    HubUnavailableError,
    PermanentHubError,
    RegistryError,
    TemporaryHubError,
)
from ahcollector.registry import MemoryRegistry
from ahcollector.registry._flight import SingleFlight
from ahwire.hub import AgentState

pytestmark = pytest.mark.anyio


async def test_the_hub_is_asked_once_and_then_the_registry_knows(known):
    record = known.hub.active("a1", "t")
    token_hash = record.token_hash
    for _ in range(3):
        entry = await known.resolver.resolve(token_hash)
        assert entry.agent.agent_id == "a1"
    assert known.hub.calls == ["agent_by_token_hash"]
    assert (known.lookups("hub"), known.lookups("store")) == (1, 2)
    assert (await known.presence.counts()).agents == 1, "it is watched from now on"


async def test_unknown_is_remembered_for_a_minute(known):
    for _ in range(3):
        assert await known.resolver.resolve("0" * 64) is None
    assert known.hub.calls == ["agent_by_token_hash"]
    known.clock.advance(60)
    assert await known.resolver.resolve("0" * 64) is None
    assert len(known.hub.calls) == 2


async def test_without_a_hub_unknown_is_unknown(known):
    assert await known.make_resolver(hub=None).resolve("0" * 64) is None


@pytest.mark.parametrize(
    "error",
    [
        TemporaryHubError("timeout"),
        TemporaryHubError("500", status=500),
        TemporaryHubError("our token is bad", status=401),
        PermanentHubError("what?", status=400),
    ],
)
async def test_c22_an_error_is_never_cached_and_never_means_unknown(known, error):
    record = known.hub.active("a1", "t")
    known.hub.fails = error
    with pytest.raises(HubUnavailableError) as caught:
        await known.resolver.resolve(record.token_hash)
    assert caught.value.retry_after_seconds == 30
    known.hub.fails = None
    assert (await known.resolver.resolve(record.token_hash)).agent.agent_id == "a1"


async def test_c22_a_token_that_becomes_known_is_taken_at_once(known):
    record = known.hub.active("a1", "t")
    token_hash = record.token_hash
    del known.hub.records["a1"]
    assert await known.resolver.resolve(token_hash) is None
    await known.directory.put(record)
    assert (await known.resolver.resolve(token_hash)).agent.agent_id == "a1"
    assert not known.negative.holds(token_hash, now=known.clock.monotonic())


async def test_made_up_tokens_reach_the_hub_at_most_fifty_times_a_second(known):
    limited = 0
    for number in range(200):
        try:
            await known.resolver.resolve(f"{number:064x}")
        except HubUnavailableError:
            limited += 1
    assert len(known.hub.calls) == 50
    assert limited == 150
    known.clock.advance(0.1)
    for number in range(200, 210):
        try:
            await known.resolver.resolve(f"{number:064x}")
        except HubUnavailableError:
            limited += 1
    assert len(known.hub.calls) == 55


async def test_callers_of_one_hash_share_one_question(known):
    record = known.hub.active("a1", "t")
    known.hub.holds = anyio.Event()
    found = []

    async def ask():
        found.append(await known.resolver.resolve(record.token_hash))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        known.hub.holds.set()
    assert len(found) == 20
    assert known.hub.calls == ["agent_by_token_hash"]


async def test_c23_a_cancelled_leader_is_followed_by_another(known):
    record = known.hub.active("a1", "t")
    known.hub.holds = anyio.Event()
    found = []
    leader = anyio.CancelScope()

    async def lead():
        with leader:
            await known.resolver.resolve(record.token_hash)
            found.append("leader")

    async def follow():
        found.append((await known.resolver.resolve(record.token_hash)).agent.agent_id)

    async with anyio.create_task_group() as group:
        group.start_soon(lead)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            group.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        leader.cancel()
        await anyio.wait_all_tasks_blocked()
        assert known.hub.calls == ["agent_by_token_hash"] * 2
        known.hub.holds.set()
    assert found == ["a1"] * 3
    assert len(known.resolver._flights) == 0


async def test_c23_a_failed_leader_fails_all_once_and_the_next_tries_again(known):
    record = known.hub.active("a1", "t")
    known.hub.holds = anyio.Event()
    known.hub.fails = TemporaryHubError("down")
    errors = []

    async def ask():
        try:
            await known.resolver.resolve(record.token_hash)
        except HubUnavailableError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        known.hub.holds.set()
    assert len(errors) == 5
    assert known.hub.calls == ["agent_by_token_hash"]
    known.hub.fails = None
    assert (await known.resolver.resolve(record.token_hash)).agent.agent_id == "a1"


async def test_c13_a_call_cancelled_at_every_await_mixes_no_answers_up():
    flights = SingleFlight()
    answers = []

    async def call(key):
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return key

    async def ask(key, cancelled_after):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cut():
                    for _ in range(cancelled_after):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                if cancelled_after < 6:
                    group.start_soon(cut)
                answers.append((key, await flights.do(key, lambda: call(key))))
                group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for number in range(2_000):
            group.start_soon(ask, number % 7, number % 9)
    assert answers
    assert all(key == value for key, value in answers)
    assert len(flights) == 0


async def test_registry_that_gives_no_answer_falls_to_the_hub(known, caplog):
    record = known.hub.active("a1", "t")

    class Broken:
        async def lookup(self, token_hash):
            raise RegistryError("connection refused")

    resolver = known.make_resolver(registry=Broken())
    assert (await resolver.resolve(record.token_hash)).agent.agent_id == "a1"
    assert known.lookups("error") == 1
    assert "could not be kept" in caplog.text


class Moody(MemoryRegistry):
    """Gives no answer to look-ups while `away`."""

    away = False

    async def lookup(self, token_hash):
        if self.away:
            raise RegistryError("connection refused")
        return await super().lookup(token_hash)


async def test_what_the_hub_does_not_know_may_be_in_a_registry_that_gives_no_answer(known):
    """C22: agents that the admin door was given, and the hub never had."""
    registry = Moody()
    resolver = known.make_resolver(registry=registry)
    token_hash = known.hub.hash_of("t")
    record = known.hub.active("a1", "t")
    del known.hub.records["a1"]
    await registry.put(record, now=1.0)
    registry.away = True
    for asked in (1, 2):
        with pytest.raises(HubUnavailableError, match="registry, which may, gives no answer"):
            await resolver.resolve(token_hash)
        assert known.hub.calls == ["agent_by_token_hash"] * asked, "nothing of it is remembered"
        assert not known.negative.holds(token_hash, now=known.clock.monotonic())
    registry.away = False
    assert (await resolver.resolve(token_hash)).agent.agent_id == "a1"
    assert await resolver.resolve("0" * 64) is None
    assert known.negative.holds("0" * 64, now=known.clock.monotonic()), "and it is as before"


@pytest.mark.parametrize("leader_is_told", [True, False])
async def test_who_shares_a_question_judges_by_what_the_registry_told_it_itself(
    known, leader_is_told
):
    registry = Moody()
    resolver = known.make_resolver(registry=registry)
    known.hub.holds = anyio.Event()
    found = {}

    async def ask(told):
        registry.away = not told
        try:
            found[told] = await resolver.resolve("0" * 64)
        except HubUnavailableError:
            found[told] = "doubtful"

    async with anyio.create_task_group() as group:
        for told in (leader_is_told, not leader_is_told):
            group.start_soon(ask, told)
            await anyio.wait_all_tasks_blocked()
        known.hub.holds.set()
    assert found == {True: None, False: "doubtful"}
    assert known.hub.calls == ["agent_by_token_hash"]


async def test_an_active_record_that_has_not_the_token_is_no_answer(known):
    record = known.hub.active("a1", "t")
    known.hub.records["a1"] = attrs.evolve(record, prev_token_hash="0" * 64)
    other = attrs.evolve(record, token_hash="1" * 64)

    async def wrong(token_hash):
        return other

    known.hub.agent_by_token_hash = wrong
    with pytest.raises(HubUnavailableError, match="a1"):
        await known.resolver.resolve("0" * 64)


async def test_a_revoked_record_without_hashes_is_revoked_for_the_asked_token(known):
    record = known.hub.active("a1", "t")
    gone = attrs.evolve(record, state=AgentState.REVOKED, token_hash=None, version=2)

    async def answer(token_hash):
        return gone

    known.hub.agent_by_token_hash = answer
    entry = await known.resolver.resolve(record.token_hash)
    assert entry.state is AgentState.REVOKED


async def test_an_answer_older_than_what_is_known_decides_nothing(known):
    record = known.hub.active("a1", "old")
    newer = attrs.evolve(record, token_hash=known.hub.hash_of("new"), version=2)
    await known.directory.put(newer)
    with pytest.raises(HubUnavailableError):
        await known.resolver.resolve(record.token_hash)


async def test_at_most_eight_characters_of_a_hash_are_logged(known, caplog):
    caplog.set_level(logging.DEBUG)
    record = known.hub.active("a1", "t")
    known.hub.fails = TemporaryHubError("down")
    with pytest.raises(HubUnavailableError):
        await known.resolver.resolve(record.token_hash)
    shown = "".join(str(vars(one)) for one in caplog.records)
    assert record.token_hash[:8] in shown
    assert record.token_hash[:9] not in shown
