"""What every `DeadBatches` does."""

from __future__ import annotations

import math

import attrs

from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import BusFull
from ahcollector.testing._contracts._expect import expect
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker.deadletter import DeadBatches, replay_dead_batches

__all__ = ["DeadBatchesContract"]

_NOW = 1_790_000_000.0
_ODD = SampleBatch(
    company_id="acme",
    server_id="web-1",
    agent_id="a",
    request_id="00ff",
    received_at_ms=5,
    series=(
        StoredSeries(
            labels=(("__name__", "ah_x"), ("a", 'ü\n"\u2028\x00')),
            points=((1, math.inf), (2, -math.inf), (3, -0.0), (4, 5e-324)),
        ),
        StoredSeries(labels=(("__name__", "ah_y"), ("a", "")), points=()),
    ),
)


class DeadBatchesContract:
    """The suite; derive from it and give `new` and `reopen`."""

    async def new(
        self,
        *,
        letters_max: int = 1_000,
        bytes_max: int = 64 << 20,
        retention_seconds: float = 30 * 86_400.0,
    ) -> DeadBatches:
        """Return one that holds nothing, with these bounds."""
        raise NotImplementedError

    async def reopen(self, dead: DeadBatches) -> DeadBatches:
        """Return what another process finds where `dead` wrote; a kill came between them.

        What is gone with its process returns `dead` itself.
        """
        raise NotImplementedError

    async def put(self, dead: DeadBatches, *numbers: int, now: float = _NOW) -> None:
        """Put numbered batches, one after the other."""
        for number in numbers:
            await dead.put(batch_of(number), f"no {number}", now)

    async def held(self, dead: DeadBatches) -> list[int]:
        """Return the numbers of the batches that are held, in order, read one by one."""
        found: list[int] = []
        for letter in await dead.letters():
            batch = await dead.read(letter.letter_id)
            assert batch is not None
            assert batch.request_id == letter.request_id
            found.append(int(batch.request_id, 16))
        return found

    async def test_a_batch_is_kept_whole_with_its_reason(self) -> None:
        """Also odd texts and values that JSON does not have, and for the next process."""
        dead = await self.new()
        await dead.put(_ODD, "refused: why ü\n", _NOW + 0.25)
        assert dead.total == 1
        again = await self.reopen(dead)
        [letter] = await again.letters()
        assert (letter.reason, letter.dead_at) == ("refused: why ü\n", _NOW + 0.25)
        assert (letter.company_id, letter.server_id, letter.agent_id) == ("acme", "web-1", "a")
        assert (letter.request_id, letter.received_at_ms, letter.samples) == ("00ff", 5, 4)
        assert letter.size_bytes > 0
        found = await again.read(letter.letter_id)
        assert found == _ODD
        assert repr(found) == repr(_ODD), "the sign of a zero, too"

    async def test_a_value_that_is_no_number_is_kept(self) -> None:
        """NaN is equal to nothing, not to itself."""
        dead = await self.new()
        series = StoredSeries(labels=(("__name__", "ah_x"),), points=((1, math.nan),))
        await dead.put(attrs.evolve(_ODD, series=(series,)), "no", _NOW)
        [letter] = await dead.letters()
        found = await dead.read(letter.letter_id)
        assert found is not None
        [(_, value)] = found.series[0].points
        assert math.isnan(value)

    async def test_the_oldest_go_when_there_are_too_many(self) -> None:
        """They are counted."""
        dead = await self.new(letters_max=3)
        await self.put(dead, *range(5))
        assert await self.held(dead) == [2, 3, 4]
        assert (dead.total, dead.dropped, await dead.count()) == (5, 2, 3)
        assert await self.held(await self.reopen(dead)) == [2, 3, 4]

    async def test_the_oldest_go_when_they_are_too_large(self) -> None:
        """The newest stay, as many as there is room for."""
        dead = await self.new()
        await self.put(dead, 0)
        [letter] = await dead.letters()
        dead = await self.new(bytes_max=5 * letter.size_bytes)
        await self.put(dead, *range(20))
        letters = await dead.letters()
        assert 3 <= len(letters) <= 5
        assert sum(one.size_bytes for one in letters) <= 5 * letter.size_bytes
        assert await self.held(dead) == list(range(20))[-len(letters) :]
        assert dead.dropped == 20 - len(letters)

    async def test_a_batch_larger_than_all_the_room_drives_nobody_out(self) -> None:
        """It could not be kept anyway, and is counted as dropped."""
        dead = await self.new(bytes_max=4_000)
        await self.put(dead, 1)
        series = StoredSeries(
            labels=(("__name__", "ah_x"),),
            points=tuple((n * n, math.sin(n)) for n in range(4_000)),
        )
        await dead.put(attrs.evolve(_ODD, series=(series,)), "no", _NOW)
        assert await self.held(dead) == [1]
        assert dead.dropped == 1

    async def test_old_letters_go_with_the_next(self) -> None:
        """One that is exactly as old as may be stays."""
        dead = await self.new(retention_seconds=100)
        await self.put(dead, 1)
        await self.put(dead, 2, now=_NOW + 100)
        assert await self.held(dead) == [1, 2]
        await self.put(dead, 3, now=_NOW + 100.5)
        assert await self.held(dead) == [2, 3]
        assert dead.dropped == 1

    async def test_the_same_batch_is_one_letter_the_newest(self) -> None:
        """So a put whose outcome is unknown may be repeated (C10); nothing is dropped for it."""
        dead = await self.new()
        await self.put(dead, 1, 2, 3)
        first, second, third = await dead.letters()
        await dead.put(batch_of(1), "again", _NOW + 1)
        *others, last = await dead.letters()
        assert others == [second, third]
        assert (last.reason, last.dead_at) == ("again", _NOW + 1)
        assert last.letter_id != first.letter_id
        assert await dead.read(first.letter_id) is None
        assert dead.dropped == 0
        again = await self.reopen(dead)
        await self.put(again, 2)
        assert await self.held(again) == [3, 1, 2]

    async def test_pages_follow_each_other(self) -> None:
        """A letter that is gone stands where it stood; what is no id is the beginning."""
        dead = await self.new()
        await self.put(dead, *range(7))
        letters = await dead.letters()
        assert await dead.letters(limit=3) == letters[:3]
        assert await dead.letters(after=letters[2].letter_id, limit=3) == letters[3:6]
        assert await dead.letters(after=letters[5].letter_id, limit=3) == letters[6:]
        assert await dead.letters(after=letters[6].letter_id) == []
        await dead.purge([letters[2].letter_id])
        assert await dead.letters(after=letters[2].letter_id, limit=2) == letters[3:5]
        for nonsense in ("no id", "-1", "1.5", "²", "9" * 60 + "x", "(1", "+inf", "nan"):
            assert await dead.letters(after=nonsense, limit=1) == letters[:1]
            assert await dead.read(nonsense) is None
            assert await dead.purge([nonsense]) == 0
        assert await dead.letters(limit=0) == []
        assert await dead.letters(after="9" * 200) == []

    async def test_many_letters(self) -> None:
        """More than are read, or deleted, in one step."""
        dead = await self.new(letters_max=5_000)
        for number in range(1_203):
            await dead.put(_small(number), "no", _NOW)
        ids = [letter.letter_id for letter in await dead.letters(limit=1_203)]
        assert len(set(ids)) == 1_203
        assert ids == sorted(ids, key=int)
        assert await dead.purge(ids[:1_100]) == 1_100
        assert [one.letter_id for one in await dead.letters(limit=2_000)] == ids[1_100:]
        for number in range(1_100):
            await dead.put(_small(number), "no", _NOW)
        assert await dead.purge(None) == 1_203
        assert await dead.count() == 0

    async def test_letters_are_purged_once(self) -> None:
        """And of unknown ones nothing is said."""
        dead = await self.new()
        await self.put(dead, 0, 1, 2)
        first = (await dead.letters())[0].letter_id
        assert await dead.purge([first, "unknown", first]) == 1
        assert await dead.read(first) is None
        assert await dead.purge([first]) == 0
        assert await dead.purge([]) == 0
        assert await self.held(await self.reopen(dead)) == [1, 2]
        assert await dead.purge(None) == 2
        assert await dead.letters() == []
        assert await dead.purge(None) == 0
        assert await self.held(await self.reopen(dead)) == []
        assert dead.dropped == 0, "what somebody asked for is not dropped"

    async def test_ids_are_not_used_again(self) -> None:
        """Whoever holds an old one must not delete another letter with it."""
        dead = await self.new()
        await self.put(dead, 1)
        [old] = await dead.letters()
        await dead.purge(None)
        await self.put(dead, 2)
        again = await self.reopen(dead)
        await self.put(again, 3, now=_NOW - 3_600)
        letters = await again.letters()
        assert [int(one.request_id, 16) for one in letters] == [2, 3]
        ids = [int(one.letter_id) for one in (old, *letters)]
        assert ids == sorted(set(ids))

    async def test_a_replay_publishes_and_removes_letter_by_letter(self) -> None:
        """Oldest first, as far as the bus has room; without room for the first it says so."""
        dead = await self.new()
        await self.put(dead, *range(5))
        first, second, *_ = await dead.letters()
        published: list[int] = []
        room = 3

        async def publish(batch: SampleBatch) -> None:
            if len(published) >= room:
                raise BusFull("no room")
            assert await dead.count() + len(published) == 5, "each leaves before the next goes"
            published.append(int(batch.request_id, 16))

        named = [second.letter_id, first.letter_id, "unknown"]
        assert await replay_dead_batches(dead, publish, named) == 2
        assert published == [0, 1]
        assert await replay_dead_batches(dead, publish) == 1
        assert await self.held(await self.reopen(dead)) == [3, 4]
        with expect(BusFull):
            await replay_dead_batches(dead, publish)
        room = 9
        assert await replay_dead_batches(dead, publish, []) == 0
        assert await replay_dead_batches(dead, publish) == 2
        assert published == [0, 1, 2, 3, 4]
        assert await replay_dead_batches(dead, publish) == 0

    async def test_what_is_refused_again_while_it_is_replayed_is_not_lost(self) -> None:
        """The worker may put it back before the replay has removed it; and the replay ends."""
        dead = await self.new()
        await self.put(dead, 1, 2, 3)

        async def publish(batch: SampleBatch) -> None:
            await dead.put(batch, "refused again", _NOW + 1)

        assert await replay_dead_batches(dead, publish) == 3
        assert await self.held(dead) == [1, 2, 3]
        assert {letter.reason for letter in await dead.letters()} == {"refused again"}


def _small(number: int) -> SampleBatch:
    return attrs.evolve(_ODD, request_id=f"{number:x}", series=())
