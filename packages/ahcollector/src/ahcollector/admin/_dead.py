"""Dead letters over the admin door: events the hub did not take, batches the store did not take.

``GET …/dead`` shows a page, oldest first: ``{"letters": […], "next_after": id or null}``, with the
parameters ``after`` and ``limit`` (1 to 500, 100 by default). ``POST …/dead/replay`` sends letters
again and ``DELETE …/dead`` forgets them for good. Both take a JSON body ``{"ids": [id, …]}``, or
``id`` parameters in the query; with neither, with an empty body or ``{"all": true}`` they mean all.
They answer ``{"replayed": n, "left": m}`` and ``{"deleted": n, "left": m}``, where ``left`` is how
many of the named letters are still dead. Of unknown ids nothing is said: they are gone already.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ahcollector.admin._body import json_body
from ahcollector.admin._views import dead_batch_view, dead_letter_view
from ahcollector.bus.base import Bus
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError, RequestRefusedError
from ahcollector.outbox.base import DeadLetter, Outbox
from ahcollector.worker.deadletter import DeadBatch, DeadBatches
from ahwire.status import Code

__all__ = ["DeadBatchDoors", "DeadLetterDoors"]

_PAGE_MAX = 500
_PAGE_DEFAULT = 100
_ID_CHARS_MAX = 200
_SHAPE = 'the body is neither {"ids": [...]}, with texts in the list, nor {"all": true}'


class DeadLetterDoors:
    """The dead letters of the outbox; None: this process has none."""

    def __init__(self, *, outbox: Outbox | None, clock: AsyncClock) -> None:
        self._outbox = outbox
        self._clock = clock

    async def page(self, request: Request) -> Response:
        """Show a page."""
        after, limit = _page_of(request)
        letters = await self._held().dead_letters(after=after, limit=limit)
        return _page([dead_letter_view(one) for one in letters], limit)

    async def replay(self, request: Request) -> Response:
        """Put letters back at the end of the queue."""
        ids, outbox = await _chosen(request), self._held()
        replayed = await outbox.replay(ids, self._clock.time())
        return JSONResponse({"replayed": replayed, "left": await self._left(ids)})

    async def purge(self, request: Request) -> Response:
        """Forget letters."""
        ids, outbox = await _chosen(request), self._held()
        deleted = await outbox.purge(ids)
        return JSONResponse({"deleted": deleted, "left": await self._left(ids)})

    async def _left(self, ids: frozenset[str] | None) -> int:
        outbox = self._held()
        if ids is None:
            return (await outbox.stats(self._clock.time())).dead
        left, after = 0, ""
        page: Sequence[DeadLetter] = ()
        while not after or len(page) == _PAGE_MAX:
            page = await outbox.dead_letters(after=after, limit=_PAGE_MAX)
            left += sum(letter.letter_id in ids for letter in page)
            if not page:
                break
            after = page[-1].letter_id
        return left

    def _held(self) -> Outbox:
        if self._outbox is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process has no outbox")
        return self._outbox


class DeadBatchDoors:
    """The worker's refused batches, and the bus that they go back to."""

    def __init__(self, *, dead_batches: DeadBatches | None, bus: Bus | None) -> None:
        self._dead_batches = dead_batches
        self._bus = bus

    async def page(self, request: Request) -> Response:
        """Show a page; of each batch what names it, not its samples."""
        after, limit = _page_of(request)
        letters = await self._held().letters()
        begin = next((i + 1 for i, one in enumerate(letters) if one.letter_id == after), 0)
        return _page([dead_batch_view(one) for one in letters[begin : begin + limit]], limit)

    async def replay(self, request: Request) -> Response:
        """Publish batches again, oldest first, as far as the bus has room.

        A batch leaves the dead letters only when it is on the bus; a crash in between publishes it
        twice, which changes nothing in the store.
        """
        held = self._held()
        if self._bus is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process has no bus to replay to")
        chosen = await self._named(await _chosen(request))
        replayed = 0
        for letter in chosen:
            try:
                await self._bus.publish(letter.batch)
            except BusError as error:
                if not replayed:
                    raise RequestRefusedError(Code.UNAVAILABLE, f"try later: {error}") from error
                break
            await held.take([letter.letter_id])
            replayed += 1
        return JSONResponse({"replayed": replayed, "left": len(chosen) - replayed})

    async def purge(self, request: Request) -> Response:
        """Forget batches."""
        held, ids = self._held(), await _chosen(request)
        return JSONResponse({"deleted": len(await held.take(ids)), "left": 0})

    async def _named(self, ids: frozenset[str] | None) -> list[DeadBatch]:
        letters = await self._held().letters()
        return [letter for letter in letters if ids is None or letter.letter_id in ids]

    def _held(self) -> DeadBatches:
        if self._dead_batches is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process keeps no refused batches")
        return self._dead_batches


def _page(views: list[dict[str, Any]], limit: int) -> Response:
    more = len(views) == limit
    return JSONResponse({"letters": views, "next_after": views[-1]["letter_id"] if more else None})


def _page_of(request: Request) -> tuple[str, int]:
    """Return after which letter a page begins, and how long it is at most."""
    given = request.query_params.get("limit", str(_PAGE_DEFAULT))
    if not (given.isascii() and given.isdigit() and len(given) <= 4 and int(given) > 0):
        raise _bad(f"limit is {given[:40]!r}, not a number from 1 to {_PAGE_MAX}")
    return request.query_params.get("after", ""), min(int(given), _PAGE_MAX)


async def _chosen(request: Request) -> frozenset[str] | None:
    """Return which letters a request names, None for all; a name it does not know is an error."""
    unknown = set(request.query_params) - {"id"}
    if unknown:
        raise _bad(f"unknown parameter {min(unknown)[:40]!r}: name letters with id")
    named = request.query_params.getlist("id")
    fields = _fields(await json_body(request))
    listed = fields.get("ids", [])
    if not (
        isinstance(listed, list)
        and all(isinstance(one, str) and len(one) <= _ID_CHARS_MAX for one in listed)
        and fields.get("all", True) is True
        and not ("all" in fields and named)
    ):
        raise _bad(_SHAPE)
    # A list that is empty names none; only saying nothing means all.
    return frozenset([*named, *listed]) if named or "ids" in fields else None


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or set(fields) not in ({"ids"}, {"all"}, set()):
        raise _bad(_SHAPE)
    return fields


def _bad(message: str) -> RequestRefusedError:
    return RequestRefusedError(Code.BAD_REQUEST, message)
