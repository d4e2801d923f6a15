"""What every `Departures` does."""

from __future__ import annotations

from ahcollector.departures.base import Departure, Departures, Left

__all__ = ["DeparturesContract"]

_NOW = 1_790_000_000.0
_NOW_MS = 1_790_000_000_000
_DAY = 86_400.0


def _of_server(
    server: str = "s1", *, company: str = "acme", at: float = 0.0, keeps_series: bool = False
) -> Departure:
    return Departure(company_id=company, server_id=server, at=_NOW + at, keeps_series=keeps_series)


def _of_company(company: str = "acme", *, at: float = 0.0) -> Departure:
    return Departure(company_id=company, server_id=None, at=_NOW + at, keeps_series=False)


def _deleted(at: float = 0.0) -> Left:
    return Left(at_ms=_NOW_MS + int(at * 1000), series_at_ms=_NOW_MS + int(at * 1000))


def _left(at: float, series_at: float) -> Left:
    return Left(at_ms=_NOW_MS + int(at * 1000), series_at_ms=_NOW_MS + int(series_at * 1000))


class DeparturesContract:
    """The suite; derive from it and give `new` and `reopen`."""

    async def new(
        self, *, keep_seconds: float = 90 * _DAY, departures_max: int = 1_000
    ) -> Departures:
        """Return one that remembers nobody, with these bounds."""
        raise NotImplementedError

    async def reopen(self, departures: Departures) -> Departures:
        """Return what another process finds where `departures` wrote; a kill came between them.

        With the default bounds of `new`.
        """
        raise NotImplementedError

    async def test_nobody_has_left_who_was_not_noted(self) -> None:
        """Also where others have."""
        departures = await self.new()
        assert await departures.of([]) == {}
        assert await departures.of([("acme", "s1")]) == {}
        await departures.note(_of_server("s2"))
        await departures.note(_of_server("s1", company="blue"))
        assert await departures.of([("acme", "s1")]) == {}

    async def test_what_was_noted_is_known_to_the_next_process(self) -> None:
        """A server that was deleted, and one whose history is kept."""
        departures = await self.new()
        await departures.note(_of_server("s1", at=0.25))
        await departures.note(_of_server("s2", at=1, keeps_series=True))
        asked = [("acme", "s1"), ("acme", "s2"), ("acme", "s3")]
        expected = {
            asked[0]: _deleted(0.25),
            asked[1]: Left(at_ms=_NOW_MS + 1_000, series_at_ms=None),
        }
        assert await departures.of(asked) == expected
        assert await (await self.reopen(departures)).of(asked) == expected

    async def test_instants_only_rise(self) -> None:
        """Whatever comes again, or late, and of either kind."""
        departures = await self.new()
        key = ("acme", "s1")
        for one, left in (
            (_of_server(at=10), _deleted(10)),
            (_of_server(at=5), _deleted(10)),
            (_of_server(at=20, keeps_series=True), _left(20, 10)),
            (_of_server(at=15, keeps_series=True), _left(20, 10)),
            (_of_server(at=15), _left(20, 15)),
            (_of_server(at=30), _deleted(30)),
        ):
            await departures.note(one)
            assert await departures.of([key]) == {key: left}
            assert await (await self.reopen(departures)).of([key]) == {key: left}

    async def test_company_takes_all_its_servers_with_it(self) -> None:
        """Those that nobody knew as well; each server's own departure counts where it is later."""
        departures = await self.new()
        await departures.note(_of_server("s1", at=5))
        await departures.note(_of_server("s2", at=15))
        await departures.note(_of_server("s3", at=20, keeps_series=True))
        await departures.note(_of_company(at=10))
        found = await departures.of(
            [("acme", "s1"), ("acme", "s2"), ("acme", "s3"), ("acme", "s4"), ("blue", "s1")]
        )
        assert found == {
            ("acme", "s1"): _deleted(10),
            ("acme", "s2"): _deleted(15),
            ("acme", "s3"): _left(20, 10),
            ("acme", "s4"): _deleted(10),
        }

    async def test_names_are_apart_whatever_is_in_them(self) -> None:
        """Colons, percents and what escapes them look like."""
        departures = await self.new()
        names = ["a", "a:b", "a%3Ab", "b", "a%", "%", ":", "a b", "ä"]
        noted = [(company, server) for company in names for server in names][::2]
        for company, server in noted:
            await departures.note(_of_server(server, company=company))
        every = [(company, server) for company in names for server in names]
        assert set(await departures.of(every)) == set(noted)

    async def test_version_changes_with_what_is_new_and_with_nothing_else(self) -> None:
        """So that nobody has to ask for everybody again and again."""
        departures = await self.new()
        seen = [await departures.version()]
        for one in (_of_server("s1"), _of_server("s2"), _of_server("s1", at=1), _of_company()):
            await departures.note(one)
            assert await departures.version() not in seen
            seen.append(await departures.version())
            await departures.note(one)
            assert await departures.version() == seen[-1]

    async def test_many_are_asked_for_at_once(self) -> None:
        """More than one page of any store."""
        departures = await self.new(departures_max=2_000)
        for number in range(0, 1_200, 3):
            await departures.note(_of_server(f"s{number}", at=number))
        asked = [("acme", f"s{number}") for number in range(1_200)]
        found = await departures.of(asked)
        assert found == {asked[number]: _deleted(number) for number in range(0, 1_200, 3)}

    async def test_what_is_too_old_goes_with_the_next_note(self) -> None:
        """By the time of the departures, so that a clock that stands still keeps them."""
        departures = await self.new(keep_seconds=_DAY)
        await departures.note(_of_server("s1"))
        await departures.note(_of_server("s2", at=10))
        await departures.note(_of_server("s3", at=_DAY + 5))
        asked = [("acme", f"s{number}") for number in range(1, 4)]
        assert set(await departures.of(asked)) == {asked[1], asked[2]}

    async def test_oldest_go_where_there_are_too_many(self) -> None:
        """One that was noted anew is not old."""
        departures = await self.new(departures_max=3)
        for number in range(3):
            await departures.note(_of_server(f"s{number}", at=number))
        await departures.note(_of_server("s0", at=10))
        await departures.note(_of_server("s3", at=11))
        asked = [("acme", f"s{number}") for number in range(4)]
        assert set(await departures.of(asked)) == {asked[0], asked[2], asked[3]}
