"""The states of alerts in files: cut anywhere, flipped anywhere, a disk that is full."""

import contextlib
import errno
import os

import pytest
from alert_world import World, batch, rule
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.alerts import AlertChange, FileAlertStateStore, UnitKey
from ahcollector.alerts.file import decode
from ahcollector.errors import AlertStateError, FencedAlertStateError
from ahcollector.testing._contracts.alerts import _event

pytestmark = pytest.mark.anyio

KEY = UnitKey(shard=3, company_id="acme")


@pytest.fixture
async def directory(tmp_path, anyio_backend):
    return tmp_path / "rules"


async def fill(directory):
    """Commit three times; return the file's bytes."""
    store = await FileAlertStateStore.open(directory)
    epoch = (await store.claim(KEY)).epoch
    await store.commit(KEY, epoch, AlertChange(seq=1, base={"rules": "r"}, intents=(_event(1),)))
    await store.commit(KEY, epoch, AlertChange(seq=2, pieces={"a": "x"}, intents=(_event(2),)))
    await store.commit(KEY, epoch, AlertChange(seq=3, pieces={"a": "y"}, intents=(_event(3),)))
    await store.told(KEY, [_event(1).event_id])
    await store.close()
    return (directory / "3-acme.alerts").read_bytes()


@pytest.mark.fault
async def test_file_that_is_cut_anywhere_holds_what_was_whole(directory):
    """A commit is there whole or not at all; what was cut is kept aside."""
    whole = await fill(directory)
    path = directory / "3-acme.alerts"
    seen = set()
    for cut in {*range(0, len(whole), 29), len(whole)}:
        path.write_bytes(whole[:cut])
        store = await FileAlertStateStore.open(directory)
        image = await store.claim(KEY)
        numbers = [event.seq for event in image.intents]
        state = (image.seq, dict(image.pieces), numbers)
        assert state in [
            (0, {}, []),
            (1, {}, [1]),
            (2, {"a": "x"}, [1, 2]),
            (3, {"a": "y"}, [1, 2, 3]),
            (3, {"a": "y"}, [2, 3]),
        ]
        seen.add(str(state))
        # What was left is whole again, and takes more.
        await store.commit(KEY, image.epoch, AlertChange(seq=9, pieces={"b": "z"}))
        await store.close()
        image, damaged = decode(KEY, path.read_bytes())
        assert (image.seq, image.pieces["b"], damaged) == (9, "z", ())
    assert len(seen) == 5
    assert (directory / "3-acme.alerts.damaged").exists()


@pytest.mark.fault
async def test_every_flipped_bit_is_noticed(directory):
    """No commit is read as another one; the others of the file are used."""
    whole = await fill(directory)
    clean, _ = decode(KEY, whole)
    known = {event.to_json() for event in clean.intents} | {_event(1).to_json()}
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
        image, damaged = decode(KEY, flipped)
        # A line feed between two whole lines may be anything.
        assert damaged or (image.intents, image.pieces) == (clean.intents, clean.pieces), at
        assert {event.to_json() for event in image.intents} <= known
        assert set(image.pieces.items()) <= {("a", "x"), ("a", "y")}
        if at < whole.index(b"\n"):
            assert (image.seq, image.base, image.pieces) == (clean.seq, clean.base, clean.pieces)
            assert (image.intents, damaged) == (clean.intents, (flipped.split(b"\n")[0],))


async def test_directory_in_the_place_of_a_file_is_kept_aside(directory):
    store = await FileAlertStateStore.open(directory)
    (directory / "3-acme.alerts").mkdir()
    (directory / "3-acme.alerts" / "note").touch()
    image = await store.claim(KEY)
    assert (image.is_empty, image.damaged) == (True, 1)
    await store.commit(KEY, image.epoch, AlertChange(seq=1, intents=(_event(1),)))
    await store.close()
    assert (directory / "3-acme.alerts").is_file()
    assert (directory / "3-acme.alerts.directory" / "note").exists()


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data):
    image, _ = decode(KEY, data)
    assert image.is_empty


async def test_file_of_another_unit_or_version_is_not_used(directory):
    whole = await fill(directory)
    image, damaged = decode(UnitKey(shard=4, company_id="acme"), whole)
    assert image.is_empty
    assert len(damaged) == len(whole.splitlines())


