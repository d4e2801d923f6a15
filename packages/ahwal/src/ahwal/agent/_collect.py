"""Collectors: where samples come from, and how one that fails or hangs costs only its own."""

import inspect
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeVar, runtime_checkable

import anyio
from attrs import frozen

from ahwal._sample import Sample
from ahwal._threads import DaemonCalls, EndedError
from ahwal.errors import BusyError, ConfigError

SAMPLES_MAX = 200_000
PRIME_TIMEOUT_SECONDS = 5.0
NAME_CHARS_MAX = 64
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NO_NAME = re.compile(r"[^a-z0-9_]")

T = TypeVar("T")

Collect = Callable[[], Iterable[Sample]]
"""What an embedding program passes: called once a cycle, in a thread of its own."""

DEFAULT_NAME = "collect"


@runtime_checkable
class Collector(Protocol):
    """A named source of samples. Its methods may block; they run in a thread, one at a time.

    One that takes over 10 seconds, or over an interval that is shorter, has no samples in this
    cycle and is left alone until it comes back. In one cycle 200,000 samples are taken in all.
    """

    @property
    def name(self) -> str:
        """Lower-case letters, digits and `_`; the name by which it can be switched off."""
        ...

    def prime(self) -> None:
        """Take the first reading of whatever is a difference of two. Called once, at the start."""
        ...

    def collect(self) -> Iterable[Sample]:
        """Return the samples of this cycle.

        Whatever it raises costs all samples of its own in this cycle, those that a generator had
        yielded before too, and no others. What cannot be sent among them costs itself alone.
        """
        ...


@frozen
class FunctionCollector:
    """A plain function as a collector."""

    name: str
    function: Collect

    def prime(self) -> None:
        """Nothing to do."""

    def collect(self) -> Iterable[Sample]:
        """Call the function."""
        return self.function()


def to_collectors(
    collect: "Collect | Collector | Sequence[Collector | Collect]",
) -> tuple[Collector, ...]:
    """Return what was given as collectors.

    A plain function gets its own name, in lower case and with `_` for what a name cannot hold
    (`collect` when nothing is left of it, as for a lambda), and a number behind it when that is
    taken. The names of collectors stay as they are.

    Raises:
        ConfigError: It is none of these, or a collector's name is wrong or there twice.
    """
    given: tuple[object, ...]
    alone = isinstance(collect, (Collector, Sample)) or callable(collect)
    try:
        given = (collect,) if alone else tuple(collect)  # type: ignore[arg-type]  # see alone
    except TypeError:
        given = (collect,)
    taken: set[str] = set()
    for collector in given:
        if isinstance(collector, Collector):
            _check_name(collector.name, taken)
            taken.add(collector.name)
            _check_not_async(collector.collect, f"collector {collector.name}")
        elif callable(collector):
            _check_not_async(collector, getattr(collector, "__name__", repr(collector)))
        else:
            raise ConfigError(
                f"{collector!r} is no collector; it needs name, prime() and collect(), "
                "or pass a function that returns samples"
            )
    collectors: list[Collector] = []
    for collector in given:
        if isinstance(collector, Collector):
            collectors.append(collector)
        elif callable(collector):
            name = _free_name(collector, taken)
            taken.add(name)
            collectors.append(FunctionCollector(name, collector))
    return tuple(collectors)


def _check_name(name: object, taken: AbstractSet[str]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"collector name {name!r} is not made of lower-case letters, digits and _, a letter "
            f"first, {NAME_CHARS_MAX} at most; rename it"
        )
    if name in taken:
        raise ConfigError(f"collector name {name!r} is there twice; give one of them another name")


def _check_not_async(function: Callable[..., object], name: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"{name} is async; collectors run in threads: pass a plain function, or hand samples "
            "in with Agent.enqueue"
        )


