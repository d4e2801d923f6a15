"""A clock that stands still until a test moves it."""

import heapq
import itertools

import anyio
from anyio.lowlevel import checkpoint

DEFAULT_NOW = 1_700_000_000.0
SETTLE_ROUNDS = 30


class FakeClock:
    """An `AsyncClock` for tests that stands still until `step` or `advance`; not thread-safe.

    Give a `ScriptedCollector` the same wall clock (`wall_clock=clock.time`), or it sees an agent
    whose clock is years off.

    Args:
        now: Wall clock at the start, Unix seconds.
    """

    def __init__(self, *, now: float = DEFAULT_NOW) -> None:
        self._wall = now
        self._monotonic = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []

    def time(self) -> float:
        """Return the wall clock."""
        return self._wall

    def monotonic(self) -> float:
        """Return the monotonic clock."""
        return self._monotonic

    @property
    def sleepers(self) -> int:
        """How many sleeps are under way, cancelled ones included until their time has come."""
        return len(self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Park until the clock was moved past the end of the sleep."""
        if seconds <= 0:
            await checkpoint()
            return
        event = anyio.Event()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), event))
        await event.wait()

    def step(self, seconds: float) -> None:
        """Move both clocks without waking anybody yet; for code that is not asynchronous."""
        self._wall += seconds
        self._monotonic += seconds

    def set_wall(self, now: float) -> None:
        """Step the wall clock alone, as an administrator or NTP does."""
        self._wall = now

    async def advance(self, seconds: float) -> None:
        """Move both clocks, waking each sleeper at its own moment, in order."""
        await settle()
        end = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, event = heapq.heappop(self._sleepers)
            self.step(max(0.0, due - self._monotonic))
            event.set()
            await settle()
        self.step(end - self._monotonic)
        await settle()


async def settle(rounds: int = SETTLE_ROUNDS) -> None:
    """Let all other tasks run until they wait for something; worker threads get a moment too."""
    for _ in range(rounds):
        await checkpoint()
    await anyio.sleep(0.002)
    for _ in range(rounds):
        await checkpoint()
