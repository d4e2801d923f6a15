"""The memory registry keeps the contract, and a snapshot of it is the same registry."""

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.registry import MemoryRegistry, admits
from ahcollector.registry.snapshot import decode, encode
from ahcollector.testing.contracts import RegistryContract
from ahwire import AgentRecord
from ahwire.hub import AgentState


@pytest.mark.anyio
class TestMemoryRegistry(RegistryContract):
    async def new(self):
        return MemoryRegistry()


records = st.builds(
    lambda agent, company, state, token, prev, version: AgentRecord(
        agent_id=agent,
        company_id=company,
        server_id="s",
        state=state,
        # As the hub makes them: no two agents have a hash in common.
        token_hash=agent * 63 + (token or "f") if token or state is AgentState.ACTIVE else None,
        prev_token_hash=agent * 63 + prev if prev else None,
        version=version,
    ),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["acme", "globex"]),
    st.sampled_from(AgentState),
    st.sampled_from([None, "0", "1", "2"]),
    st.sampled_from([None, "0", "3"]),
    st.integers(0, 4),
)
steps = st.lists(
    st.one_of(
        records,
        st.tuples(st.just("revoke"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("server"), st.sampled_from(["acme", "globex"])),
    ),
    max_size=20,
)


async def play(registry, script):
    for number, step in enumerate(script):
        if isinstance(step, AgentRecord):
            before = await registry.get(step.agent_id)
            put = await registry.put(step, now=float(number))
            assert put.applied == admits(before, step)
        elif step[0] == "revoke":
            await registry.revoke(step[1], now=float(number))
        else:
            await registry.delete_server(step[1], "s")


def facts(registry):
    return (
        dict(registry._agents),
        dict(registry._tokens),
        {key: value for key, value in registry._hashes.items() if value},
        {key: value for key, value in registry._companies.items() if value},
    )


@settings(deadline=None)
@given(steps)
def test_whatever_happens_indexes_agree_and_a_snapshot_restores_all(script):
    registry = MemoryRegistry()
    anyio.run(play, registry, script)
    agents, tokens, hashes, companies = facts(registry)
    assert {token: entry.agent.agent_id for token, entry in tokens.items()} == {
        token: agent for agent, owned in hashes.items() for token in owned
    }
    assert {agent for members in companies.values() for agent in members} == set(agents)
    for entry in tokens.values():
        owner = agents[entry.agent.agent_id]
        assert entry.agent == owner.agent
        assert entry.state is owner.record.state
    image, damaged = decode(b"".join(encode(registry.image())))
    assert damaged == ()
    again = MemoryRegistry()
    again.restore(image)
    assert {token: entry.state for token, entry in again._tokens.items()} == {
        token: entry.state for token, entry in tokens.items()
    }
    assert facts(again)[0] == agents
    assert facts(again)[2:] == (hashes, companies)


def test_a_tombstone_for_an_agent_that_lives_never_becomes_a_token():
    registry = MemoryRegistry()
    record = AgentRecord(
        agent_id="a",
        company_id="acme",
        server_id="s",
        state=AgentState.ACTIVE,
        token_hash="0" * 64,
        version=1,
    )
    anyio.run(play, registry, [record])
    image = attrs.evolve(registry.image(), tombstones=(("9" * 64, "a"), ("8" * 64, "nobody")))
    registry.restore(image)
    assert registry._tokens["9" * 64].state is AgentState.REVOKED
    assert "8" * 64 not in registry._tokens


def test_a_hash_that_two_agents_claim_leads_to_the_last_one_only():
    registry = MemoryRegistry()
    first = AgentRecord(
        agent_id="a",
        company_id="acme",
        server_id="s",
        state=AgentState.ACTIVE,
        token_hash="0" * 64,
        version=1,
    )
    second = attrs.evolve(first, agent_id="b", company_id="globex")
    anyio.run(play, registry, [first, second])
    assert registry._tokens["0" * 64].agent.company_id == "globex"
    assert anyio.run(registry.delete_company, "acme")[0].agent_id == "a"
    assert registry._tokens["0" * 64].agent.company_id == "globex"
