"""What every `BudgetStore` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ahcollector.budget.base import AgentSeries, BudgetStore, SeriesChange, Window

__all__ = ["BudgetStoreContract"]

_HOUR = 3600
_NOW = 1_790_000_000.0 // _HOUR * _HOUR
_THIS_HOUR = int(_NOW // _HOUR)


def _series(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


def _change(
    *numbers: int,
    agent_id: str = "a1",
    hour: int = _THIS_HOUR,
    start: float = _NOW,
    first: bool = True,
) -> SeriesChange:
    series = _series(*numbers)
    return SeriesChange(
        agent_id=agent_id,
        window=Window(start=start, first=first, begun=len(series)),
        begun=len(series),
        hours=dict.fromkeys(series, hour),
    )


def _known(found: AgentSeries | None) -> Mapping[bytes, int] | None:
    return None if found is None else dict(found.hours)


class BudgetStoreContract:
    """The suite; derive from it and give `new` and `reopen`."""

    async def new(self) -> BudgetStore:
        """Return an empty store."""
        raise NotImplementedError

    async def reopen(self, store: BudgetStore) -> BudgetStore:
        """Return what another process finds where `store` wrote; a kill came between them."""
        raise NotImplementedError

    async def test_what_was_taken_is_known_to_the_next_process(self) -> None:
        """Nobody knows an agent that was never told of."""
        store = await self.new()
        assert await store.load("a1", now=_NOW) is None
        (window,) = await store.take([_change(1, 2, start=_NOW + 0.25)], now=_NOW)
        assert window == Window(start=_NOW + 0.25, first=True, begun=2)
        found = await (await self.reopen(store)).load("a1", now=_NOW)
        assert found == AgentSeries(window=window, hours=dict.fromkeys(_series(1, 2), _THIS_HOUR))

    async def test_series_counts_as_begun_once_whoever_tells_of_it(self) -> None:
        """A change that is told again, or that another process tells too, begins nothing."""
        store = await self.new()
        await store.take([_change(1, 2)], now=_NOW)
        (again,) = await store.take([_change(1, 2)], now=_NOW)
        assert again.begun == 2
        other = _change(2, 3, start=_NOW + 600)
        (both,) = await (await self.reopen(store)).take([other], now=_NOW + 600)
        assert both == Window(start=_NOW, first=True, begun=3)

    async def test_window_that_begins_after_the_last_has_ended_replaces_it(self) -> None:
        """One that overlaps is the same hour."""
        store = await self.new()
        await store.take([_change(1)], now=_NOW)
        (same,) = await store.take(
            [_change(2, start=_NOW + _HOUR - 1, first=False)], now=_NOW + _HOUR
        )
        assert same == Window(start=_NOW, first=True, begun=2)
        (fresh,) = await store.take([_change(2, 3, start=_NOW + _HOUR, first=False)], now=_NOW)
        assert fresh == Window(start=_NOW + _HOUR, first=False, begun=1)

    async def test_series_is_forgotten_a_day_after_its_last_hour(self) -> None:
        """What was sent since stays, and a late word of an earlier hour takes nothing back."""
        store = await self.new()
        await store.take([_change(1, 2)], now=_NOW)
        await store.take([_change(2, hour=_THIS_HOUR + 5)], now=_NOW + 5 * _HOUR)
        await store.take([_change(2)], now=_NOW + 5 * _HOUR)
        last = await store.load("a1", now=_NOW + 25 * _HOUR - 1)
        assert _known(last) == {
            _series(1)[0]: _THIS_HOUR,
            _series(2)[0]: _THIS_HOUR + 5,
        }
        found = await store.load("a1", now=_NOW + 25 * _HOUR)
        assert _known(found) == {_series(2)[0]: _THIS_HOUR + 5}
        later = _NOW + 25 * _HOUR
        (window,) = await store.take([_change(1, hour=_THIS_HOUR + 25, start=later)], now=later)
        assert window.begun == 1, "what was forgotten is begun anew"

    async def test_forgotten_series_is_begun_anew_though_nobody_looked_meanwhile(self) -> None:
        """What is too old does not count as known because it is still there."""
        store = await self.new()
        await store.take([_change(1)], now=_NOW)
        later = _NOW + 25 * _HOUR
        (window,) = await store.take([_change(1, hour=_THIS_HOUR + 25, start=later)], now=later)
        assert window == Window(start=later, first=True, begun=1)

    async def test_agents_are_apart(self) -> None:
        """Changes of several agents are taken together, and each comes back in its place."""
        store = await self.new()
        changes: Sequence[SeriesChange] = [
            _change(1, 2, 3, agent_id="a1"),
            _change(1, agent_id="a1:b"),
            _change(2, agent_id="a1.b"),
        ]
        windows = await store.take(changes, now=_NOW)
        assert [window.begun for window in windows] == [3, 1, 1]
        await store.forget(["a1", "nobody"])
        assert await store.load("a1", now=_NOW) is None
        assert _known(await store.load("a1:b", now=_NOW)) == {_series(1)[0]: _THIS_HOUR}
        assert _known(await store.load("a1.b", now=_NOW)) == {_series(2)[0]: _THIS_HOUR}

    async def test_many_series_and_any_bytes_of_a_fingerprint(self) -> None:
        """More than one step of a store holds, with every byte there is."""
        store = await self.new()
        edge = [bytes([byte]) * 16 for byte in range(256)]
        numbers = [number.to_bytes(16, "little") for number in range(1, 5001)]
        hours = dict.fromkeys([*edge, *numbers], _THIS_HOUR)
        change = SeriesChange(
            agent_id="a1",
            window=Window(start=_NOW, first=True, begun=0),
            begun=len(hours),
            hours=hours,
        )
        (window,) = await store.take([change], now=_NOW)
        assert window.begun == len(hours)
        assert _known(await (await self.reopen(store)).load("a1", now=_NOW)) == hours

    async def test_agent_without_changes_is_told_its_window(self) -> None:
        """Also when there is nothing to take."""
        store = await self.new()
        (window,) = await store.take([_change()], now=_NOW)
        assert window == Window(start=_NOW, first=True, begun=0)
