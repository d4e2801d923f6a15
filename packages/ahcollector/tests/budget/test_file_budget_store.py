"""Damage of a file costs what is damaged, is counted, and stops nothing."""

import logging
import os
import stat

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahcollector.budget import FileBudgetStore, SeriesChange, Window
from ahcollector.budget.file import decode, encode
from ahcollector.errors import BudgetStoreError
from ahcollector.metrics import PrometheusMetrics

pytestmark = pytest.mark.anyio

NOW = 1_790_000_000.0
HOUR = int(NOW // 3600)


def change(agent_id="a1", count=3):
    hours = {number.to_bytes(16, "big"): HOUR - number % 2 for number in range(count)}
    window = Window(start=NOW, first=True, begun=count)
    return SeriesChange(agent_id=agent_id, window=window, begun=count, hours=hours)


@pytest.fixture
def metrics():
    return PrometheusMetrics()


@pytest.fixture
def store(tmp_path, metrics):
    return FileBudgetStore(directory=tmp_path / "series", metrics=metrics)


def damaged(metrics):
    return metrics.registry.get_sample_value(
        "ahc_ingest_budget_failures_total", {"call": "damaged"}
    )


async def test_file_is_for_its_owner_only(store, tmp_path):
    await store.take([change()], now=NOW)
    folder = tmp_path / "series"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a1.series").stat().st_mode) == 0o600


async def test_damaged_line_is_set_aside_and_the_rest_is_used(store, tmp_path, metrics, caplog):
    await store.take([change()], now=NOW)
    path = tmp_path / "series" / "a1.series"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"hour", b"hoUr") + lines[2])
    with caplog.at_level(logging.ERROR, "ahcollector.budget"):
        found = await store.load("a1", now=NOW)
    assert found.window == change().window
    assert sorted(found.hours) == [number.to_bytes(16, "big") for number in (0, 2)]
    assert b"hoUr" in (tmp_path / "series" / "a1.series.damaged").read_bytes()
    assert damaged(metrics) == 1
    assert "known series of an agent were damaged" in caplog.text
    assert await store.load("a1", now=NOW) == found, "it is told of once"
    assert damaged(metrics) == 1


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"{}\n", b"\xff\xfe junk"])
async def test_file_of_nothing_readable_is_an_agent_without_series(
    store, tmp_path, metrics, content
):
    await store.take([change()], now=NOW)
    (tmp_path / "series" / "a1.series").write_bytes(content)
    found = await store.load("a1", now=NOW + 9)
    assert dict(found.hours) == {}
    assert found.window == Window(start=NOW + 9, first=True, begun=0)
    assert damaged(metrics) == 1
    (window,) = await store.take([change()], now=NOW)
    assert window.begun == 3


async def test_another_agents_file_is_not_believed(store, tmp_path, metrics):
    await store.take([change("a1")], now=NOW)
    folder = tmp_path / "series"
    (folder / "a1.series").rename(folder / "a2.series")
    found = await store.load("a2", now=NOW)
    assert found.window.begun == 0
    assert damaged(metrics) == 1


async def test_files_of_agents_that_are_silent_for_a_day_are_removed(store, tmp_path):
    await store.take([change("old")], now=NOW)
    await store.take([change("new")], now=NOW + 24 * 3600)
    await store.take([change("new")], now=NOW + 25 * 3600 + 1)
    assert [path.name for path in (tmp_path / "series").iterdir()] == ["new.series"]


@pytest.mark.parametrize("agent_id", ["../x", ".hidden", "", "a/b", "x" * 300, "a\0b"])
async def test_no_agent_id_leads_out_of_the_directory(store, tmp_path, agent_id):
    await store.take([change(agent_id)], now=NOW)
    assert (await store.load(agent_id, now=NOW)).window.begun == 3
    (only,) = tmp_path.rglob("*.series")
    assert only.parent == tmp_path / "series"


async def test_disk_that_hangs_holds_no_batch_up(store, tmp_path):
    (tmp_path / "series").mkdir()
    pipe = tmp_path / "series" / "a1.series"
    os.mkfifo(pipe)
    try:
        with anyio.move_on_after(0.05) as scope:
            await store.load("a1", now=NOW)
        assert scope.cancelled_caught
    finally:
        # Lets the thread go that still waits for a writer.
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
        pipe.unlink()


async def test_directory_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    store = FileBudgetStore(directory=tmp_path / "file" / "series")
    with pytest.raises(BudgetStoreError, match="free space, or fix its owner"):
        await store.take([change()], now=NOW)
    with pytest.raises(BudgetStoreError, match="fix its owner and mode"):
        await store.load("a1", now=NOW)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_never_adds_a_series_and_is_never_silent(data):
    known = change(count=40)
    written = b"".join(encode("a1", _all(known)))
    at = data.draw(st.integers(0, len(written) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "drop"]))
    hurt = bytearray(written)
    if how == "cut":
        del hurt[at:]
    elif how == "drop":
        del hurt[at]
    else:
        hurt[at] ^= 1 << data.draw(st.integers(0, 7))
    found, pieces = decode(bytes(hurt), "a1", now=NOW)
    assert set(found.hours.items()) <= set(known.hours.items())
    whole = found == _all(known)
    # Without the last line feed everything is still there.
    assert bool(pieces) != whole


def _all(known):
    from ahcollector.budget import AgentSeries

    return AgentSeries(window=known.window, hours=known.hours)
