"""The dead letters of the bus on NATS: a stream, bounded by their number and their bytes.

A letter has the bytes of its entry, and the headers ``Ah-Shard``, ``Ah-Reason`` and ``Ah-At`` (Unix
seconds). The stream takes no more than it may hold; whoever puts a letter then deletes the oldest,
and so knows how many went.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, unquote

from ahcollector.bus._jetstream_api import FULL, JetStreamApi, JetStreamRefusedError, Kept
from ahcollector.bus._jetstream_setup import Names
from ahcollector.bus._letter_page import LetterPage, letter_of
from ahcollector.bus.base import BusDeadLetter, shard_for
from ahcollector.errors import BusError, BusFull

__all__ = ["JetStreamBusDeadLetters"]

_REASON_CHARACTERS_MAX: Final = 1_000
_PLACE_DIGITS_MAX: Final = 18
_ID: Final = "Nats-Msg-Id"


class JetStreamBusDeadLetters:
    """`BusDeadLetters` on NATS, shared by all processes.

    A letter that is replayed leaves when its batch is on the bus; when that is repeated within two
    minutes, because the process ended in between, it is put there once all the same.

    Args:
        admit: Raises when a shard takes nothing now.
        put: Puts an entry on a shard under a message id.
    """

    def __init__(
        self,
        *,
        api: JetStreamApi,
        names: Names,
        admit: Callable[[int], Awaitable[None]],
        put: Callable[[int, bytes, str], Awaitable[None]],
    ) -> None:
        self._api = api
        self._names = names
        self._admit = admit
        self._put = put

    async def bury(
        self, *, shard: int, seq: int, data: bytes, reason: str, now: float, dead_max: int
    ) -> int:
        """Put a letter and return how many older ones made room for it.

        Put again within ten minutes it is there once.
        """
        digest = blake2b(data, digest_size=8).hexdigest()
        headers = {
            _ID: f"{seq}-{digest}",
            "Ah-Shard": str(shard),
            # A header is a line.
            "Ah-Reason": quote(reason[:_REASON_CHARACTERS_MAX], safe=" :,.()'/=", errors="replace"),
            "Ah-At": repr(now),
        }
        dropped = 0
        while (state := await self._state())["messages"] >= dead_max:
            dropped += await self._api.delete(self._names.dead, state["first_seq"])
        while True:
            try:
                await self._api.put(self._names.dead_subject, data, headers)
            except JetStreamRefusedError as error:
                if error.number != FULL:
                    raise
            else:
                return dropped
            state = await self._state()
            if not state["messages"]:
                raise BusError(
                    f"bus: stream {self._names.dead} of NATS takes no letter although it is "
                    "empty: raise its max_bytes"
                )
            dropped += await self._api.delete(self._names.dead, state["first_seq"])

    async def _state(self) -> dict[str, int]:
        info = await self._api.ask(f"STREAM.INFO.{self._names.dead}")
        state = info.get("state", {})
        return {name: int(state.get(name, 0)) for name in ("messages", "first_seq", "last_seq")}

    async def letters(self, *, after: str = "", limit: int = 100) -> list[BusDeadLetter]:
        """Return a page. An `after` that is no name of a letter is the beginning."""
        page = LetterPage(limit=limit)
        place = (_place(after) or 0) + 1
        while not page.is_full():
            kept = await self._api.get(
                self._names.dead, seq=place, next_by_subj=self._names.dead_subject
            )
            if kept is None:
                break
            page.add(_letter(kept), entry_bytes=len(kept.data))
            place = kept.seq + 1
        return page.letters

    async def replay(self, letter_ids: Collection[str] | None) -> int:
        """Publish letters again as far as there is room.

        Without names it ends with the last letter that is there when it begins.

        Raises:
            BusError: There is no room for the first of them, the bus is closed, or NATS gives no
                answer.
        """
        replayed = 0
        place = 0
        places = None if letter_ids is None else _places(letter_ids)
        # What comes meanwhile comes behind: what fails each time would be replayed for ever.
        last = (await self._state())["last_seq"]
        while True:
            if places is None:
                kept = await self._api.get(
                    self._names.dead, seq=place + 1, next_by_subj=self._names.dead_subject
                )
                if kept is None or kept.seq > last:
                    return replayed
            elif not places:
                return replayed
            else:
                kept = await self._api.get(self._names.dead, seq=places.pop(0))
                if kept is None:
                    continue
            place = kept.seq
            batch = _letter(kept).batch
            if batch is None:
                continue
            shard = shard_for(batch.server_id)
            try:
                await self._admit(shard)
                # Not under the id that it had: it would be taken for what is long gone.
                await self._put(shard, kept.data, f"replay-{kept.seq}-{kept.time}")
            except BusFull:
                if not replayed:
                    raise
                return replayed
            replayed += await self._api.delete(self._names.dead, kept.seq)

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters."""
        if letter_ids is None:
            answer = await self._api.ask(f"STREAM.PURGE.{self._names.dead}")
            return int(answer.get("purged", 0))
        purged = 0
        for place in _places(letter_ids):
            purged += await self._api.delete(self._names.dead, place)
        return purged

    async def count(self) -> int:
        """Return how many there are."""
        return (await self._state())["messages"]


def _place(letter_id: str) -> int | None:
    plain = letter_id.isascii() and letter_id.isdigit() and len(letter_id) <= _PLACE_DIGITS_MAX
    return int(letter_id) if plain and str(int(letter_id)) == letter_id else None


def _places(letter_ids: Collection[str]) -> list[int]:
    return sorted({place for one in letter_ids if (place := _place(one))})


def _letter(kept: Kept) -> BusDeadLetter:
    return letter_of(
        str(kept.seq),
        kept.data,
        shard=kept.headers.get("Ah-Shard", ""),
        reason=unquote(kept.headers.get("Ah-Reason", "")),
        at=kept.headers.get("Ah-At", ""),
    )
