"""What departures in a file do besides the contract: damage, a disk that fails, bounds."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahcollector._sealedlog import SealedLog
from ahcollector.departures import Departure, FileDepartures, Left, MemoryDepartures
from ahcollector.errors import DeparturesError
from ahcollector.metrics import PrometheusMetrics

pytestmark = pytest.mark.anyio

departures = st.builds(
    Departure,
    company_id=st.sampled_from(["acme", "blue"]),
    server_id=st.sampled_from([None, "s1", "s2"]),
    at=st.integers(0, 20).map(float),
    keeps_series=st.booleans(),
)
EVERY = [(company, server) for company in ("acme", "blue") for server in ("s1", "s2", "s3")]


def of(server="s1", *, at=1.0, **more):
    return Departure(company_id="acme", server_id=server, at=at, keeps_series=False, **more)


def newest(noted, key):
    """What a look through everything that was noted says of a server."""
    mine = [one for one in noted if (one.company_id, one.server_id) in (key, (key[0], None))]
    whole = [one for one in mine if not one.keeps_series]
    if not mine:
        return None
    return Left(
        at_ms=int(max(one.at for one in mine) * 1000),
        series_at_ms=int(max(one.at for one in whole) * 1000) if whole else None,
    )


@given(noted=st.lists(departures, max_size=30), reopened=st.integers(0, 30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
async def test_it_says_what_a_look_through_the_whole_past_says(tmp_path_factory, noted, reopened):
    path = tmp_path_factory.mktemp("left") / "departures.log"
    memory, file = MemoryDepartures(), await FileDepartures.open(path)
    for number, one in enumerate(noted):
        if number == reopened:
            file = await FileDepartures.open(path)
        await memory.note(one)
        await file.note(one)
    file = await FileDepartures.open(path)
    expected = {key: newest(noted, key) for key in EVERY}
    expected = {key: left for key, left in expected.items() if left is not None}
    assert await memory.of(EVERY) == await file.of(EVERY) == expected


async def test_damaged_lines_are_set_aside_and_told(tmp_path, caplog):
    path = tmp_path / "departures.log"
    file = await FileDepartures.open(path)
    for number in range(3):
        await file.note(of(f"s{number}"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"acme", b"acmf") + lines[2][:-5])
    again = await FileDepartures.open(path)
    assert set(await again.of([("acme", f"s{n}") for n in range(3)])) == {("acme", "s0")}
    assert "delete it again" in caplog.text
    assert (tmp_path / "departures.log.damaged").read_bytes().count(b"acm") == 2
    assert path.read_bytes() == lines[0]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_note_that_the_disk_refused_is_not_remembered(tmp_path, monkeypatch):
    """Or the deletion would be answered as done, and undone by a restart."""
    file = await FileDepartures.open(tmp_path / "departures.log")

    def refuse(self, lines, *, sync):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(SealedLog, "append", refuse)
        with pytest.raises(DeparturesError, match=r"departures\.log.*No space.*make room"):
            await file.note(of())
        assert await file.of([("acme", "s1")]) == {}
    await file.note(of())
    assert set(await file.of([("acme", "s1")])) == {("acme", "s1")}


async def test_file_is_as_long_as_what_is_remembered(tmp_path):
    path = tmp_path / "departures.log"
    file = await FileDepartures.open(path)
    for number in range(1_000):
        await file.note(of(at=float(number)))
    assert len(path.read_bytes().splitlines()) < 110
    (left,) = (await (await FileDepartures.open(path)).of([("acme", "s1")])).values()
    assert left.at_ms == 999_000


async def test_directory_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DeparturesError, match="repair its permissions"):
        await FileDepartures.open(tmp_path / "file" / "departures.log")


def test_bounds_are_checked():
    with pytest.raises(ValueError, match="at least one departure"):
        MemoryDepartures(departures_max=0)
    with pytest.raises(ValueError, match="for some time"):
        MemoryDepartures(keep_seconds=0)


async def test_a_file_of_more_than_the_bound_is_told_once_when_it_is_opened(tmp_path, caplog):
    """And not a line for each of a hundred thousand."""
    path = tmp_path / "departures.log"
    file = await FileDepartures.open(path)
    for number in range(9):
        await file.note(of(f"s{number}", at=float(number)))
    metrics = PrometheusMetrics()
    again = await FileDepartures.open(path, departures_max=2, metrics=metrics)
    assert set(await again.of([("acme", f"s{n}") for n in range(9)])) == {
        ("acme", "s7"),
        ("acme", "s8"),
    }
    assert [one.departures_max for one in caplog.records] == [2]
    assert metrics.registry.get_sample_value("ahc_departures_dropped_total") == 7


async def test_what_the_bound_pushes_out_is_told(caplog):
    metrics = PrometheusMetrics()
    memory = MemoryDepartures(departures_max=1, keep_seconds=10, metrics=metrics)
    await memory.note(of("s1"))
    await memory.note(of("s2", at=20.0))
    assert not caplog.records
    await memory.note(of("s3", at=21.0))
    assert "the oldest departure is forgotten" in caplog.text
    assert metrics.registry.get_sample_value("ahc_departures_dropped_total") == 1
