"""C5, C26: nothing that an agent sends can stand where its tenant stands."""

import anyio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ahcollector.ingest._batches import stored_series
from ahcollector.presence.base import AgentRef
from ahcollector.store.memory import MemoryStore
from ahwire.agent_pb2 import MetricsBatch, Point, Series
from ahwire.batch import Validator

NOW_MS = 1_790_000_000_000
AGENT = AgentRef(agent_id="agent-1", company_id="acme", server_id="web-1")
RESERVED = ("company_id", "server_id", "agent_id", "vm_account_id", "vm_project_id", "__name__")


def _spelled(name: str) -> st.SearchStrategy[str]:
    """Every way to write a reserved name that normalises to it, or nearly."""
    separators = st.sampled_from(["_", "-", ".", " ", "\t", "é", "💩", "\x00", "/", '"', "{", "}"])
    return st.tuples(separators, st.booleans(), st.sampled_from(["", "_", "__", " "])).map(
        lambda spelling: (
            spelling[2] + (name.upper() if spelling[1] else name.title()).replace("_", spelling[0])
        )
    )


label_names = st.one_of(
    st.sampled_from(RESERVED),
    st.sampled_from(RESERVED).flatmap(_spelled),
    st.sampled_from(["", " ", "_", "__", "__x__", "a", "A", "le", "quantile", "0", "日本"]),
    st.text(max_size=30),
)
label_values = st.one_of(
    st.sampled_from(["globex", 'x",company_id="globex', "}", "{}", "a\nb", "\\", "\x7f", ""]),
    st.text(max_size=40),
)
hostile_labels = st.lists(st.tuples(label_names, label_values), max_size=30)


def batch_of(name, labels):
    return MetricsBatch(
        seq=1,
        series=[
            Series(
                name=name,
                labels=[{"name": key, "value": value} for key, value in labels],
                points=[Point(ts_ms=NOW_MS, value=1.0)],
            )
        ],
    )


@given(name=st.text(min_size=1, max_size=20), labels=hostile_labels)
@example(name="m", labels=[("company_id", "globex"), ("Company_ID", "globex")])
@example(name="m", labels=[("company-id", "globex"), ("", "x"), ("vm_account_id", "7")])
@example(name='m{company_id="globex"}', labels=[("a", "1"), ("a", "2")])
def test_the_tenants_labels_are_the_registrys_alone(name, labels):
    judged = Validator().judge(batch_of(name, labels), now_ms=NOW_MS)
    series = stored_series(AGENT, judged.keys, judged.points)
    for key, points, one in zip(judged.keys, judged.points, series, strict=True):
        stored = one.labels
        assert one.points == points
        assert stored[:3] == (
            ("__name__", key.name),
            ("company_id", "acme"),
            ("server_id", "web-1"),
        )
        names = [key for key, _ in stored]
        assert len(names) == len(set(names)) <= 30
        others = names[3:]
        assert others == sorted(others)
        assert not {key.lower() for key in others} & set(RESERVED)
        assert not any(key.startswith("__") for key in others)
        assert all(key.replace("_", "a").isalnum() and key.isascii() for key in names)
        assert key.name.startswith("ah_")


# The fixture is a class, so the examples share nothing.
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(labels=hostile_labels)
@example(labels=[("company_id", "globex"), ("COMPANY-ID", "globex"), ("server_id", "web-9")])
@example(labels=[(f"l{i}", "globex") for i in range(28)])
def test_no_company_reads_what_anothers_agent_sent(make_world, labels):
    async def scenario():
        world = make_world()
        world.hub.active("agent-1", world.token)
        store = MemoryStore(clock=world.clock)
        body = world.batch(world.series(labels=labels), world.series("plain"))
        response = await world.send(body)
        assert response.status_code == 202
        await store.write(world.bus.batches)
        for company in ("globex", "", "acme2", "ACME"):
            assert await store.series(company) == []
            assert await store.latest(company, "web-1", since_ms=0) == []
            assert await store.latest(company, "web-9", since_ms=0) == []
        assert await store.latest("acme", "web-9", since_ms=0) == []
        assert await store.latest("acme", "web-1", since_ms=0) != []

    anyio.run(scenario)
