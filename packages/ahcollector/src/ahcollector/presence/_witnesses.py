"""What the beacons of several ingest processes tell together. Pure.

The question is whether there was a time in which no process heard agents. When a process begins
(its first beacon, or one after a pause), there may have been such a time just before, and only
those can say who wrote beacons before it: the *witnesses*. So a *doubt* is noted, with the
witnesses of that instant. A witness that writes its next beacon was there all the while, and the
doubt is over. A witness that goes (its beacon is too old, or a process of its name begins another
life) can say nothing. A doubt without witnesses left is a darkness, and begins a new row.

So a process that restarts beside another one makes no darkness, and two that restart together do.
A process that comes back under the same name is known to have been gone at once; under another name
it takes until the old beacon is too old. That is soon enough: whoever was heard at its usual
interval before the darkness has two more of them, and an agent in its backoff at least the
threshold, until its deadline.

A process compares its own instants with its own only. The instants of others only decide who is a
witness, so a process with a wrong clock cannot make the others look gone: at most it makes one
doubt a darkness too soon, which costs one grace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs

from ahcollector.presence.base import IngestSight

__all__ = ["BeaconLedger", "Doubt", "Witness", "after_witness", "decode", "encode"]

# With more doubts than this the oldest counts as a darkness: a grace too much is harmless.
_DOUBTS_MAX = 16
_MISSED_MAX = 4
# Beside the one that writes. Whoever wrote longest ago is forgotten, and is no witness any more.
_OTHERS_MAX = 128


@attrs.frozen(kw_only=True)
class Witness:
    """A process that hears agents.

    Attributes:
        life: Names this life of it.
        name: Names it through all its lives.
        last: Its newest beacon, by its own clock.
        missed: How many beacons the others wrote since.
    """

    life: str
    name: str
    last: float
    missed: int = 0


@attrs.frozen(kw_only=True)
class Doubt:
    """Maybe nobody heard agents for `dark_seconds` until `since`; `lives` may know better."""

    since: float
    dark_seconds: float
    lives: frozenset[str]


@attrs.frozen(kw_only=True)
class BeaconLedger:
    """The present row of beacons, who writes them, and what is not yet certain."""

    at: float
    since: float
    dark_seconds: float | None
    witnesses: tuple[Witness, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    def sight(self, now: float) -> IngestSight:
        """Return what the beacons tell a reader whose clock shows `now`.

        Of the newest beacons of all processes the one nearest to `now` counts, so that a process
        with a wrong clock blinds nobody who hears another one.
        """
        instants = [self.at, *(witness.last for witness in self.witnesses)]
        nearest = min(instants, key=lambda at: abs(at - now))
        return IngestSight(at=nearest, since=self.since, dark_seconds=self.dark_seconds)


def after_witness(
    ledger: BeaconLedger | None,
    *,
    life: str,
    name: str,
    now: float,
    last: float | None,
    max_age_seconds: float,
) -> BeaconLedger:
    """Return the ledger after a beacon at `now`.

    Args:
        ledger: The one before; None: there never was a beacon.
        life: Names this life of the process.
        name: Names the process through all its lives.
        now: When the beacon is written.
        last: When this life wrote its last one, None before its first.
        max_age_seconds: How long a beacon is good for.
    """
    mine = Witness(life=life, name=name, last=now)
    known = () if ledger is None else ledger.witnesses[-_OTHERS_MAX:]
    if ledger is None:
        return BeaconLedger(at=now, since=now, dark_seconds=None, witnesses=(mine,))
    fresh = tuple(
        witness
        for witness in known
        if witness.life != life and abs(now - witness.last) <= max_age_seconds
        if not (last is None and witness.name == name)
    )
    begins = last is None or now - last > max_age_seconds
    still_there = frozenset(witness.life for witness in fresh)
    if begins:
        doubts = [*_left(ledger.doubts, still_there)]
        dark_seconds = max(now - ledger.at, 0.0)
        doubts.append(Doubt(since=now, dark_seconds=dark_seconds, lives=still_there))
    else:
        unsaid = [doubt for doubt in ledger.doubts if life not in doubt.lives]
        doubts = [*_left(unsaid, still_there)]
    since, dark = ledger.since, ledger.dark_seconds
    certain = [
        place
        for place, doubt in enumerate(doubts)
        if not doubt.lives or place < len(doubts) - _DOUBTS_MAX
    ]
    if certain:
        newest = doubts[certain[-1]]
        since, dark = newest.since, newest.dark_seconds
        del doubts[: certain[-1] + 1]
    return BeaconLedger(
        at=now,
        # A beginning in the future, from before a step back of the clock, would mean nothing.
        since=min(since, now),
        dark_seconds=dark,
        witnesses=(*_others(known, still_there, mine, first=last is None), mine),
        doubts=tuple(doubts),
    )


def _others(
    witnesses: tuple[Witness, ...], still_there: frozenset[str], mine: Witness, *, first: bool
) -> Iterable[Witness]:
    """Return who else is to be remembered.

    Beside those who are there these are processes whose clock is another one. Whether they still
    write cannot be seen by their instants, so it is counted: each writes as often as the others.
    """
    for witness in witnesses:
        replaced = witness.life == mine.life or (first and witness.name == mine.name)
        missed = witness.missed + 1
        if not replaced and (witness.life in still_there or missed <= _MISSED_MAX * len(witnesses)):
            yield attrs.evolve(witness, missed=missed)


def _left(doubts: Iterable[Doubt], still_there: frozenset[str]) -> Iterable[Doubt]:
    for doubt in doubts:
        yield attrs.evolve(doubt, lives=doubt.lives & still_there)


def encode(ledger: BeaconLedger) -> bytes:
    """Return a ledger as JSON."""
    fields = attrs.asdict(ledger)
    for doubt in fields["doubts"]:
        doubt["lives"] = sorted(doubt["lives"])
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> BeaconLedger | None:
    """Return the ledger of JSON, None when it cannot be read: then nobody knows."""
    try:
        fields: dict[str, Any] = json.loads(data)
        return BeaconLedger(
            at=fields["at"],
            since=fields["since"],
            dark_seconds=fields["dark_seconds"],
            witnesses=tuple(Witness(**witness) for witness in fields["witnesses"]),
            doubts=tuple(
                Doubt(**{**doubt, "lives": frozenset(doubt["lives"])}) for doubt in fields["doubts"]
            ),
        )
    except (ValueError, KeyError, TypeError):
        return None