async def test_directory_is_held_by_one_process_and_for_its_owner_only(directory):
    first = await FileAlertStateStore.open(directory)
    with pytest.raises(AlertStateError, match="held by another process"):
        await FileAlertStateStore.open(directory)
    await first.claim(KEY)
    assert directory.stat().st_mode & 0o777 == 0o700
    modes = {path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert modes == {0o600}
    await first.close()
    await first.close()
    with pytest.raises(AlertStateError, match="closed"):
        await first.claim(KEY)
    (await FileAlertStateStore.open(directory))._lock_descriptor  # noqa: B018 - it opens
    with pytest.raises(AlertStateError, match="cannot be used"):
        await FileAlertStateStore.open(directory / "alerts.lock")


@pytest.mark.fault
@pytest.mark.parametrize("call", ["write", "fdatasync", "fsync"])
async def test_disk_that_is_full_is_an_error_and_nothing_is_appended_behind_a_half(
    directory, monkeypatch, call
):
    """Whether a line that failed is there is not known: the file is written anew."""
    store = await FileAlertStateStore.open(directory)
    epoch = (await store.claim(KEY)).epoch
    await store.commit(KEY, epoch, AlertChange(seq=1, base={"rules": "r"}, intents=(_event(1),)))
    real = getattr(os, call)

    def full(descriptor, *args):
        if call == "write":
            real(descriptor, bytes(args[0])[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    change = AlertChange(seq=2, pieces={"a": "x"}, intents=(_event(2),))
    whole = AlertChange(seq=2, base={"rules": "s"}, intents=(_event(2),))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        failing = whole if call == "fsync" else change
        with pytest.raises(AlertStateError, match="No space left"):
            await store.commit(KEY, epoch, failing)
        with contextlib.suppress(AlertStateError):
            await store.told(KEY, [_event(1).event_id])
    await store.commit(KEY, epoch, change)
    await store.commit(KEY, epoch, AlertChange(seq=3, pieces={"b": "y"}))
    await store.close()
    image, damaged = decode(KEY, (directory / "3-acme.alerts").read_bytes())
    assert damaged == ()
    assert (image.seq, dict(image.pieces)) == (3, {"a": "x", "b": "y"})
    assert _event(2) in image.intents


async def test_file_does_not_grow_with_the_number_of_its_snapshots(directory):
    store = await FileAlertStateStore.open(directory)
    epoch = (await store.claim(KEY)).epoch
    for seq in range(1, 60):
        await store.commit(KEY, epoch, AlertChange(seq=seq, pieces={"a": "x" * 1000}))
        await store.commit(KEY, epoch, AlertChange(seq=seq, base={"rules": "r"}))
    await store.close()
    assert (directory / "3-acme.alerts").stat().st_size < 1000


async def test_store_refuses_who_did_not_claim(directory):
    await fill(directory)
    store = await FileAlertStateStore.open(directory)
    with pytest.raises(FencedAlertStateError, match="company acme in shard 3"):
        await store.commit(KEY, 1, AlertChange(seq=9))
    await store.told(KEY, ["x"])
    await store.close()


@pytest.mark.fault
@settings(max_examples=10, deadline=None)
@given(cut=st.floats(0, 1))
def test_engine_goes_on_from_a_file_that_was_cut(cut, tmp_path_factory):
    """A4, C18: whatever a power cut left, what its commits say is told once."""
    import anyio

    async def run():
        directory = tmp_path_factory.mktemp("rules")
        store = await FileAlertStateStore.open(directory)
        world = World(rule(), store=store)
        await world.feed([60, 40, 60])
        await store.close()
        (path,) = directory.glob("*.alerts")
        whole = path.read_bytes()
        path.write_bytes(whole[: round(len(whole) * cut)])
        world.store = await FileAlertStateStore.open(directory)
        world.start()
        await world.show(batch(40, 60))
        kinds = [kind for kind, _ in await world.told()]
        assert kinds[:3] == ["opened", "resolved", "opened"]
        assert kinds[3:] in ([], ["opened"], ["resolved"])
        await world.store.close()

    anyio.run(run)


@pytest.mark.fault
@given(data=st.data())
@settings(max_examples=60, deadline=None)
async def test_a_head_that_is_damaged_or_gone_costs_nothing_behind_it(tmp_path_factory, data):
    """Each line has a seal of its own, and the file's name says whose it is."""
    directory = tmp_path_factory.mktemp("headless") / "rules"
    whole = await fill(directory)
    size = whole.index(b"\n")
    place = data.draw(st.integers(0, size - 1))
    flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    # A byte, the line, or the line and its end.
    broken = data.draw(
        st.sampled_from(
            [
                whole[:place] + flipped.replace(b"\n", b"?") + whole[place + 1 :],
                whole[size:],
                whole[size + 1 :],
            ]
        )
    )
    (directory / "3-acme.alerts").write_bytes(broken)
    store = await FileAlertStateStore.open(directory)
    image = await store.claim(KEY)
    assert image.damaged >= 1
    assert (image.seq, dict(image.base), dict(image.pieces)) == (3, {"rules": "r"}, {"a": "y"})
    assert [event.seq for event in image.intents] == [2, 3]
    again = await store.claim(KEY)
    assert (again.epoch, again.damaged) == (image.epoch + 1, 0)
    await store.close()


@pytest.mark.parametrize("company_id", ["blue", "acme"])
@pytest.mark.parametrize("is_headed", [False, True])
async def test_what_another_company_decided_is_nobody_else_s(directory, company_id, is_headed):
    """A file under another name: with a head it is another unit's, without one its events tell."""
    whole = await fill(directory)
    data = whole if is_headed else whole[whole.index(b"\n") + 1 :]
    key = UnitKey(shard=3, company_id=company_id)
    image, damaged = decode(key, data)
    if company_id == "acme":
        assert len(image.intents) == 2
    else:
        assert (image.is_empty, image.intents, len(damaged) >= 3) == (True, (), True)


async def test_an_epoch_rises_though_the_head_that_told_it_is_lost(directory):
    """A commit under the epoch of before is refused."""
    store = await FileAlertStateStore.open(directory)
    epochs = [(await store.claim(KEY)).epoch for _ in range(3)]
    await store.commit(KEY, epochs[-1], AlertChange(seq=1, base={"rules": "r"}))
    path = directory / "3-acme.alerts"
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    epoch = (await store.claim(KEY)).epoch
    assert epoch == epochs[-1] + 1
    with pytest.raises(FencedAlertStateError):
        await store.commit(KEY, epochs[-1], AlertChange(seq=2))
    await store.close()
