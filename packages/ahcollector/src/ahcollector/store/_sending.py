"""Sends samples to VictoriaMetrics in bodies that what stands in between lets through."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ahcollector.bus.base import StoredSeries
from ahcollector.clock import AsyncClock
from ahcollector.errors import TemporaryStoreError
from ahcollector.store._victoria_http import BodyTooLargeError, VictoriaHttp
from ahcollector.store._write_forms import WriteForm

__all__ = ["Sending"]

# For so long bodies stay small, before one of full length is tried again.
_SMALL_SECONDS: Final = 600.0

_log = logging.getLogger("ahcollector.store")


class Sending:
    """Writes, in bodies half as long wherever one is answered 413.

    Proxies have limits of their own (nginx lets 1 MB through), and no setting that VictoriaMetrics
    shows tells them. What was sent before a 413 is sent once more: the same samples at the same
    times, which change nothing. Bodies stay small for ten minutes.

    Args:
        form: How samples become bodies of full length.
        http: Takes them.
        clock: Tells how long bodies are small.
    """

    def __init__(self, *, form: WriteForm, http: VictoriaHttp, clock: AsyncClock) -> None:
        self._full = form
        self._form = form
        self._http = http
        self._clock = clock
        self._small_since = 0.0

    async def send(self, kept: Sequence[StoredSeries]) -> int:
        """Write series; return how many samples they have.

        Raises:
            PermanentStoreError: VictoriaMetrics refuses them.
            TemporaryStoreError: Nothing says that they were all taken.
        """
        if self._clock.monotonic() - self._small_since >= _SMALL_SECONDS:
            self._form = self._full
        form = self._form
        while True:
            try:
                return await self._send(form, kept)
            except BodyTooLargeError as error:
                smaller = form.smaller()
                if smaller is None:
                    self._form = self._full
                    raise TemporaryStoreError(
                        f"{error}; also bodies of one series and some points are too long for it"
                    ) from error
                if form is self._full:
                    _log.warning(
                        "something in front of VictoriaMetrics takes no body of full length: "
                        "samples go in shorter ones for ten minutes",
                        extra={"error": str(error)},
                    )
                form = smaller
                self._form, self._small_since = form, self._clock.monotonic()

    async def _send(self, form: WriteForm, kept: Sequence[StoredSeries]) -> int:
        samples = 0
        for body in form.bodies(kept):
            await self._http.post_body(form.path, body.data, form.headers)
            samples += body.samples
        return samples
