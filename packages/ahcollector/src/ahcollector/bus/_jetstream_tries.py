"""How often the entries of one shard were tried, kept in a key of the bucket.

A first try costs no write: JetStream itself keeps how far it handed entries to a consumer, and a
consumer whose owner came to its end in good order is deleted by it. So what was delivered to one
that is still there when the next owner comes was read by a process that died, and counts as tried
once. What is written is one value a shard:

``before``
    Up to this place in the stream, entries were read by one that died.
``tries``
    Places and tries of those entries that had more than that tells: written before a second or
    later try, and taken out soon after a handler was through with the entry. Those that had one try
    and wait next are written down together, before the first of them is tried.
``fence``
    Of the lease that wrote it. One that is older writes nothing more.

Only an owner adds to it; one whose lease ended under a handler may take that try back later.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

import anyio

from ahcollector.bus._jetstream_api import WRONG_REVISION, JetStreamApi, JetStreamRefusedError
from ahcollector.bus._jetstream_setup import Names
from ahcollector.bus._jetstream_table import FENCE_MAX

__all__ = ["KEPT_MAX", "TOGETHER", "Tries", "take_back"]

TOGETHER: Final = 32
"""How many entries that had one try are written down together."""

KEPT_MAX: Final = 10_000
"""How many entries of a shard that handlers took may have tries: a value of about 200 kB."""

_ATTEMPTS: Final = 10


class _Value:
    """The value of the key, as it was read or is to be."""

    def __init__(
        self,
        *,
        fence: int = 0,
        before: int = 0,
        tries: dict[int, int] | None = None,
        is_strange: bool = False,
    ) -> None:
        self.is_strange = is_strange
        self.fence = fence
        self.before = before
        self.tries = {} if tries is None else tries

    def write(self) -> bytes:
        tries = {str(seq): count for seq, count in self.tries.items()}
        value = {"fence": self.fence, "before": self.before, "tries": tries}
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def read(cls, data: bytes) -> _Value:
        """Return the value; what cannot be read counts no tries."""
        try:
            found = json.loads(data)
            fence = int(found["fence"])
            if fence < FENCE_MAX:
                return cls(
                    fence=fence,
                    before=int(found["before"]),
                    tries={int(seq): int(count) for seq, count in dict(found["tries"]).items()},
                )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            pass
        return cls(is_strange=True)


class Tries:
    """The tries of one shard, in the hands of its owner. Methods that write may raise BusError.

    Args:
        fence: Of the owner's lease.

    Attributes:
        newest_fence: The highest that was read.
        is_strange: Whether what was read could not be understood, and counted for nothing.
    """

    def __init__(self, *, api: JetStreamApi, names: Names, shard: int, fence: int) -> None:
        self._api = api
        self._names = names
        self._key = names.key(f"tries.{shard}")
        self._fence = fence
        self._revision = 0
        self._before = 0
        self._counts: dict[int, int] = {}
        self._written = _Value()
        self._writing = anyio.Lock()
        self.is_changed = False
        self.newest_fence = 0
        self.is_strange = False

    async def read(self) -> bool:
        """Read what the owners before left; False: there is a newer one."""
        self._revision, found = await _read(self._api, self._names, self._key)
        self._written = found
        self._before, self._counts = found.before, dict(found.tries)
        return self._is_ours(found)

    def of(self, seq: int) -> int:
        """Return how many tries an entry had."""
        return self._counts.get(seq, 1 if seq <= self._before else 0)

    @property
    def has_room(self) -> bool:
        """Whether tries of one more entry may be kept after its hand-over."""
        return len(self._counts) < KEPT_MAX

    def suspect(self, before: int) -> None:
        """Note that entries up to a place were read by one that died."""
        if before > self._before:
            self._before = before
            self.is_changed = True

    async def begin(self, seq: int, tries: int, *, waiting: Iterable[int]) -> bool:
        """Count a try before it is made; False: there is a newer owner.

        Args:
            seq: The entry.
            tries: How many it has with this one.
            waiting: Those that wait behind it.
        """
        if self._counts.get(seq, 0) < tries:
            self._set(seq, tries)
            if tries == 2:
                for other in islice(waiting, TOGETHER):
                    if self.of(other) == 1:
                        self._set(other, tries)
        elif self._written.tries.get(seq, 0) >= tries:
            # It was written down together with one before it.
            return True
        # Also where it was noted before, and its writing failed.
        return await self.write()

    def given_back(self, seq: int, tries: int) -> None:
        """Set the tries that an entry really had."""
        if tries != self.of(seq):
            self._set(seq, tries)

    def forget(self, seq: int) -> None:
        """Note that an entry has no tries, or is no more."""
        if self._counts.pop(seq, None) is not None:
            self.is_changed = True

    def keep(self, *, up_to: int, known: Collection[int]) -> None:
        """Forget the entries up to a place that are none of those known: they are no more."""
        for seq in [one for one in self._counts if one <= up_to and one not in known]:
            self.forget(seq)

    async def write(self) -> bool:
        """Write what changed; False: there is a newer owner."""
        async with self._writing:
            for _ in range(_ATTEMPTS):
                if not self.is_changed:
                    return True
                self.is_changed = False
                value = _Value(fence=self._fence, before=self._before, tries=dict(self._counts))
                try:
                    self._revision = await _write(self._api, self._key, value, self._revision)
                except JetStreamRefusedError as error:
                    self.is_changed = True
                    if error.number != WRONG_REVISION:
                        raise
                    if not await self._merge():
                        return False
                except BaseException:
                    self.is_changed = True
                    raise
                else:
                    self._written = value
        return True

    async def _merge(self) -> bool:
        """See what another one wrote meanwhile: it may have taken tries back."""
        revision, found = await _read(self._api, self._names, self._key)
        if not self._is_ours(found):
            return False
        for seq, count in self._written.tries.items():
            fewer = count - found.tries.get(seq, 0)
            if fewer > 0 and seq in self._counts:
                self._set(seq, max(0, self._counts[seq] - fewer))
        self._revision, self._written = revision, found
        return True

    def _is_ours(self, found: _Value) -> bool:
        self.newest_fence = max(self.newest_fence, found.fence)
        self.is_strange = self.is_strange or found.is_strange
        return found.fence <= self._fence

    def _set(self, seq: int, count: int) -> None:
        if count <= 0 and seq > self._before:
            self._counts.pop(seq, None)
        else:
            self._counts[seq] = count
        self.is_changed = True


async def take_back(api: JetStreamApi, names: Names, shard: int, places: Collection[int]) -> None:
    """Take one try of each entry back, whoever owns the shard now. Raises BusError."""
    key = names.key(f"tries.{shard}")
    for _ in range(_ATTEMPTS):
        revision, found = await _read(api, names, key)
        counted = [seq for seq in places if found.tries.get(seq, 0) > 0]
        if not counted:
            return
        for seq in counted:
            found.tries[seq] -= 1
        try:
            await _write(api, key, found, revision)
        except JetStreamRefusedError as error:
            if error.number != WRONG_REVISION:
                raise
        else:
            return


async def _read(api: JetStreamApi, names: Names, key: str) -> tuple[int, _Value]:
    kept = await api.get(names.bucket, last_by_subj=key)
    return (0, _Value()) if kept is None else (kept.seq, _Value.read(kept.data))


async def _write(api: JetStreamApi, key: str, value: _Value, revision: int) -> int:
    answer = await api.put(
        key, value.write(), {"Nats-Expected-Last-Subject-Sequence": str(revision)}
    )
    return int(answer["seq"])
