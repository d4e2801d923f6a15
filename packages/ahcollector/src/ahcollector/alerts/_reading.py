"""Reads what is stored of a unit, part by part: what cannot be read keeps nothing else away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ahcollector.alerts.base import AlertImage
from ahrules import SnapshotError

__all__ = ["JOURNAL", "read_image"]

JOURNAL: Final = "w"


def read_image(
    image: AlertImage,
    *,
    parts: Mapping[str, Callable[[str], None]],
    pieces: Mapping[str, Callable[[list[str], str], None]],
) -> list[str]:
    """Give each part and piece to what takes it; return what could not be read.

    Args:
        image: What is stored.
        parts: What takes the parts of a whole snapshot, by name; others are passed over.
        pieces: What takes pieces, by kind, with the rest of the name. Those of the journal come
            last, in the order of their numbers: they go into states that all others have brought.
    """
    faults: list[str] = []
    for part, text in image.base.items():
        if part in parts:
            _read(part, parts[part], text, faults)
    for name in sorted(image.pieces, key=_place):

        def take(text: str, name: str = name) -> None:
            kind, *rest = json.loads(name)
            pieces[kind](rest, text)

        _read(name, take, image.pieces[name], faults)
    return faults


def _place(name: str) -> int:
    try:
        kind, *rest = json.loads(name)
        return int(rest[0]) if kind == JOURNAL else -1
    except (ValueError, TypeError, IndexError):
        return -1


def _read(name: str, take: Callable[[str], Any], text: str, faults: list[str]) -> None:
    try:
        take(text)
    except (SnapshotError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        faults.append(f"{name[:200]}: {error}")