def _free_name(function: Callable[..., object], taken: AbstractSet[str]) -> str:
    """Return a collector's name for a function that is not taken."""
    # What is callable without being a function, such as a partial, has no name of its own.
    wanted = str(getattr(function, "__name__", "")).lower()
    base = _NO_NAME.sub("_", wanted).strip("_").lstrip("0123456789_")[:NAME_CHARS_MAX]
    if not base or wanted == "<lambda>":
        base = DEFAULT_NAME
    name, number = base, 2
    while name in taken:
        name, number = f"{base[: NAME_CHARS_MAX - 8]}_{number}", number + 1
    return name


class CollectorSet:
    """Runs collectors, one after the other, each in a daemon thread and with a time limit.

    Args:
        collectors: From `to_collectors`.
        logger: Where failures go: once when a collector begins to fail, once when it works again.
        samples_max: What is taken in one cycle; more is left out, which is logged when it begins.
    """

    def __init__(
        self,
        *,
        collectors: Sequence[Collector],
        logger: logging.Logger,
        samples_max: int = SAMPLES_MAX,
    ) -> None:
        self._collectors = collectors
        self._log = logger
        self._samples_max = samples_max
        self._over = False
        self._calls = {
            c.name: DaemonCalls(name=f"collector {c.name}", calls_max=1) for c in collectors
        }
        self._failing: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The collectors' names."""
        return tuple(collector.name for collector in self._collectors)

    async def prime(self) -> None:
        """Let each take its first reading."""
        for collector in self._collectors:
            await self._guarded(collector, collector.prime, PRIME_TIMEOUT_SECONDS)

    async def collect(
        self, *, disabled: Iterable[str] = (), timeout_seconds: float
    ) -> list[Sample]:
        """Return the samples of all that are not disabled and that answer in time.

        Args:
            disabled: Names of collectors to leave out.
            timeout_seconds: Limit for each of them. One that takes longer is left alone until it
                comes back, and gives nothing meanwhile.
        """
        left_out = frozenset(disabled)
        samples: list[Sample] = []
        for collector in self._collectors:
            if collector.name not in left_out:

                def collect_all(collector: Collector = collector) -> list[Sample]:
                    return _checked(collector.collect(), self._samples_max)

                samples += await self._guarded(collector, collect_all, timeout_seconds) or []
        over = len(samples) > self._samples_max
        if over and not self._over:
            self._log.warning(
                "the collectors gave more than %d samples in one cycle; the rest is left out",
                self._samples_max,
            )
        self._over = over
        return samples[: self._samples_max]

    async def _guarded(
        self, collector: Collector, call: Callable[[], T], timeout_seconds: float
    ) -> T | None:
        failure: str
        cause: BaseException | None = None
        try:
            with anyio.move_on_after(timeout_seconds):
                return self._works(collector, await self._calls[collector.name].run(call))
            failure = f"no result within {timeout_seconds:g} s"
        except BusyError:
            failure = "still busy with an earlier cycle"
        except Exception as error:  # noqa: BLE001 - the collector is the embedder's code
            # It may raise anything, and costs its own samples only.
            cause = error.error if isinstance(error, EndedError) else error
            failure = f"{type(cause).__name__}: {_text_of(cause)}"
        level = logging.DEBUG if collector.name in self._failing else logging.WARNING
        self._failing.add(collector.name)
        # With the place where it happened, which the first line shows and those after it repeat.
        self._log.log(level, "collector %s failed: %s", collector.name, failure, exc_info=cause)
        return None

    def _works(self, collector: Collector, result: T) -> T:
        if collector.name in self._failing:
            self._failing.discard(collector.name)
            self._log.info("collector %s works again", collector.name)
        return result


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it is the embedder's code
        return "an error without a text"


def _checked(samples: Any, samples_max: int) -> list[Sample]:
    """Return what was given, at most one more than wanted: enough to see that there are too many.

    What is no sample goes on too: the sender counts it.
    """
    if inspect.iscoroutine(samples):
        samples.close()
        raise TypeError("it is async; collectors run in threads: pass a plain function")
    return list(itertools.islice(samples, samples_max + 1))
