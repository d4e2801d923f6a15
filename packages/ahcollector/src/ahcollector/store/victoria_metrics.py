"""Time series in VictoriaMetrics (single node), over its HTTP interface.

What it adds to the law of `ahcollector.store`:

* **Visible comes later.** A new sample of a known series can be read after about a second, a new
  series after about ten. `flush` shows everything at once, for tests and before a deletion.
* **Visible is not durable.** What was written in the last seconds before a kill is lost although it
  could be read; an orderly stop loses nothing. `epoch` tells one start from another, and a `Worker`
  with `durable_after_seconds` writes again what a start may have cost.
* **Once only with the flag.** A sample written twice is one only with
  ``-dedup.minScrapeInterval=1ms``; `check` tells when it is missing.
* **Values are decimal.** Integers up to 2**53 and numbers of up to nine digits come back as they
  were; others to about twelve significant digits. -0.0 and what is nearer to zero than about 1e-290
  become 0. Beside a very large value (1e18 times as large) those of the same series may become 0.
* Long ranges are answered from rollups, where rules record them (`rollup_rules`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ahcollector import metrics as names
from ahcollector.bus.base import SampleBatch
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.store import _queries as queries
from ahcollector.store import _victoria_answers as answers
from ahcollector.store._deletion import Deletion
from ahcollector.store._lines import Window, check_labels, kept_series
from ahcollector.store._range_plan import Source, range_expression, range_sources
from ahcollector.store._refusals import check_range, check_tenant
from ahcollector.store._rollup_rules import rollup_rules
from ahcollector.store._selectors import selector
from ahcollector.store._sending import Sending
from ahcollector.store._start_check import AHEAD_SECONDS_MAX, PROBE_NAME, StartCheck
from ahcollector.store._victoria_http import Transport, VictoriaHttp, authorization, understood
from ahcollector.store._victoria_page import DropWatch, StorePage, read_page
from ahcollector.store._victoria_start import StartWatch
from ahcollector.store._write_forms import ImportForm, RemoteWriteForm, WriteForm
from ahcollector.store.base import Aggregate, LatestSample, RangeSeries, SeriesInfo
from ahwire.limits import DEFAULT, Limits
from ahwire.names import metric_name

__all__ = ["VictoriaMetricsStore", "rollup_rules"]

_PREFIX: Final = "ah_"
_LATEST_MS: Final = 600_000
# It drops what is further ahead; and no sample is newer, so queries for all end there.
_AHEAD_MS: Final = round(AHEAD_SECONDS_MAX * 1000)
# To here the newest sample is looked for among all samples, in one step that nothing can divide.
_ALL_SAMPLES_MS: Final = 3_600_000


class VictoriaMetricsStore:
    """`Store` in VictoriaMetrics. Use as an async context manager, or `aclose` it.

    What is not stored for another reason than a refusal is counted by reason in `dropped` and in
    the metrics: ``non_finite``, ``too_old``, ``in_future`` (over two days ahead). `drops` tells
    what VictoriaMetrics says that it dropped.

    Args:
        url: Where it is, for example ``http://127.0.0.1:8428``; a path is kept.
        long_url: Where rollups of an hour are kept, if elsewhere.
        username: For basic auth; empty: none.
        password: For basic auth. Kept out of every text, as the token is.
        bearer: Token to show instead.
        tls_ca_file: PEM bundle to trust instead of the system's.
        write_protocol: ``import`` or ``remote_write`` (needs the extra ``[http]``).
        clock: Tells how old a range is, and the time of `check`.
        metrics: Where to count.
        timeout_seconds: Bound on a whole call.
        retention_seconds: How long VictoriaMetrics keeps samples, as its ``-retentionPeriod`` says:
            what is older is dropped there in silence, and here with a count. None: not asked.
        step_seconds_min: The least step of a range.
        line_bytes_max: A line of an import is shorter; VictoriaMetrics skips longer ones silently.
        body_bytes_max: About how much a request carries, before compression.
        response_bytes_max: How much of an answer is read.
        connections_max: Connections at one time.
        transport: What carries requests, for tests and for special networks.

    Raises:
        ValueError: A URL is not http(s), the protocol is unknown, or what it shows for itself
            cannot be in a header.
        ImportError: The extra is missing.
        OSError: `tls_ca_file` cannot be read or holds no certificate.
    """

    def __init__(
        self,
        *,
        url: str,
        long_url: str | None = None,
        username: str = "",
        password: str = "",
        bearer: str = "",
        tls_ca_file: Path | None = None,
        write_protocol: str = "import",
        clock: AsyncClock | None = None,
        metrics: Metrics | None = None,
        timeout_seconds: float = 10.0,
        retention_seconds: float | None = None,
        step_seconds_min: float = 30.0,
        line_bytes_max: int = 8_000_000,
        body_bytes_max: int = 16_000_000,
        response_bytes_max: int = 64 * 1024 * 1024,
        connections_max: int = 20,
        transport: Transport | None = None,
    ) -> None:
        shown = authorization(username=username, password=password, bearer=bearer)

        def http(where: str) -> VictoriaHttp:
            return VictoriaHttp(
                url=where,
                authorization=shown,
                tls_ca_file=tls_ca_file,
                timeout_seconds=timeout_seconds,
                response_bytes_max=response_bytes_max,
                connections_max=connections_max,
                transport=transport,
            )

        self._http = http(url)
        self._long = self._http if long_url is None else http(long_url)
        self._clock = clock if clock is not None else SystemClock()
        self._start = StartWatch(ask=partial(self._http.get, "/metrics"), clock=self._clock)
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._retention_seconds = retention_seconds
        self._step_ms_min = round(step_seconds_min * 1000)
        self._form: WriteForm
        if write_protocol == "import":
            self._form = ImportForm(line_bytes_max=line_bytes_max, body_bytes_max=body_bytes_max)
        elif write_protocol == "remote_write":
            self._form = RemoteWriteForm(body_bytes_max=body_bytes_max)
        else:
            raise ValueError(
                f"write_protocol is {write_protocol!r}: it may be import or remote_write"
            )
        self._sending = Sending(form=self._form, http=self._http, clock=self._clock)
        self.dropped: Counter[str] = Counter()
        self._deletion = Deletion(
            stores=(self._http, self._long) if long_url else (self._http,),
            flush=self.flush,
            start_ms=queries.EARLIEST_MS,
            end_ms=lambda: self._now_ms() + _AHEAD_MS,
        )
        self.drops = DropWatch(page=self._page, clock=self._clock, metrics=self._metrics)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; no call may be made afterwards."""
        await self._http.aclose()
        if self._long is not self._http:
            await self._long.aclose()

    def _now_ms(self) -> int:
        return round(self._clock.time() * 1000)

    # --- writing

    async def write(self, batches: Sequence[SampleBatch]) -> None:
        """Store samples; see `Writer.write`. Cancelled, it may have stored some of them.

        Raises:
            PermanentStoreError: Also for a series with more than 30 labels in all, one that is
                empty, named twice or too long: before any call is made.
        """
        for batch in batches:
            check_tenant(batch)
            check_labels(batch)
        dropped: Counter[str] = Counter()
        kept = list(kept_series(batches, self._window(), dropped))
        samples = await self._sending.send(kept)
        # Counted once, when the whole is done: a write that fails is made again whole.
        self._metrics.inc(names.TSDB_SAMPLES_WRITTEN, samples)
        for reason, count in dropped.items():
            self._metrics.inc(names.TSDB_SAMPLES_DROPPED, count, reason=reason)
        self.dropped += dropped

    def _window(self) -> Window:
        now_ms = self._now_ms()
        oldest_ms = 0
        if self._retention_seconds is not None:
            oldest_ms = max(0, now_ms - round(self._retention_seconds * 1000))
        return Window(oldest_ms=oldest_ms, newest_ms=now_ms + _AHEAD_MS)

    # --- queries

    async def range(
        self,
        company_id: str,
        server_id: str,
        metric: str,
        *,
        start_ms: int,
        end_ms: int,
        step_ms: int,
        aggregate: Aggregate = Aggregate.AVG,
    ) -> list[RangeSeries]:
        """Return aggregates by step, from samples or rollups; see `Reader.range`."""
        check_range(start_ms, end_ms, step_ms, step_ms_min=self._step_ms_min)
        name = metric_name(metric)
        last_ms = start_ms + (end_ms - start_ms) // step_ms * step_ms
        now_ms = self._now_ms()
        found: list[RangeSeries] = []
        for source in range_sources(
            start_ms=start_ms, step_ms=step_ms, aggregate=aggregate, now_ms=now_ms
        ):
            http = self._long if source is Source.HOUR else self._http
            body = await http.post_form(
                "/api/v1/query_range",
                {
                    "query": range_expression(
                        company_id,
                        server_id,
                        name,
                        source=source,
                        step_ms=step_ms,
                        aggregate=aggregate,
                    ),
                    "start": queries.seconds(queries.asked_start_ms(start_ms, step_ms)),
                    "end": queries.seconds(queries.seen_end_ms(last_ms, step_ms, now_ms)),
                    "step": queries.seconds(step_ms),
                    # Without it times are moved, and what was read before comes from a cache.
                    "nocache": "1",
                },
            )
            found = understood(body, answers.read_ranges, name=name, last_ms=last_ms)
            if found:
                break
        return found

    async def latest(
        self, company_id: str, server_id: str, *, since_ms: int | None = None
    ) -> list[LatestSample]:
        """Return the newest samples; see `Reader.latest`."""
        now_ms = self._now_ms()
        if since_ms is None:
            since_ms = now_ms - _LATEST_MS
        since_ms = max(since_ms, queries.EARLIEST_MS)
        end_ms = max(now_ms + _AHEAD_MS, since_ms)
        chosen = selector(company_id, server_id=server_id, rollups=False)
        window = f"{chosen}[{end_ms - since_ms + 1}ms]"
        if now_ms - since_ms <= _ALL_SAMPLES_MS:
            body = await self._instant_query(window, end_ms)
            return understood(body, answers.read_newest, since_ms=since_ms)
        body = await self._instant_query(
            queries.union(value=f"last_over_time({window})", time=f"tlast_over_time({window})"),
            end_ms,
        )
        return understood(body, answers.read_latest, mark=queries.MARK)

    async def series(self, company_id: str, server_id: str | None = None) -> list[SeriesInfo]:
        """Return what series there are; see `Reader.series`. Reads all of their samples."""
        end_ms = self._now_ms() + _AHEAD_MS
        chosen = selector(company_id, server_id=server_id, rollups=False)
        window = f"{chosen}[{end_ms - queries.EARLIEST_MS}ms]"
        body = await self._instant_query(
            queries.union(first=f"tfirst_over_time({window})", last=f"tlast_over_time({window})"),
            end_ms,
        )
        return understood(body, answers.read_edges, mark=queries.MARK)

    async def _instant_query(self, expression: str, at_ms: int) -> bytes:
        return await self._http.post_form(
            "/api/v1/query", {"query": expression, "time": queries.seconds(at_ms), "nocache": "1"}
        )

    async def metric_names(self, *, most: int = 1_000) -> tuple[str, ...]:
        """Return the names of all companies' metrics, without rollups: for the operator only.

        Those of deleted series may be among them for a while.

        Raises:
            PermanentStoreError: There are more than `most`.
            TemporaryStoreError: It cannot be asked now.
        """
        body = await self._http.post_form(
            "/api/v1/label/__name__/values",
            queries.between(queries.EARLIEST_MS, self._now_ms() + _AHEAD_MS),
        )
        found = tuple(
            name
            for name in understood(body, answers.read_names)
            if name == metric_name(name)
            and name not in {"", _PREFIX}
            and not name.startswith(PROBE_NAME)
        )
        if len(found) > most:
            raise PermanentStoreError(
                f"VictoriaMetrics has samples of {len(found)} metrics, over {most}: name those "
                "that are meant"
            )
        return found

    # --- deletion

    async def delete_server(self, company_id: str, server_id: str) -> int:
        """Delete a server's series and their rollups; see `Deleter.delete_server`.

        Where VictoriaMetrics refuses to list them (over ``-search.maxSeries``, 30,000 by default),
        they are deleted all the same, and 0 is returned with a warning in the log.
        """
        return await self._deletion.delete(company_id, server_id)

    async def delete_company(self, company_id: str) -> int:
        """Delete a company's series and their rollups; as `delete_server`."""
        return await self._deletion.delete(company_id, None)

    # --- health

    async def flush(self) -> None:
        """Make everything written so far visible; it is not durable for that.

        Raises:
            StoreError: It could not be asked, or refuses (``-forceFlushAuthKey``).
        """
        await self._http.get_word("/internal/force_flush", b"")

    async def ping(self) -> None:
        """Return when it answers; see `Store.ping`."""
        try:
            await self._http.get_word("/health", b"OK")
        except PermanentStoreError as error:
            raise TemporaryStoreError(str(error)) from error

    async def epoch(self) -> str:
        """Tell this start from others, from its third second on; see `Restarts.epoch`."""
        return await self._start.epoch()

    async def check(
        self,
        *,
        limits: Limits = DEFAULT,
        held_seconds: float = 0.0,
        tells_starts: bool = False,
        timeout_seconds: float = 30.0,
    ) -> tuple[str, ...]:
        """Write one series at every limit and read it back: to be called at the start.

        Args:
            limits: What the door takes; the protocol's.
            held_seconds: How long a sample may wait between the door and here.
            tells_starts: Whether a worker with `durable_after_seconds` will ask for the `epoch`.
            timeout_seconds: How long a new series may take to become visible.

        Returns:
            Warnings, which are logged too: that a repeated sample counts twice, and of each flag
            that makes it drop or change samples in silence.

        Raises:
            TemporaryStoreError: It does not answer, or what was written did not become visible.
            PermanentStoreError: The door takes what is refused here; or VictoriaMetrics refuses
                such a series, keeps it otherwise than it was written, or does not tell its
                starts: what agents send would be lost, or never written.
        """
        check = StartCheck(
            write=self._sending.send,
            flush=self.flush,
            samples=self._samples,
            page=self._page,
            clock=self._clock,
            limits=limits,
            held_seconds=held_seconds,
            retention_seconds=self._retention_seconds,
            line_bytes_max=self._form.line_bytes_max,
            body_bytes_max=self._form.message_bytes_max,
        )
        warnings = await check.run(timeout_seconds=timeout_seconds)
        if tells_starts:
            await self._start.check()
        return warnings

    async def watch(self, *, interval_seconds: float = 60.0) -> None:
        """Count and log what VictoriaMetrics itself says it dropped in silence, until cancelled."""
        await self.drops.run(interval_seconds=interval_seconds)

    async def _samples(self, expression: str, at_ms: int) -> list[RangeSeries]:
        return understood(await self._instant_query(expression, at_ms), answers.read_samples)

    async def _page(self) -> StorePage:
        return understood(await self._http.get("/metrics"), read_page)
