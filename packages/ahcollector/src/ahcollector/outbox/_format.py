"""The two files of a file outbox, line by line.

Both hold sealed lines (see `ahcollector._sealed`) and are read from the beginning. Times are Unix
seconds.

``outbox.log`` is the queue:

* ``{"op":"append","at":…,"event":{…}}`` puts an event (as on the wire) at the end;
* ``{"op":"ack","ids":[…]}``: the hub has these; they are remembered for a while;
* ``{"op":"dead","ids":[…]}``: these became dead letters.

``deadletter.jsonl`` is the dead letters:

* ``{"op":"dead","id":…,"body":…,"reason":…,"enqueued_at":…,"dead_at":…,"replayable":…}`` adds one.
  ``body`` is the event as text; of bytes that are no UTF-8, ``body_base64`` is there instead;
* ``{"op":"drop","ids":[…]}``: these were replayed, purged or pushed out.

An event moves from one file to the other by two writes, first to where it goes, then from where it
was. When a crash comes between the two it is in both files, and the queue's copy counts: it is sent
once more, which its id makes harmless.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from ahcollector._sealed import dump, read_sealed, seal, seal_text
from ahcollector.outbox._queue import DeadLetters, OutboxBounds, Queue
from ahcollector.outbox.base import REASON_UNREADABLE, DeadLetter, OutboxEntry
from ahwire import Event
from ahwire.errors import DecodeError

__all__ = [
    "Loaded",
    "append_line",
    "ids_line",
    "letter_line",
    "load",
    "queue_lines",
]


@attrs.frozen(kw_only=True)
class Loaded:
    """What two files held.

    Attributes:
        damaged: Pieces of either file that could not be read.
        changed: Whether the files must be rewritten to agree with this.
    """

    queue: Queue
    letters: DeadLetters
    damaged: tuple[bytes, ...]
    changed: bool
    queue_lines: int
    letter_lines: int


def append_line(entry: OutboxEntry) -> bytes:
    """Return the line that appends an entry."""
    # The event is JSON already: to read it and write it again would take three times as long.
    at, event = dump(entry.enqueued_at), entry.event.to_json()
    return seal_text(b'{"op":"append","at":%s,"event":%s}' % (at, event))


def ids_line(op: str, event_ids: Iterable[str]) -> bytes:
    """Return an ``ack``, ``dead`` or ``drop`` line."""
    return seal({"op": op, "ids": list(event_ids)})


def letter_line(letter: DeadLetter) -> bytes:
    """Return the line that adds a dead letter."""
    try:
        body = {"body": letter.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(letter.body).decode()}
    return seal(
        {
            "op": "dead",
            "id": letter.letter_id,
            **body,
            "reason": letter.reason,
            "enqueued_at": letter.enqueued_at,
            "dead_at": letter.dead_at,
            "replayable": letter.replayable,
        }
    )


def queue_lines(entries: Iterable[OutboxEntry], recent_ids: list[str]) -> Iterator[bytes]:
    """Return the lines of a queue written anew."""
    if recent_ids:
        yield ids_line("ack", recent_ids)
    for entry in entries:
        yield append_line(entry)


def load(queue_data: bytes, letter_data: bytes, bounds: OutboxBounds, now: float) -> Loaded:
    """Return what the two files hold; never fails, whatever they hold."""
    queue, letters = Queue(), DeadLetters(bounds)
    queued = read_sealed(queue_data)
    lettered = read_sealed(letter_data)
    damaged = [*queued.damaged, *lettered.damaged]
    changed = bool(damaged) or _is_cut(queue_data) or _is_cut(letter_data)
    for record in lettered.records:
        if not _apply_letter(record, letters):
            damaged.append(seal(record).rstrip())
            changed = True
    for record in queued.records:
        unreadable = _apply_queued(record, queue, now)
        if unreadable is not None:
            letters.put(unreadable)
            changed = True
    held = {entry.event.event_id for entry in queue}
    twice = [letter.letter_id for letter in letters if letter.letter_id in held]
    letters.take(twice)
    return Loaded(
        queue=queue,
        letters=letters,
        damaged=tuple(damaged),
        changed=changed or bool(twice),
        queue_lines=len(queued.records),
        letter_lines=len(lettered.records),
    )


def _is_cut(data: bytes) -> bool:
    # A last line without its line feed may be whole, but nothing may be written behind it.
    return bool(data) and not data.endswith(b"\n")


def _apply_queued(record: Mapping[str, Any], queue: Queue, now: float) -> DeadLetter | None:
    """Apply one line of the queue; a line that means nothing is returned as a dead letter."""
    try:
        op = record["op"]
        if op == "append":
            event = Event.from_json(json.dumps(record["event"]).encode())
            queue.add(queue.new([event], float(record["at"])))
        elif op == "ack":
            queue.delivered(map(str, record["ids"]))
        elif op == "dead":
            queue.take(map(str, record["ids"]))
        else:
            raise ValueError(f"unknown op {op!r}")
    except (KeyError, TypeError, ValueError, DecodeError):
        body = json.dumps(record.get("event", record), separators=(",", ":")).encode()
        return DeadLetter(
            letter_id=f"unreadable-{hashlib.sha256(body).hexdigest()[:32]}",
            body=body,
            reason=REASON_UNREADABLE,
            enqueued_at=None,
            dead_at=now,
            replayable=False,
        )
    return None


def _apply_letter(record: Mapping[str, Any], letters: DeadLetters) -> bool:
    """Apply one line of the dead letters; return whether it could be read."""
    try:
        if record["op"] == "drop":
            letters.take(map(str, record["ids"]))
            return True
        body = record.get("body")
        enqueued_at = record["enqueued_at"]
        letters.put(
            DeadLetter(
                letter_id=str(record["id"]),
                body=base64.b64decode(record["body_base64"]) if body is None else body.encode(),
                reason=str(record["reason"]),
                enqueued_at=None if enqueued_at is None else float(enqueued_at),
                dead_at=float(record["dead_at"]),
                replayable=bool(record["replayable"]),
            )
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True
