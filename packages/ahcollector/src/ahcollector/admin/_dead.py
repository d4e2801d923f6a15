"""Dead letters over the admin door: events, entries of the bus, batches the store did not take.

``GET …/dead`` shows a page, oldest first: ``{"letters": […], "next_after": id or null}``, with the
parameters ``after`` and ``limit`` (1 to 500, 100 by default). ``POST …/dead/replay`` sends letters
again and ``DELETE …/dead`` forgets them for good. Both take a JSON body ``{"ids": [id, …]}`` or
``{"all": true}``, or ``id`` parameters in the query. Where nothing is said, a replay means all; to
forget all must be said, since what is forgotten is not brought back. They answer ``{"replayed": n,
"left": m}`` and ``{"deleted": n, "left": m}``, where ``left`` is how many of the named letters are
still dead. Of unknown ids nothing is said: they are gone already.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from ahcollector.admin._answers import JsonLine
from ahcollector.admin._body import Bodies
from ahcollector.admin._params import LETTER_ID_CHARS_MAX, LETTER_PAGE, PAGE_MAX, page_asked
from ahcollector.admin._views import dead_batch_view, dead_entry_view, dead_letter_view
from ahcollector.bus.base import Bus, BusDeadLetters
from ahcollector.clock import AsyncClock
from ahcollector.errors import RequestRefusedError
from ahcollector.outbox.base import Outbox
from ahcollector.worker.deadletter import DeadBatches, replay_dead_batches
from ahwire.status import Code

__all__ = ["DeadBatchDoors", "DeadEntryDoors", "DeadLetterDoors"]

_SHAPE = 'the body is neither {"ids": [...]}, with texts in the list, nor {"all": true}'
_NOTHING_SAID = 'it is not said what to forget: send {"ids": [...]}, or {"all": true} for all of it'


class _Letter(Protocol):
    @property
    def letter_id(self) -> str: ...


class DeadLetterDoors:
    """The dead letters of the outbox; None: this process has none."""

    def __init__(self, *, outbox: Outbox | None, bodies: Bodies, clock: AsyncClock) -> None:
        self._bodies = bodies
        self._outbox = outbox
        self._clock = clock

    async def page(self, request: Request) -> Response:
        """Show a page."""
        page = page_asked(request, default=LETTER_PAGE)
        letters = await self._held().dead_letters(after=page.after, limit=page.limit)
        return _page([dead_letter_view(one) for one in letters], page.limit)

    async def replay(self, request: Request) -> Response:
        """Put letters back at the end of the queue."""
        ids, outbox = await _chosen(request, self._bodies), self._held()
        replayed = await outbox.replay(ids, self._clock.time())
        return JsonLine({"replayed": replayed, "left": await self._left(ids)})

    async def purge(self, request: Request) -> Response:
        """Forget letters."""
        outbox, ids = self._held(), await _doomed(request, self._bodies)
        deleted = await outbox.purge(ids)
        return JsonLine({"deleted": deleted, "left": await self._left(ids)})

    async def _left(self, ids: frozenset[str] | None) -> int:
        outbox = self._held()
        if ids is None:
            return (await outbox.stats(self._clock.time())).dead
        return await _count_left(
            ids, lambda after: outbox.dead_letters(after=after, limit=PAGE_MAX)
        )

    def _held(self) -> Outbox:
        if self._outbox is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process has no outbox")
        return self._outbox


class DeadEntryDoors:
    """The dead letters of the bus; None: it keeps none."""

    def __init__(self, *, dead: BusDeadLetters | None, bodies: Bodies) -> None:
        self._bodies = bodies
        self._dead = dead

    async def page(self, request: Request) -> Response:
        """Show a page; of each entry what names it, not its samples."""
        page, dead = page_asked(request, default=LETTER_PAGE), self._held()
        views: list[dict[str, Any]] = []
        after = page.after
        # The bus gives fewer where they are large; what is shown of them is small.
        while (left := page.limit - len(views)) and (
            letters := await dead.letters(after=after, limit=left)
        ):
            after = letters[-1].letter_id
            views += map(dead_entry_view, letters)
        return _page(views, page.limit)

    async def replay(self, request: Request) -> Response:
        """Publish entries again as far as the bus has room."""
        ids, dead = await _chosen(request, self._bodies), self._held()
        replayed = await dead.replay(ids)
        return JsonLine({"replayed": replayed, "left": await self._left(ids)})

    async def purge(self, request: Request) -> Response:
        """Forget entries."""
        dead, ids = self._held(), await _doomed(request, self._bodies)
        deleted = await dead.purge(ids)
        return JsonLine({"deleted": deleted, "left": await self._left(ids)})

    async def _left(self, ids: frozenset[str] | None) -> int:
        dead = self._held()
        if ids is None:
            return await dead.count()
        return await _count_left(ids, lambda after: dead.letters(after=after, limit=PAGE_MAX))

    def _held(self) -> BusDeadLetters:
        if self._dead is None:
            raise RequestRefusedError(
                Code.NOT_FOUND, "the bus of this process keeps no dead letters"
            )
        return self._dead


class DeadBatchDoors:
    """The worker's refused batches, and the bus that they go back to."""

    def __init__(
        self, *, dead_batches: DeadBatches | None, bus: Bus | None, bodies: Bodies
    ) -> None:
        self._bodies = bodies
        self._dead_batches = dead_batches
        self._bus = bus

    async def page(self, request: Request) -> Response:
        """Show a page; of each batch what names it, not its samples."""
        page = page_asked(request, default=LETTER_PAGE)
        letters = await self._held().letters(after=page.after, limit=page.limit)
        return _page([dead_batch_view(one) for one in letters], page.limit)

    async def replay(self, request: Request) -> Response:
        """Publish batches again, oldest first, as far as the bus has room.

        A batch leaves the dead letters only when it is on the bus; a crash in between publishes it
        twice, which changes nothing in the store.
        """
        held = self._held()
        if self._bus is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process has no bus to replay to")
        ids = await _chosen(request, self._bodies)
        replayed = await replay_dead_batches(held, self._bus.publish, ids)
        return JsonLine({"replayed": replayed, "left": await self._left(ids)})

    async def purge(self, request: Request) -> Response:
        """Forget batches."""
        held, ids = self._held(), await _doomed(request, self._bodies)
        deleted = await held.purge(ids)
        return JsonLine({"deleted": deleted, "left": await self._left(ids)})

    async def _left(self, ids: frozenset[str] | None) -> int:
        held = self._held()
        if ids is None:
            return await held.count()
        return await _count_left(ids, lambda after: held.letters(after=after, limit=PAGE_MAX))

    def _held(self) -> DeadBatches:
        if self._dead_batches is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process keeps no refused batches")
        return self._dead_batches


