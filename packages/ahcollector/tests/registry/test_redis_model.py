"""The registry in Redis is the one in memory, whatever two processes do to it, also at once."""

import copy
import uuid
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.registry import MemoryRegistry
from ahwire import AgentRecord
from ahwire.hub import AgentState

pytestmark = pytest.mark.service

AGENTS = ("a", "b:1")
PLACES = (("acme", "s"), ("acme", "s:2"), ("acme:s", "2"))
HASHES = tuple(digit * 64 for digit in "0123")

records = st.builds(
    lambda agent, place, state, token, prev, version: AgentRecord(
        agent_id=agent,
        company_id=place[0],
        server_id=place[1],
        state=state,
        token_hash=token or (HASHES[0] if state is AgentState.ACTIVE else None),
        prev_token_hash=prev,
        version=version,
    ),
    st.sampled_from(AGENTS),
    st.sampled_from(PLACES),
    st.sampled_from(AgentState),
    st.sampled_from([None, *HASHES]),
    st.sampled_from([None, *HASHES]),
    st.integers(0, 3),
)
operations = st.one_of(
    records.map(lambda record: ("put", record)),
    records.map(lambda record: ("renew", record)),
    st.tuples(st.just("revoke"), st.sampled_from(AGENTS)),
    st.tuples(st.just("delete_server"), st.sampled_from(PLACES)),
    st.tuples(st.just("delete_company"), st.sampled_from(["acme", "acme:s"])),
    st.tuples(st.just("delete_agent"), st.sampled_from(AGENTS), st.integers(0, 3)),
    st.tuples(st.just("sweep"), st.integers(0, 20)),
)
steps = st.lists(st.lists(operations, min_size=1, max_size=2), max_size=12)


async def do(registry, operation, now):
    kind, *arguments = operation
    if kind in ("put", "revoke"):
        answer = await getattr(registry, kind)(*arguments, now=now)
    elif kind == "renew":
        answer = await registry.put(arguments[0], now=now, renewal=True)
    elif kind == "delete_server":
        answer = await registry.delete_server(*arguments[0])
    elif kind == "delete_company":
        answer = await registry.delete_company(*arguments)
    elif kind == "delete_agent":
        answer = await registry.delete_agent(arguments[0], newest_version=arguments[1])
    else:
        answer = await registry.sweep(revoked_before=arguments[0] + 0.5)
    return answer


async def facts(registry):
    return {
        "agents": [await registry.get(agent) for agent in AGENTS],
        "tokens": [await registry.lookup(token_hash) for token_hash in HASHES],
        "places": [await registry.by_server(*place) for place in PLACES],
        "counts": await registry.count(),
        "companies": await registry.company_counts(),
        "walk": {entry.agent for entry in (await registry.scan()).entries},
    }


async def compare(server, keys_of, script):
    from ahcollector.redis import RedisClient, RedisConfig
    from ahcollector.registry.redis import RedisRegistry

    prefix = f"{uuid.uuid4().hex}:"
    clients = [
        RedisClient(config=RedisConfig(port=server.port, prefix=prefix, timeout_seconds=5))
        for _ in range(2)
    ]
    at_once = [RedisRegistry(client=client) for client in clients]
    alone = [RedisRegistry(client=client, step_agents_max=1) for client in clients]
    model = MemoryRegistry()
    try:
        for number, step in enumerate(script):
            answers = {}
            # Deletes of several steps are no single moment, so they have no others beside them.
            registries = alone if len(step) == 1 else at_once

            async def one(position, operation, *, registry, now, answers):
                answers[position] = await do(registry, operation, now)

            async with anyio.create_task_group() as group:
                for position, operation in enumerate(step):
                    call = partial(
                        one, registry=registries[position], now=float(number), answers=answers
                    )
                    group.start_soon(call, position, operation)
            found = await facts(registries[number % 2])
            ends = []
            # What ran at once ran in some order.
            for order in ([0, 1], [1, 0])[: len(step)]:
                after = copy.deepcopy(model)
                expected = {}
                for position in order[: len(step)]:
                    expected[position] = await do(after, step[position], float(number))
                ends.append((expected, await facts(after), after))
            matching = [after for said, then, after in ends if then == found and said == answers]
            assert matching, (step, answers, found, [end[:2] for end in ends])
            model = matching[0]
    finally:
        left = await keys_of(clients[0])
        if left:
            await clients[0].call("DEL", *(prefix + key for key in left))
        for client in clients:
            await client.aclose()


@settings(max_examples=100)
@given(steps)
def test_redis_is_the_model_with_two_clients_at_once(redis_server, keys_of, script):
    anyio.run(compare, redis_server, keys_of, script)
