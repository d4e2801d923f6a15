"""What every `Store` does."""

from __future__ import annotations

import math

from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import PermanentStoreError
from ahcollector.store.base import RANGE_POINTS_MAX, Aggregate, Store
from ahcollector.testing._contracts._expect import expect

__all__ = ["StoreContract", "samples"]

Points = list[tuple[int, float]]


def samples(
    points: Points,
    *,
    company_id: str = "acme",
    server_id: str = "web-1",
    name: str = "ah_cpu_percent",
    labels: tuple[tuple[str, str], ...] = (),
) -> SampleBatch:
    """Return a batch of one series."""
    own = (("__name__", name), ("company_id", company_id), ("server_id", server_id))
    return SampleBatch(
        company_id=company_id,
        server_id=server_id,
        agent_id="agent-1",
        request_id="00000000000000aa",
        received_at_ms=0,
        series=(StoredSeries(labels=own + labels, points=tuple(points)),),
    )


class StoreContract:
    """The suite; derive from it and give `new` and `now_ms`."""

    async def new(self) -> Store:
        """Return an empty store that keeps at least a day."""
        raise NotImplementedError

    def now_ms(self) -> int:
        """Return the store's present, Unix milliseconds."""
        raise NotImplementedError

    async def visible(self, store: Store) -> None:
        """Make what was written visible; for stores where that takes time."""
        del store

    def same(self, found: float, sent: float) -> bool:
        """Whether a value was kept; for stores that do not keep every double as it is."""
        return (found, math.copysign(1.0, found)) == (sent, math.copysign(1.0, sent))

    async def read(
        self, store: Store, *, start: int, end: int, step: int, how: Aggregate = Aggregate.LAST
    ) -> Points:
        """Return the points of the only series of web-1's cpu, empty when there is none."""
        await self.visible(store)
        answer = await store.range(
            "acme",
            "web-1",
            "ah_cpu_percent",
            start_ms=start,
            end_ms=end,
            step_ms=step,
            aggregate=how,
        )
        assert len(answer) <= 1
        return list(answer[0].points) if answer else []

    def base(self) -> int:
        """Return a round instant some minutes ago."""
        return self.now_ms() // 60_000 * 60_000 - 600_000

    async def test_a_step_holds_its_end_and_not_its_beginning(self) -> None:
        """(t - step, t], exactly."""
        store, t = await self.new(), self.base()
        points: Points = [(t, 1.0), (t + 1, 2.0), (t + 60_000, 4.0), (t + 60_001, 8.0)]
        await store.write([samples(points)])
        found = await self.read(store, start=t, end=t + 120_000, step=60_000, how=Aggregate.SUM)
        assert found == [(t, 1.0), (t + 60_000, 6.0), (t + 120_000, 8.0)]

    async def test_every_aggregate(self) -> None:
        """Over one step."""
        store, t = await self.new(), self.base()
        await store.write([samples([(t + 1_000, 4.0), (t + 2_000, -1.0), (t + 3_000, 3.0)])])
        expected = {
            Aggregate.AVG: 2.0,
            Aggregate.MIN: -1.0,
            Aggregate.MAX: 4.0,
            Aggregate.SUM: 6.0,
            Aggregate.COUNT: 3.0,
            Aggregate.LAST: 3.0,
        }
        for how, value in expected.items():
            end = t + 60_000
            found = await self.read(store, start=end, end=end, step=60_000, how=how)
            assert found == [(end, value)], how

    async def test_the_same_batch_three_times_is_one_sample_a_timestamp(self) -> None:
        """C6."""
        store, t = await self.new(), self.base()
        batch = samples([(t + 1_000, 4.0), (t + 2_000, 5.0)])
        for _ in range(3):
            await store.write([batch, batch])
        end = t + 60_000
        found = await self.read(store, start=end, end=end, step=60_000, how=Aggregate.COUNT)
        assert found == [(end, 2.0)]

    async def test_late_samples_find_their_place(self) -> None:
        """Order of writing is not order of time."""
        store, t = await self.new(), self.base()
        await store.write([samples([(t + 5_000, 5.0), (t + 1_000, 1.0)])])
        await store.write([samples([(t + 3_000, 3.0)])])
        found = await self.read(store, start=t, end=t + 5_000, step=1_000)
        assert found == [(t + 1_000, 1.0), (t + 3_000, 3.0), (t + 5_000, 5.0)]

    async def test_what_is_not_finite_is_left_out_and_its_neighbours_are_kept(self) -> None:
        """C3."""
        store, t = await self.new(), self.base()
        values = [math.nan, 0.25, math.inf, -3.0, -math.inf, 9007199254740991.0, 123456.789]
        await store.write([samples([(t + n * 1_000, value) for n, value in enumerate(values)])])
        found = await self.read(store, start=t, end=t + 60_000, step=1_000)
        assert found == [(t + n * 1_000, values[n]) for n in (1, 3, 5, 6)]

    async def test_values_at_the_edge_of_doubles(self) -> None:
        """C3: each in a series of its own, kept as they are or as the store says."""
        store, t = await self.new(), self.base()
        values = [-0.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 1 / 3, 1e23]
        batches = [
            samples([(t, value)], labels=(("number", str(n)),)) for n, value in enumerate(values)
        ]
        await store.write(batches)
        await self.visible(store)
        found = await store.latest("acme", "web-1", since_ms=t)
        assert [dict(sample.labels)["number"] for sample in found] == list("012345")
        for sample, value in zip(found, values, strict=True):
            assert self.same(sample.value, value), value

    async def test_a_series_lasts_from_its_first_sample_to_its_last(self) -> None:
        """Whatever the order in which they came."""
        store, t = await self.new(), self.base()
        await store.write([samples([(t + 5_001, 1.0), (t + 1, 1.0), (t + 3_000, 1.0)])])
        await self.visible(store)
        [info] = await store.series("acme", "web-1")
        assert (info.first_ms, info.last_ms) == (t + 1, t + 5_001)
        assert info.labels == samples([]).series[0].labels

    async def test_the_newest_point_of_a_range_is_true_although_it_is_new(self) -> None:
        """Some stores show an older point in its place."""
        store, now = await self.new(), self.now_ms()
        t = now // 1_000 * 1_000 - 60_000
        points = [(t + n * 1_000, float(n)) for n in range(60)]
        await store.write([samples(points)])
        assert await self.read(store, start=t, end=t + 59_000, step=1_000) == points

    async def test_tenants_never_meet(self) -> None:
        """Neither in a query nor in a list nor in a deletion."""
        store, t = await self.new(), self.base()
        await store.write(
            [
                samples([(t, 1.0)]),
                samples([(t, 2.0)], company_id="bolt"),
                samples([(t, 3.0)], server_id="web-2"),
            ]
        )
        assert await self.read(store, start=t, end=t, step=1_000) == [(t, 1.0)]
        assert len(await store.series("acme")) == 2
        assert len(await store.series("acme", "web-2")) == 1
        assert [s.value for s in await store.latest("bolt", "web-1", since_ms=0)] == [2.0]
        assert await store.delete_server("acme", "web-1") == 1
        await self.visible(store)
        assert await self.read(store, start=t, end=t, step=1_000) == []
        assert len(await store.series("acme")) == 1
        assert len(await store.series("bolt")) == 1
        assert await store.delete_company("acme") == 1
        assert await store.delete_company("acme") == 0
        assert len(await store.series("bolt")) == 1

    async def test_a_batch_without_its_tenant_is_refused_before_anything_is_stored(self) -> None:
        """Empty tenants, series of another tenant than the batch's, and labels named twice."""
        store, t = await self.new(), self.base()
        good = samples([(t, 1.0)])
        for bad in (
            samples([(t, 1.0)], company_id=""),
            samples([(t, 1.0)], server_id=""),
            SampleBatch(
                company_id="acme",
                server_id="web-1",
                agent_id="a",
                request_id="r",
                received_at_ms=0,
                series=samples([(t, 1.0)], company_id="bolt").series,
            ),
            samples([(t, 1.0)], labels=(("company_id", "bolt"),)),
            samples([(t, 1.0)], labels=(("zone", "a"), ("zone", "b"))),
        ):
            with expect(PermanentStoreError):
                await store.write([good, bad])
        await self.visible(store)
        assert await store.series("acme") == []

    async def test_labels_that_look_alike_are_different_series(self) -> None:
        """C26."""
        store, t = await self.new(), self.base()
        maps: list[tuple[tuple[str, str], ...]] = [
            (("a", "bc"),),
            (("ab", "c"),),
            (("a", "b,c=d"),),
            (("a", "b"), ("c", "d")),
            (("a", "b\nc"),),
            (("a", '"'),),
        ]
        for number, labels in enumerate(maps):
            await store.write([samples([(t, float(number))], labels=labels)])
        await self.visible(store)
        found = await store.latest("acme", "web-1", since_ms=0)
        assert {sample.labels[3:]: sample.value for sample in found} == {
            labels: float(number) for number, labels in enumerate(maps)
        }

    async def test_a_metric_is_found_with_and_without_its_prefix(self) -> None:
        """Stored names begin with ah_."""
        store, t = await self.new(), self.base()
        await store.write([samples([(t, 1.0)])])
        await self.visible(store)
        for name in ("cpu_percent", "ah_cpu_percent", "cpu.percent"):
            found = await store.range("acme", "web-1", name, start_ms=t, end_ms=t, step_ms=1_000)
            assert len(found) == 1, name

    async def test_latest_is_the_newest_sample_not_too_long_ago(self) -> None:
        """Ten minutes by default."""
        store, now = await self.new(), self.now_ms()
        await store.write([samples([(now - 60_000, 1.0), (now - 30_000, 2.0)])])
        await store.write([samples([(now - 660_000, 3.0)], name="ah_old")])
        await self.visible(store)
        [sample] = await store.latest("acme", "web-1")
        assert (sample.timestamp_ms, sample.value) == (now - 30_000, 2.0)
        assert len(await store.latest("acme", "web-1", since_ms=now - 700_000)) == 2

    async def test_a_range_from_the_beginning_of_time_to_a_day_to_come_is_answered(self) -> None:
        """By its own steps; also when it ends before anybody had a sample."""
        store, now = await self.new(), self.now_ms()
        day = 86_400_000
        await store.write([samples([(now - 60_000, 2.0)])])
        found = await self.read(store, start=1, end=now + 3 * day, step=2 * day)
        steps = -(-(now - 60_001) // (2 * day))
        assert found == [(1 + steps * 2 * day, 2.0)]
        assert await self.read(store, start=0, end=365 * day, step=day) == []

    async def test_ranges_that_nobody_should_ask_are_refused(self) -> None:
        """Too many steps, too short a step, an end before the start."""
        store, t = await self.new(), self.base()
        for start, end, step in (
            (t, t + 1_000 * RANGE_POINTS_MAX, 1_000),
            (t, t, 999),
            (t, t - 1, 1_000),
        ):
            with expect(ValueError):
                await self.read(store, start=start, end=end, step=step)
        await self.read(store, start=t, end=t + 1_000 * (RANGE_POINTS_MAX - 1), step=1_000)

    async def test_it_answers(self) -> None:
        """Ping returns."""
        await (await self.new()).ping()