def _page(views: list[dict[str, Any]], limit: int) -> Response:
    more = len(views) == limit
    return JsonLine({"letters": views, "next_after": views[-1]["letter_id"] if more else None})


async def _count_left(
    ids: Collection[str], page_behind: Callable[[str], Awaitable[Sequence[_Letter]]]
) -> int:
    """Return how many of `ids` are among letters that are read page by page."""
    left, after = 0, ""
    while True:
        page = await page_behind(after)
        left += sum(letter.letter_id in ids for letter in page)
        if not page:
            return left
        after = page[-1].letter_id


async def _chosen(request: Request, bodies: Bodies) -> frozenset[str] | None:
    """Return which letters a request means, None for all: where it says nothing, too."""
    return (await _said(request, bodies))[0]


async def _doomed(request: Request, bodies: Bodies) -> frozenset[str] | None:
    """Return which letters are to be forgotten, None for all.

    A body is easily lost on the way, and some clients send none with a DELETE: what says nothing
    deletes nothing.
    """
    ids, said = await _said(request, bodies)
    if not said:
        raise _bad(_NOTHING_SAID)
    return ids


async def _said(request: Request, bodies: Bodies) -> tuple[frozenset[str] | None, bool]:
    """Return which letters a request names, None for all, and whether it says anything."""
    named = request.query_params.getlist("id")
    fields = _fields(await bodies.read(request))
    listed = fields.get("ids", [])
    if not (
        isinstance(listed, list)
        and all(isinstance(one, str) and len(one) <= LETTER_ID_CHARS_MAX for one in listed)
        and fields.get("all", True) is True
        and all(len(one) <= LETTER_ID_CHARS_MAX for one in named)
        and not ("all" in fields and named)
    ):
        raise _bad(_SHAPE)
    # A list that is empty names none.
    ids = frozenset([*named, *listed]) if named or "ids" in fields else None
    return ids, ids is not None or "all" in fields


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
