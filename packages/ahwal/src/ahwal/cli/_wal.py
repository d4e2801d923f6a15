"""`ahagent wal`: the queue on disk, read without touching it, also while the agent runs.

Only `requeue` changes it, and so needs the agent to be stopped.
"""

import argparse
import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
from google.protobuf.message import DecodeError

from ahwal.agent._config import AgentConfig
from ahwal.agent._disk import DIRECTORY_NAME
from ahwal.cli._damage import damage_found, place_of, place_text
from ahwal.cli._exit import ExitCode
from ahwal.cli._say import say, say_field
from ahwal.errors import ConfigError
from ahwal.queue import Entry
from ahwal.sender._batch import SEQ_MAX
from ahwal.wal import WAL, PosixStorage
from ahwal.wal._index import Spot
from ahwal.wal._reader import Reader
from ahwal.wal._recovery import Found, examine
from ahwire.agent_pb2 import MetricsBatch
from ahwire.batch import count_points

# So many places are shown; all are counted.
_PLACES_MAX = 1000
_log = logging.getLogger("ahwal.cli")


def stats(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Print figures of the queue."""
    return _stats(_directory(config, options.wal_dir), as_json=options.json)


def verify(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Read everything; exits 3 on damage."""
    return _verify(_directory(config, options.wal_dir), as_json=options.json)


def dump(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Print one JSON line a batch."""
    return _dump(_directory(config, options.wal_dir), limit=options.limit)


def requeue(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Put what is in quarantine back."""
    return _requeue(_directory(config), config, as_json=options.json)


def _directory(config: AgentConfig, given: str | None = None) -> Path:
    directory = Path(config.state_dir) / DIRECTORY_NAME if given is None else Path(given)
    if given is not None and not directory.is_dir():
        raise ConfigError(f"--wal-dir {directory} is no directory")
    if not directory.is_dir():
        raise ConfigError(f"{directory} does not exist; is state_dir right, has the agent run?")
    return directory


def _examine(directory: Path) -> tuple[PosixStorage, Found]:
    storage = PosixStorage(directory)
    try:
        return storage, examine(storage, _log)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read ({error.strerror})") from error


def _entries(storage: PosixStorage, found: Found) -> Iterator[tuple[Spot, Entry | OSError | None]]:
    """Each record in the queue's order: its entry, None for damage, or why it cannot be read."""
    reader = Reader(storage, time, _log)
    try:
        for spot in found.index.in_order():
            entry: Entry | OSError | None
            try:
                entry = reader.entry(spot)
            except OSError as error:
                entry = error
            yield spot, entry
    finally:
        reader.close()


def _stats(directory: Path, *, as_json: bool) -> ExitCode:
    storage, found = _examine(directory)
    spots = list(found.index.in_order())
    _show(
        {
            "batches": len(spots),
            "segment_bytes": found.index.segment_bytes,
            "segments": found.index.segment_count,
            "oldest_unix_ms": spots[0].unix_ms if spots else None,
            "newest_unix_ms": found.index.newest_unix_ms(),
            "watermark": found.checkpoint.watermark,
            "next_id": found.next_id,
            "quarantined": sum(n.endswith(".seg") for n in _quarantine_names(storage)),
        },
        as_json=as_json,
    )
    return ExitCode.OK


def _quarantine_names(storage: PosixStorage) -> list[str]:
    try:
        return storage.list("quarantine")
    except OSError:
        return []


def _verify(directory: Path, *, as_json: bool) -> ExitCode:
    storage, found = _examine(directory)
    good = points = not_batches = 0
    places = list(islice(damage_found(storage, found), _PLACES_MAX))
    damaged = found.report.damaged_records
    unreadable_ids: list[int] = []
    for spot, entry in _entries(storage, found):
        batch = _batch(entry)
        if isinstance(entry, OSError):
            unreadable_ids.append(spot.id)
        elif entry is None:
            damaged += 1
            places.append(place_of(spot))
        elif batch is None:
            not_batches += 1
        else:
            good += 1
            points += count_points(batch)
    report = attrs.asdict(found.report)
    report.update(good=good, points=points, damaged_records=damaged, not_batches=not_batches)
    report.update(unreadable_ids=unreadable_ids, damage=places[:_PLACES_MAX])
    _show(report, as_json=as_json)
    bad = damaged or unreadable_ids or found.report.damaged
    return ExitCode.CONFIGURATION if bad else ExitCode.OK


def _dump(directory: Path, *, limit: int) -> ExitCode:
    storage, found = _examine(directory)
    for shown, (spot, entry) in enumerate(_entries(storage, found)):
        if limit and shown >= limit:
            break
        document = {"id": spot.id, "unix_ms": spot.unix_ms, **_contents(spot, entry)}
        say(json.dumps(document, ensure_ascii=False))
    return ExitCode.OK


def _contents(spot: Spot, entry: Entry | OSError | None) -> dict[str, Any]:
    if isinstance(entry, OSError):
        return {"unreadable": str(entry)}
    if entry is None:
        return {"damaged": True, **place_of(spot)}
    batch = _batch(entry)
    if batch is None:
        # Somebody's own entry, in a queue that is not an agent's; nothing is wrong with it.
        return {"not_a_batch": True, "bytes": len(entry.data)}
    return {
        "seq": batch.seq,
        "collected_at_ms": batch.collected_at_ms,
        "series": [
            {
                "name": series.name,
                "labels": {label.name: label.value for label in series.labels},
                "points": [[point.ts_ms, point.value] for point in series.points],
            }
            for series in batch.series
        ],
    }


def _requeue(directory: Path, config: AgentConfig, *, as_json: bool) -> ExitCode:
    with WAL.open(
        directory,
        max_bytes=config.buffer_bytes_max,
        max_age_seconds=config.buffer_age_seconds_max,
    ) as queue:
        # The agent's numbers go on from that of the newest entry, which so must be the largest.
        batches = (_batch(entry) for _, entry in _entries(*_examine(directory)))
        # One that is absurd is a stranger's, and gets a number of ours.
        numbers = (batch.seq for batch in batches if batch is not None)
        seq = max((number for number in numbers if number <= SEQ_MAX), default=0)
        moved = []
        for entry in queue.quarantined():
            data = None
            batch = _batch(entry)
            if batch is not None:
                seq = max(seq + 1, batch.seq if batch.seq <= SEQ_MAX else 0)
                batch.seq = seq
                data = batch.SerializeToString()
            moved.append(queue.requeue(entry.id, data=data))
    _show({"requeued": sum(batch_id is not None for batch_id in moved)}, as_json=as_json)
    return ExitCode.OK


def _batch(entry: Entry | OSError | None) -> MetricsBatch | None:
    if not isinstance(entry, Entry):
        return None
    try:
        return MetricsBatch.FromString(entry.data)
    except DecodeError:
        return None


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(document, indent=2))
        return
    for name, value in document.items():
        if name == "damage":
            for place in value:
                say_field("damage", place_text(place))
            continue
        # Times are Unix milliseconds for programs, and dates for people.
        at, is_time = name.removesuffix("_unix_ms"), name.endswith("_unix_ms")
        say_field(f"{at}_at" if is_time else name, _time_text(value) if is_time else value)


def _time_text(unix_ms: int | None) -> str:
    if unix_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        # A record may claim any time.
        return f"{unix_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
