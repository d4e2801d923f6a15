"""Ids and sequence numbers that only rise.

**UUIDv7** (RFC 9562): 48 bits of Unix milliseconds, then 74 bits (`rand_a` and `rand_b` around the
version and the variant) that this module uses as one counter. Each new millisecond begins it at a
random place in its lower half; further ids of the same millisecond step it by a random amount, so
that they rise and still cannot be guessed from one another. When the clock stands or goes back,
the last millisecond is kept and the counter goes on; when the counter is used up, the millisecond
is stepped instead.
"""

import re

from ahwire.clock import Clock, Rng, now_ms

__all__ = [
    "UUID7Generator",
    "is_uuid7",
    "next_seq",
]

_COUNTER_BITS = 74
_STEP_BITS = 32
_MS_MAX = (1 << 48) - 1
_RAND_B_BITS = 62
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class UUID7Generator:
    """Makes UUIDv7 strings, each above the last, whatever the clock does.

    One generator serves one process and one thread at a time; share it inside a process, so that
    the order holds for all of its ids. A forked child builds its own, with a generator of chance
    that was seeded after the fork, else it repeats its parent's ids.
    """

    def __init__(self, clock: Clock, rng: Rng) -> None:
        """Begin with nothing made.

        Args:
            clock: tells the milliseconds.
            rng: gives the random bits; processes whose generators are seeded apart share no id.
        """
        self._clock = clock
        self._rng = rng
        self._last_ms = -1
        self._counter = 0

    def next(self) -> str:
        """The next id in its canonical form: lower case, with hyphens."""
        ms = min(max(now_ms(self._clock), 0), _MS_MAX)
        if ms > self._last_ms:
            self._begin(ms)
        else:
            self._counter += 1 + self._rng.getrandbits(_STEP_BITS)
            if self._counter >> _COUNTER_BITS:
                self._begin(self._last_ms + 1)
        return self._format()

    def _begin(self, ms: int) -> None:
        self._last_ms = ms
        # One bit fewer than there is room for leaves at least 2**41 ids to the millisecond.
        self._counter = self._rng.getrandbits(_COUNTER_BITS - 1)

    def _format(self) -> str:
        rand_a, rand_b = divmod(self._counter, 1 << _RAND_B_BITS)
        text = f"{self._last_ms:012x}7{rand_a:03x}{(0b10 << _RAND_B_BITS) | rand_b:016x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_uuid7(text: str) -> bool:
    """Whether the text is a UUIDv7 in its canonical form."""
    return _UUID7.fullmatch(text) is not None


def next_seq(now_ms: int, last: int) -> int:
    """The sequence number after `last`: max(now_ms, last + 1), so it rises on any clock."""
    return max(now_ms, last + 1)
