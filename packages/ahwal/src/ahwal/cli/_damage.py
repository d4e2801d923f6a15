"""Where a queue on disk is damaged: file, offset, and the record's id as far as it is known."""

from collections.abc import Iterator
from typing import Any

from ahwal.wal import PosixStorage
from ahwal.wal._index import Spot
from ahwal.wal._record import HEADER_BYTES, read_header
from ahwal.wal._recovery import Found
from ahwal.wal._segment import Segment
from ahwal.wal._storage import open_read


def damage_found(storage: PosixStorage, found: Found) -> Iterator[dict[str, Any]]:
    """Yield the places in which records could not be found, but no unfinished append."""
    last = found.index.last_segment
    for segment in found.index.segments:
        for offset, size in segment.damage:
            torn = segment is last and found.report.torn_bytes and segment.damage[-1][0] == offset
            if not torn:
                record_id = _id_at(storage, segment, offset)
                yield _place(segment, offset, size, record_id)


def place_of(spot: Spot) -> dict[str, Any]:
    """Return where a record stands."""
    offset, size = spot.segment.extent(spot.position)
    return _place(spot.segment, offset, size, spot.id)


def place_text(place: dict[str, Any]) -> str:
    """Return a place as a line for people."""
    known = "unknown" if place["id"] is None else place["id"]
    return f"{place['segment']} offset {place['offset']}, {place['size_bytes']} bytes, id {known}"


def _place(segment: Segment, offset: int, size: int, record_id: int | None) -> dict[str, Any]:
    return {"segment": segment.name, "offset": offset, "size_bytes": size, "id": record_id}


def _id_at(storage: PosixStorage, segment: Segment, offset: int) -> int | None:
    """Return the id of a damaged record, if its neighbours or its header tell."""
    before, after = int(segment.name[:16], 16) - 1, None
    for position in range(len(segment)):
        if segment.extent(position)[0] > offset:
            after = segment.record_id(position)
            break
        before = segment.record_id(position)
    if after is not None and after - before == 2:
        return before + 1
    try:
        with open_read(storage, segment.name) as file:
            head = file.read(offset, HEADER_BYTES)
    except OSError:
        return None
    claimed = read_header(head).id if len(head) == HEADER_BYTES else 0
    # Its header may be what is damaged: only what fits between the neighbours is believed, and
    # behind the last record only the next id.
    highest = before + 2 if after is None else after
    return claimed if before < claimed < highest else None
