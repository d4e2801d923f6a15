"""The texts that the outbox keeps in Redis; ``lua/library.lua`` says how they are made up."""

from __future__ import annotations

import math
import re
from typing import Final

from ahcollector.outbox.base import REASON_UNREADABLE, DeadLetter, OutboxEntry
from ahwire import Event
from ahwire.errors import DecodeError

__all__ = ["entry_text", "id_bytes", "read_entry", "read_letter", "reason_bytes"]

_LETTER: Final = re.compile(rb"(\S+) (\S+) ([01]) ([0-9]{1,9}) ")


def reason_bytes(text: str) -> bytes:
    """Return the bytes of a reason; half of a surrogate pair, which JSON can bring, is kept too."""
    return text.encode("utf-8", "surrogatepass")


def id_bytes(text: str) -> bytes:
    """Return the bytes of an id: those that `read_letter` made it of, whatever they are."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def entry_text(event: Event, enqueued_at: float) -> bytes:
    """Return what is kept of an entry."""
    return b"%s %s" % (repr(float(enqueued_at)).encode(), event.to_json())


def read_entry(event_id: bytes, text: bytes) -> OutboxEntry | None:
    """Return the entry that is kept under an id; None: it is none, or not the one of this id."""
    at, _, body = text.partition(b" ")
    try:
        entry = OutboxEntry(event=Event.from_json(body), enqueued_at=_finite(at))
    except (ValueError, DecodeError):
        return None
    return entry if entry.event.event_id.encode() == event_id else None


def read_letter(letter_id: bytes, text: bytes) -> DeadLetter:
    """Return a letter; of a text that is none, one that says so."""
    name = letter_id.decode("utf-8", "surrogateescape")
    try:
        return _letter(name, text)
    except ValueError:
        return DeadLetter(
            letter_id=name,
            body=text,
            reason=REASON_UNREADABLE,
            enqueued_at=None,
            dead_at=0.0,
            replayable=False,
        )


def _letter(name: str, text: bytes) -> DeadLetter:
    found = _LETTER.match(text)
    if found is None:
        raise ValueError("no letter")
    died, enqueued, is_event, size = found.groups()
    end = found.end() + int(size)
    if len(text) < end:
        raise ValueError("cut")
    body = text[end:]
    return DeadLetter(
        letter_id=name,
        body=body,
        reason=text[found.end() : end].decode("utf-8", "surrogatepass"),
        enqueued_at=None if enqueued == b"-" else _finite(enqueued),
        dead_at=_finite(died),
        replayable=is_event == b"1" and _is_event(name, body),
    )


def _is_event(name: str, body: bytes) -> bool:
    try:
        return Event.from_json(body).event_id == name
    except DecodeError:
        return False


def _finite(text: bytes) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no time")
    return value
