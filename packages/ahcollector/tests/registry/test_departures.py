"""When a server or a company has left, whoever took it away."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahcollector.departures import Left
from ahcollector.errors import DeparturesError, PresenceError, RegistryError
from ahcollector.registry import Directory, FullSync, Syncer
from ahwire import AgentRecord
from ahwire.hub import AgentState

pytestmark = pytest.mark.anyio
KEY = ("acme", "s")


def record(number, version=1, **fields):
    return AgentRecord(
        **{
            "agent_id": f"a{number}",
            "company_id": "acme",
            "server_id": "s",
            "state": AgentState.ACTIVE,
            "token_hash": f"{number:064x}",
            "version": version,
            **fields,
        }
    )


def revoked(number, version=2, **fields):
    return record(number, version, state=AgentState.REVOKED, **fields)


async def left(known, key=KEY):
    return (await known.departures.of([key])).get(key)


def now_ms(known):
    return int(known.clock.time() * 1000)


async def test_server_leaves_with_its_last_agent_and_keeps_its_series(known):
    """To revoke one of several ends nothing, and nor does one that is pending."""
    for number in range(3):
        await known.directory.put(record(number))
    await known.directory.put(record(3, state=AgentState.PENDING))
    await known.directory.revoke("a0")
    await known.directory.put(revoked(1))
    await known.directory.revoke("a2")
    assert await left(known) is None
    known.clock.advance(5)
    await known.directory.put(revoked(3))
    at_ms = now_ms(known)
    assert await left(known) == Left(at_ms=at_ms, series_at_ms=None)
    known.clock.advance(5)
    # As every full sync tells it again.
    version = await known.departures.version()
    for number in (1, 3):
        await known.directory.put(revoked(number))
    await known.directory.revoke("a0")
    assert await known.departures.version() == version
    await known.directory.put(record(9))
    known.clock.advance(5)
    await known.directory.revoke("a9")
    assert await left(known) == Left(at_ms=now_ms(known), series_at_ms=None)


async def test_server_leaves_when_its_last_agent_moves_away(known):
    await known.directory.put(record(1))
    await known.directory.put(record(2))
    await known.directory.put(record(1, 2, server_id="t"))
    assert await left(known) is None
    await known.directory.put(record(2, 2, company_id="blue", server_id="t"))
    assert await left(known) == Left(at_ms=now_ms(known), series_at_ms=None)
    assert await left(known, ("acme", "t")) is await left(known, ("blue", "t")) is None


async def test_agent_that_nobody_knew_takes_no_server_away_when_it_comes_revoked(known):
    """A hub that lists all it ever revoked costs a new registry nothing."""
    await known.directory.put(revoked(1))
    assert await left(known) is None


async def test_who_is_deleted_leaves_with_the_series(known):
    await known.directory.put(record(1))
    known.clock.advance(5)
    await known.directory.delete_server("acme", "s")
    at_ms = now_ms(known)
    assert await left(known) == Left(at_ms=at_ms, series_at_ms=at_ms)
    await known.directory.put(record(2, server_id="t"))
    known.clock.advance(5)
    await known.directory.delete_company("acme")
    for key in (KEY, ("acme", "t"), ("acme", "never-seen")):
        assert await left(known, key) == Left(at_ms=now_ms(known), series_at_ms=now_ms(known))
    assert await left(known, ("blue", "s")) is None


async def test_server_of_orphans_leaves_with_the_last_of_them(known):
    known.hub.change(record(1))
    known.hub.change(record(2))
    for number in range(3, 9):
        known.hub.change(record(number, server_id="t"))
    await known.syncer.sync_once()
    full = FullSync(
        hub=known.hub,
        registry=known.registry,
        directory=known.directory,
        clock=known.clock,
        remove_orphans=True,
    )
    for number in (1, 2):
        assert await left(known) is None
        known.hub.forget(f"a{number}")
        assert (await full.sync()).removed == 1
    assert await left(known) == Left(at_ms=now_ms(known), series_at_ms=None)
    assert await left(known, ("acme", "t")) is None


async def test_revocation_by_the_hub_takes_the_server_away(known):
    known.hub.change(record(1))
    await known.syncer.sync_once()
    known.hub.change(revoked(1))
    await known.syncer.sync_once()
    assert await left(known) == Left(at_ms=now_ms(known), series_at_ms=None)


def directory_of(known, **parts):
    """Make a directory over what is known, with some of its parts replaced."""
    names = ("registry", "presence", "negative", "clock", "departures")
    return Directory(**{name: getattr(known, name) for name in names} | parts)


class Failing:
    """A part of which one method fails, before or after it did what it was asked."""

    def __init__(self, target, name, error, *, after):
        self._target, self._name, self._error, self._after = target, name, error, after

    def __getattr__(self, name):
        method = getattr(self._target, name)
        if name != self._name or self._error is None:
            return method

        async def call(*args, **kwargs):
            error, self._error = self._error, None
            if self._after:
                await method(*args, **kwargs)
            raise error

        return call


@pytest.mark.fault
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("part", "name"),
    [("registry", "delete_server"), ("registry", "by_server"), ("departures", "note")],
)
async def test_deletion_that_failed_is_known_or_told_to_be_repeated(known, part, name, after):
    """C18: at no step are the agents gone and the departure unknown."""
    await known.directory.put(record(1))
    known.clock.advance(5)
    error = DeparturesError("away") if part == "departures" else RegistryError("away")
    directory = directory_of(
        known, **{part: Failing(getattr(known, part), name, error, after=after)}
    )
    with pytest.raises(type(error)):
        await directory.delete_server("acme", "s")
    agents_are_gone = not await known.registry.by_server("acme", "s")
    assert not agents_are_gone or await left(known) is not None
    await directory.delete_server("acme", "s")
    assert await left(known) == Left(at_ms=now_ms(known), series_at_ms=now_ms(known))


@pytest.mark.fault
@pytest.mark.parametrize("name", ["of", "note"])
async def test_revocation_whose_departure_was_not_noted_is_noted_when_it_is_told_again(known, name):
    """C18: the hub's page is read again, because its cursor was not kept."""
    known.hub.change(record(1))
    await known.syncer.sync_once()
    known.hub.change(revoked(1))
    failing = Failing(known.departures, name, DeparturesError("away"), after=False)
    syncer = Syncer(
        hub=known.hub,
        registry=known.registry,
        directory=directory_of(known, departures=failing),
        clock=known.clock,
    )
    with pytest.raises(DeparturesError):
        await syncer.sync_once()
    assert await left(known) is None
    await syncer.sync_once()
    assert await left(known) is not None


