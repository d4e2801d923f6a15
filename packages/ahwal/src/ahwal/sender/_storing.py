"""From built batches to the backlog and the books, and to who listens."""

import logging
from collections.abc import Callable

from ahwal.sender._backlog import Backlog
from ahwal.sender._batch import Appended, Built, to_appended
from ahwal.sender._books import Books


class Storing:
    """Puts batches into the backlog and into the books, in one step.

    Args:
        backlog: Where they go.
        books: Count them.
        logger: The sender's logger.
    """

    def __init__(self, *, backlog: Backlog, books: Books, logger: logging.Logger) -> None:
        self._backlog = backlog
        self._books = books
        self._log = logger

    def store(self, built: Built) -> bool:
        """Take all batches and count what was left out; return whether the disk has them all."""
        on_disk = True
        with self._backlog.lock:
            for reason, points in built.dropped.items():
                self._books.refuse(reason, points)
            for part in built.batches:
                failure = self._backlog.last_error
                key = self._backlog.append(part.data)
                on_disk = on_disk and key.durable
                self._books.appended(key, part.points)
                self._report_disk(failure)
        return on_disk

    def _report_disk(self, before: Exception | None) -> None:
        now = self._backlog.last_error
        if now is not None and before is None:
            self._log.error("the disk refused a batch, it waits in memory: %s", now)
        elif now is None and before is not None:
            self._log.info("the disk takes batches again")


def guarded_listener(
    on_appended: Callable[[Appended], None] | None, logger: logging.Logger
) -> Callable[[bytes], None]:
    """Return what tells a listener of a batch's bytes; it never raises."""

    def tell(data: bytes) -> None:
        if on_appended is None:
            return
        try:
            on_appended(to_appended(data))
        except Exception:
            # It may raise anything; the batch is on disk all the same.
            logger.exception("the listener for appended batches failed")

    return tell
