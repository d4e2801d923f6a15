"""Where samples are stored: in this process and a file, or in VictoriaMetrics."""

import ssl
from contextlib import AsyncExitStack
from functools import partial

import attrs

from ah_server.errors import DependencyError
from ah_server.parts import Loop, Part
from ah_server.settings import HELD_HOURS_MAX, ServerSettings
from ah_server.wiring._limits import batch_limits
from ah_server.wiring._patience import reached
from ah_server.wiring._seams import Seams
from ahcollector.clock import AsyncClock
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.store import Deleter, MemoryStore, Restarts, Store, StoreSnapshot
from ahcollector.store.victoria_metrics import VictoriaMetricsStore

_DAY_SECONDS = 86_400.0
_HOUR_SECONDS = 3_600.0
_EMBEDDED_STEP_SECONDS = 1
_STEP_SECONDS = 30


@attrs.frozen(kw_only=True)
class Samples:
    """The store of samples.

    Attributes:
        deleter: forgets tenants, so that they are not back after a crash.
        shared: whether it is another process's, for any number of servers.
        restarts: tells whether it may have lost what was written; None: what was written is kept.
        step_seconds_min: the least step of a range that it answers.
        found: what its check found, for `ah-server check`.
        loops: what it needs to run.
    """

    store: Store
    deleter: Deleter
    shared: bool
    restarts: Restarts | None
    step_seconds_min: int
    found: str
    loops: tuple[Part, ...]


async def samples_of(
    settings: ServerSettings, seams: Seams, metrics: PrometheusMetrics, stack: AsyncExitStack
) -> Samples:
    """Opens the store that is set, found fit to keep what agents send.

    Raises:
        DependencyError: VictoriaMetrics cannot be reached, cuts or drops samples, or does not tell
            whether it was started again.
        SnapshotError: the embedded store's file cannot be read.
    """
    if not settings.tsdb.url:
        return await _embedded(settings, seams, metrics)
    tsdb = settings.tsdb
    store = victoria_metrics(settings, clock=seams.clock, metrics=metrics)
    stack.push_async_callback(store.aclose)
    check = partial(
        store.check,
        limits=batch_limits(settings),
        held_seconds=HELD_HOURS_MAX * _HOUR_SECONDS,
        tells_starts=tsdb.durable_after_seconds > 0,
    )
    try:
        # What it only warns of, it says in the log itself.
        await reached(
            "VictoriaMetrics",
            check,
            seams,
            name="tsdb",
            away=lambda error: isinstance(error, TemporaryStoreError),
        )
    except TemporaryStoreError as error:
        raise DependencyError(
            f"tsdb.url: {tsdb.url} cannot be used ({error}); start it, or correct tsdb.url"
        ) from error
    except PermanentStoreError as error:
        raise DependencyError(f"tsdb.url: {tsdb.url} cannot be used: {error}") from error
    return Samples(
        store=store,
        deleter=store,
        shared=True,
        restarts=store,
        step_seconds_min=_STEP_SECONDS,
        found=f"tsdb {tsdb.url} shows a series as long as agents may send as written",
        loops=(Loop(name="store watch", body=store.watch),),
    )


def victoria_metrics(
    settings: ServerSettings,
    *,
    clock: AsyncClock | None = None,
    metrics: PrometheusMetrics | None = None,
) -> VictoriaMetricsStore:
    """The client of the VictoriaMetrics that is set, and that nobody has asked yet.

    Raises:
        DependencyError: the file of certificates cannot be used.
    """
    tsdb = settings.tsdb
    try:
        return VictoriaMetricsStore(
            url=tsdb.url,
            long_url=tsdb.long_url or None,
            username=tsdb.username,
            password=tsdb.password.reveal(),
            bearer=tsdb.bearer.reveal(),
            tls_ca_file=tsdb.tls_ca_file,
            write_protocol=tsdb.write_protocol,
            clock=clock,
            metrics=metrics,
            timeout_seconds=tsdb.timeout_seconds,
            retention_seconds=tsdb.retention_days * _DAY_SECONDS,
            step_seconds_min=_STEP_SECONDS,
        )
    except (OSError, ssl.SSLError) as error:
        raise DependencyError(
            f"tsdb.tls_ca_file: {tsdb.tls_ca_file} cannot be used ({error}); give a file of PEM"
            " certificates that this user may read"
        ) from error


async def _embedded(settings: ServerSettings, seams: Seams, metrics: PrometheusMetrics) -> Samples:
    store = MemoryStore(
        clock=seams.clock,
        retention_seconds=settings.store.retention_hours * 3600,
        points_max=settings.store.points_max,
        metrics=metrics,
    )
    keeper = StoreSnapshot(
        store=store,
        path=settings.state_dir / "samples.log",
        clock=seams.clock,
        interval_seconds=settings.store.snapshot_seconds,
    )
    await keeper.load()
    return Samples(
        store=store,
        deleter=keeper,
        shared=False,
        restarts=None,
        step_seconds_min=_EMBEDDED_STEP_SECONDS,
        found="",
        loops=(Loop(name="store file", body=keeper.run, stop_seconds=5.0),),
    )