@pytest.mark.fault
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("part", "name", "error"),
    [
        ("departures", "note", DeparturesError("away")),
        ("registry", "by_server", RegistryError("away")),
        ("presence", "remove", PresenceError("away")),
        ("presence", "ensure", PresenceError("away")),
    ],
)
async def test_a_move_that_was_not_followed_is_followed_when_it_is_told_again(
    known, part, name, error, after
):
    """C18: the registry has the new place by then; only the first call could read the old one."""
    await known.directory.put(record(1))
    known.clock.advance(200)
    await known.presence.expire(known.clock.time(), 500)
    directory = directory_of(
        known, **{part: Failing(getattr(known, part), name, error, after=after)}
    )
    with pytest.raises(type(error)):
        await directory.put(record(1, 2, company_id="blue"))
    await directory.put(record(1, 2, company_id="blue"))
    assert await left(known) == Left(at_ms=now_ms(known), series_at_ms=None)
    kinds = [(one.kind.value, one.agent.company_id) for one in await known.presence.pending(500)]
    assert kinds == [("down", "acme"), ("up", "acme")]
    assert [one.agent.company_id for one in await known.presence.agents()] == ["blue"]
    version = await known.departures.version()
    known.clock.advance(5)
    await directory.put(record(1, 2, company_id="blue"))
    assert await known.departures.version() == version


@pytest.mark.fault
async def test_a_departure_that_cannot_be_noted_keeps_no_agent_from_sending(
    known, full_departures, caplog
):
    """C18: the hub's word on a token that the registry does not know moves its agent."""
    await known.directory.put(known.hub.active("a1", "old", server_id="before"))
    directory = directory_of(known, departures=full_departures)
    moved = known.hub.active("a1", "new", server_id="s")
    entry = await known.make_resolver(directory=directory).resolve(moved.token_hash)
    assert entry.agent.server_id == "s"
    assert "no space left" in caplog.records[-1].error


@pytest.mark.fault
async def test_process_that_died_before_it_noted_is_followed_by_the_full_sync(known):
    """C18: an operator's revocation, which no page of the hub tells again."""
    for number in range(5):
        known.hub.change(record(number, server_id=f"s{number}"))
    await known.syncer.sync_once()
    failing = Failing(known.departures, "note", DeparturesError("killed here"), after=False)
    with pytest.raises(DeparturesError):
        await directory_of(known, departures=failing).revoke("a1")
    assert await left(known, ("acme", "s1")) is None
    full = FullSync(
        hub=known.hub, registry=known.registry, directory=known.directory, clock=known.clock
    )
    assert (await full.sync()).strays == 1
    assert await left(known, ("acme", "s1")) == Left(at_ms=now_ms(known), series_at_ms=None)
    assert await left(known, ("acme", "s2")) is None


steps = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["active", "pending", "revoked"]), st.sampled_from("st")
    ),
    max_size=25,
)


@given(steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_server_leaves_when_it_becomes_empty_and_never_while_somebody_is_there(known, script):
    fresh = type(known)()
    homes = {}
    for version, (number, state, server) in enumerate(script, 1):
        fresh.clock.advance(1)
        before = set(homes.values())
        noted = {place: await left(fresh, ("acme", place)) for place in "st"}
        await fresh.directory.put(
            record(number, version, state=AgentState(state), server_id=server)
        )
        if state == "revoked":
            homes.pop(number, None)
        else:
            homes[number] = server
        for place in "st":
            now = await left(fresh, ("acme", place))
            if place in homes.values():
                assert now == noted[place]
            elif place in before:
                assert now == Left(at_ms=now_ms(fresh), series_at_ms=None)
