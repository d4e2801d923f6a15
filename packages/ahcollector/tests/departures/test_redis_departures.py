"""What departures in Redis do besides the contract: damage, other types, bounds."""

import pytest

from ahcollector.departures import Departure
from ahcollector.errors import DeparturesError
from ahcollector.metrics import PrometheusMetrics

pytestmark = [pytest.mark.service, pytest.mark.anyio]

S1, S2 = ("acme", "s1"), ("acme", "s2")


@pytest.fixture
def departures(client):
    from ahcollector.departures.redis import RedisDepartures

    return RedisDepartures(client=client)


def of(server, *, at=1.0):
    return Departure(company_id="acme", server_id=server, at=at, keeps_series=False)


async def test_value_that_cannot_be_read_is_told_and_hides_no_other(client, departures, caplog):
    await departures.note(of("s1"))
    await departures.note(of("s2"))
    for junk in ("x", "1", " 2", "1 2 3", b"\xff 1"):
        caplog.clear()
        await client.call("HSET", client.key("left", "at"), "acme:s1", junk)
        assert set(await departures.of([S1, S2])) == {S2}
        assert set(await departures.of([S1])) == set()
        assert caplog.text.count("delete them again") == 1, "and not for each batch"
    await departures.note(of("s1", at=5.0))
    assert (await departures.of([S1]))[S1].at_ms == 5_000


async def test_key_of_another_type_is_an_error(client, departures):
    await client.call("SET", client.key("left", "at"), "x")
    with pytest.raises(DeparturesError, match=r"cannot look for them.*left:\*.*RENAME"):
        await departures.of([S1])
    with pytest.raises(DeparturesError, match=r"cannot remember one.*left:\*.*RENAME"):
        await departures.note(of("s1"))


async def test_bounds_are_checked(client):
    from ahcollector.departures.redis import RedisDepartures

    for bounds in ({"departures_max": 0}, {"keep_seconds": 0.0}):
        with pytest.raises(ValueError, match="at least one departure"):
            RedisDepartures(client=client, **bounds)


async def test_version_of_an_emptied_redis_is_another(client, departures, keys_of):
    """A process that compares versions must see that what it knows is gone."""
    await departures.note(of("s1"))
    before = await departures.version()
    for key in await keys_of(client):
        await client.call("DEL", client.prefix + key)
    assert await departures.version() == ""
    await departures.note(of("s1"))
    assert await departures.version() not in ("", before)


async def test_bound_is_kept_a_hundred_at_a_time(client, departures, caplog):
    from ahcollector.departures.redis import RedisDepartures

    for number in range(250):
        await departures.note(of(f"s{number}", at=float(number)))
    metrics = PrometheusMetrics()
    small = RedisDepartures(client=client, departures_max=10, metrics=metrics)
    for number, left in ((250, 151), (251, 52), (252, 10)):
        await small.note(of(f"s{number}", at=float(number)))
        assert await client.call("HLEN", client.key("left", "at")) == left
        assert await client.call("ZCARD", client.key("left", "order")) == left
    assert "the oldest departure is forgotten" in caplog.text
    assert metrics.registry.get_sample_value("ahc_departures_dropped_total") == 243
