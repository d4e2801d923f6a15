"""Dead batches as lines in memory, with their bounds: what memory and file have in common."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import attrs

from ahcollector._sealed import read_sealed, seal
from ahcollector.bus.base import SampleBatch
from ahcollector.worker._batches import batch_from_json, batch_to_json
from ahcollector.worker._dead_counts import AGE, BYTES, COUNT, DeadCounts
from ahcollector.worker.deadletter import DeadBatch, canonical_ids, first_id, id_behind

__all__ = ["Bounds", "Change", "Kept", "Shelf", "kept_of"]


@attrs.frozen(kw_only=True)
class Bounds:
    """How many letters are kept, of how many bytes in all, and for how long."""

    letters_max: int
    bytes_max: int
    retention_seconds: float


@attrs.frozen(kw_only=True)
class Kept:
    """A letter, its sealed line, and what is equal for equal batches."""

    letter: DeadBatch
    line: bytes
    fingerprint: bytes


@attrs.frozen(kw_only=True)
class Change:
    """What a put is to do.

    Attributes:
        comes: The letter that comes.
        gone: Ids of those that leave, and why: None for the same batch.
    """

    comes: Kept
    gone: Mapping[str, str | None]


class Shelf:
    """Letters in order. A line holds a batch in a tenth of what its objects take.

    Args:
        bounds: What to keep.
        counts: Told of each put.
    """

    def __init__(self, *, bounds: Bounds, counts: DeadCounts) -> None:
        self._bounds = bounds
        self._counts = counts
        self.size_bytes = 0
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._by_fingerprint: dict[bytes, int] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._kept)

    def plan(self, batch: SampleBatch, reason: str, now: float) -> Change | None:
        """Return what a put is to do, which `apply` does; None: it is larger than all the room."""
        self._last = max(self._last + 1, first_id(now))
        kept = kept_of(
            {
                "id": str(self._last),
                "dead_at": now,
                "reason": reason,
                "samples": batch.samples,
                "batch": batch_to_json(batch),
            }
        )
        size = kept.letter.size_bytes
        if size > self._bounds.bytes_max:
            self._counts.put_too_large(batch, size, self._bounds.bytes_max)
            return None
        return Change(comes=kept, gone=self._gone_with(kept, now))

    def apply(self, change: Change) -> None:
        """Do a put, and count it."""
        self.remove(change.gone)
        self.add(change.comes)
        self._counts.put(Counter(why for why in change.gone.values() if why is not None))

    def _gone_with(self, kept: Kept, now: float) -> dict[str, str | None]:
        gone: dict[str, str | None] = {}
        count, size = len(self._kept) + 1, self.size_bytes + kept.letter.size_bytes
        same = self._kept.get(self._by_fingerprint.get(kept.fingerprint, 0))
        if same is not None:
            gone[same.letter.letter_id] = None
            count, size = count - 1, size - same.letter.size_bytes
        for one in self._kept.values():
            if one is same:
                continue
            if count > self._bounds.letters_max:
                reason = COUNT
            elif size > self._bounds.bytes_max:
                reason = BYTES
            elif one.letter.dead_at < now - self._bounds.retention_seconds:
                reason = AGE
            else:
                break
            gone[one.letter.letter_id] = reason
            count, size = count - 1, size - one.letter.size_bytes
        return gone

    def add(self, kept: Kept) -> None:
        """Put a letter behind the others."""
        number = int(kept.letter.letter_id)
        self._kept[number] = kept
        self._by_fingerprint[kept.fingerprint] = number
        self.size_bytes += kept.letter.size_bytes
        self._last = max(self._last, number)

    def remove(self, letter_ids: Iterable[str]) -> None:
        """Forget letters."""
        for letter_id in letter_ids:
            kept = self._kept.pop(int(letter_id), None)
            if kept is None:
                continue
            self.size_bytes -= kept.letter.size_bytes
            if self._by_fingerprint.get(kept.fingerprint) == int(letter_id):
                del self._by_fingerprint[kept.fingerprint]

    def page(self, after: str, limit: int) -> list[DeadBatch]:
        """Return letters behind one."""
        behind = id_behind(after)
        found = (kept.letter for number, kept in self._kept.items() if number > behind)
        return list(islice(found, max(0, limit)))

    def batch(self, letter_id: str) -> SampleBatch | None:
        """Return the batch of a letter."""
        for one in canonical_ids([letter_id]):
            kept = self._kept.get(int(one))
            if kept is not None:
                [record] = read_sealed(kept.line).records
                return batch_from_json(record["batch"])
        return None

    def ids(self, among: Iterable[str] | None) -> list[str]:
        """Return the ids that are here."""
        if among is None:
            return [str(number) for number in self._kept]
        return [one for one in canonical_ids(list(among)) if int(one) in self._kept]

    def lines(self) -> list[bytes]:
        """Return all lines."""
        return [kept.line for kept in self._kept.values()]


def kept_of(record: Mapping[str, Any]) -> Kept:
    """Return the letter of a line's record.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: It is none.
    """
    batch = batch_from_json(record["batch"])
    line = seal(record)
    text = json.dumps(record["batch"], separators=(",", ":"))
    return Kept(
        letter=DeadBatch(
            letter_id=_id(record["id"]),
            company_id=batch.company_id,
            server_id=batch.server_id,
            agent_id=batch.agent_id,
            request_id=batch.request_id,
            received_at_ms=batch.received_at_ms,
            samples=batch.samples,
            reason=str(record["reason"]),
            dead_at=float(record["dead_at"]),
            size_bytes=len(line),
        ),
        line=line,
        fingerprint=hashlib.sha256(text.encode()).digest(),
    )


def _id(text: str) -> str:
    [one] = canonical_ids([str(text)])
    return one
