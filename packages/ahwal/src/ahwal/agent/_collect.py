"""Collectors: where samples come from, and how one that fails or hangs costs only its own."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import anyio
from attrs import frozen

from ahwal._sample import Sample
from ahwal._threads import DaemonCalls
from ahwal.errors import BusyError, ConfigError

SAMPLES_MAX = 200_000
PRIME_TIMEOUT_SECONDS = 5.0
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

T = TypeVar("T")

# What an embedding program passes: called once a cycle, in a thread of its own.
Collect = Callable[[], Iterable[Sample]]


@runtime_checkable
class Collector(Protocol):
    """A named source of samples. Its methods may block; they run in a thread, one at a time."""

    @property
    def name(self) -> str:
        """Lower-case letters, digits and `_`; the name by which it can be switched off."""
        ...

    def prime(self) -> None:
        """Take the first reading of whatever is a difference of two. Called once, at the start."""
        ...

    def collect(self) -> Iterable[Sample]:
        """Return the samples of this cycle. Whatever it raises costs these samples only."""
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


def to_collectors(collect: Collect | Collector | Sequence[Collector]) -> tuple[Collector, ...]:
    """Return what was given as collectors.

    Raises:
        ConfigError: It is none of these, or a name is wrong or there twice.
    """
    collectors: tuple[object, ...]
    if isinstance(collect, Collector):
        collectors = (collect,)
    elif callable(collect):
        collectors = (FunctionCollector("collect", collect),)
    else:
        collectors = tuple(collect)
    checked: dict[str, Collector] = {}
    for collector in collectors:
        if not isinstance(collector, Collector):
            raise ConfigError(
                f"{collector!r} is no collector; it needs name, prime() and collect(), "
                "or pass one function that returns samples"
            )
        if not _NAME.fullmatch(collector.name) or collector.name in checked:
            raise ConfigError(
                f"collector name {collector.name!r} is there twice, or is not lower-case letters, "
                "digits and _"
            )
        checked[collector.name] = collector
    return tuple(checked.values())


class CollectorSet:
    """Runs collectors, one after the other, each in a daemon thread and with a time limit.

    Args:
        collectors: From `to_collectors`.
        logger: Where failures go: once when a collector begins to fail, once when it works again.
    """

    def __init__(self, *, collectors: Sequence[Collector], logger: logging.Logger) -> None:
        self._collectors = collectors
        self._log = logger
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
                    return _checked(collector.collect())

                samples += await self._guarded(collector, collect_all, timeout_seconds) or []
        return samples[:SAMPLES_MAX]

    async def _guarded(
        self, collector: Collector, call: Callable[[], T], timeout_seconds: float
    ) -> T | None:
        failure: str
        try:
            with anyio.fail_after(timeout_seconds):
                result = await self._calls[collector.name].run(call)
        except TimeoutError:
            failure = f"no result within {timeout_seconds:g} s"
        except BusyError:
            failure = "still busy with an earlier cycle"
        except Exception as error:  # noqa: BLE001 - the collector is the embedder's code
            # It may raise anything, and costs its own samples only.
            failure = f"{type(error).__name__}: {error}"
        else:
            if collector.name in self._failing:
                self._failing.discard(collector.name)
                self._log.info("collector %s works again", collector.name)
            return result
        level = logging.DEBUG if collector.name in self._failing else logging.WARNING
        self._failing.add(collector.name)
        self._log.log(level, "collector %s failed: %s", collector.name, failure)
        return None


def _checked(samples: Iterable[Sample]) -> list[Sample]:
    checked: list[Sample] = []
    for sample in samples:
        if not isinstance(sample, Sample):
            raise TypeError(f"a collector returned {type(sample).__name__}, not Sample")
        checked.append(sample)
        if len(checked) >= SAMPLES_MAX:
            break
    return checked
