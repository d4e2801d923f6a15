"""Whether the detector may judge: the pure rules of blindness.

A collector that was blind does not declare its agents dead. Blind is

* no fresh beacon of an ingest process: nobody could hear agents;
* no answer from the presence store;
* a wall clock that stepped by more than an interval against the steady clock, or a detector that
  itself stood still (a stopped process, a machine asleep).

While blind it is frozen. The law: *between the end of a blindness and the next declaration, a grace
for that blindness was given*. The first observation of a process looks at the beacons of the time
before it, so a collector that was off was blind; when no beacon is on record, nobody knows for how
long. In the first two intervals nothing is declared at all.

The length of a blindness is told, and does not shorten its grace. Agents wait with full jitter, so
even a short darkness can leave one in its longest backoff; a grace that covers this after each
darkness also covers any row of them, a crash loop included, because whoever is refused again is
refused in a darkness with a grace of its own.

`observe` takes the state before and what is seen now, and returns the state after and what may be
done. The caller keeps the new state only when the grace, if there is one, was really given.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

from ahcollector.presence.base import IngestSight

__all__ = ["Blindness", "Judgement", "Sight", "SightRules", "observe", "store_failed"]

_STARTUP_INTERVALS: Final = 2


@attrs.frozen(kw_only=True)
class SightRules:
    """The constants of the rules.

    Attributes:
        agent_interval_seconds: The usual interval; a clock step over it is blindness.
        scan_interval_seconds: How often observations are made.
        beacon_max_age_seconds: An older beacon tells nothing any more.
    """

    agent_interval_seconds: float
    scan_interval_seconds: float
    beacon_max_age_seconds: float


@attrs.frozen(kw_only=True)
class Sight:
    """What is kept from one observation to the next.

    Attributes:
        started_at: Steady time of the first observation.
        wall: Unix seconds of the newest observation; None: there was none yet.
        steady: Steady time of it.
        blind_since: Steady time since when it is blind; None while it sees.
        row_since: Beginning of the row of beacons whose darkness before it was already pardoned.
    """

    started_at: float
    wall: float
    steady: float
    blind_since: float | None = None
    row_since: float | None = None


@attrs.frozen(kw_only=True)
class Blindness:
    """A blindness that is over: when it ended (Unix seconds) and how long it was (may be inf)."""

    ended_at: float
    seconds: float


@attrs.frozen(kw_only=True)
class Judgement:
    """What may be done now.

    Attributes:
        may_declare: New downs may be decided, after `grace` was given.
        blind: Nothing can be seen.
        grace: The blindness to give a grace for; None when there was none.
    """

    may_declare: bool
    blind: bool
    grace: Blindness | None = None


def observe(
    before: Sight | None,
    *,
    wall: float,
    steady: float,
    beacons: IngestSight | None,
    rules: SightRules,
) -> tuple[Sight, Judgement]:
    """Return the state after an observation in which the presence store answered."""
    sight = before if before is not None else Sight(started_at=steady, wall=wall, steady=steady)
    passed = steady - sight.steady
    step = (wall - sight.wall) - passed
    stood_still = passed > rules.scan_interval_seconds + rules.beacon_max_age_seconds
    jumped = abs(step) > rules.agent_interval_seconds or stood_still
    # A step ahead can be a sleep that the steady clock does not count.
    lost_seconds = max(passed, wall - sight.wall, 0.0) if jumped else 0.0
    now_blind = beacons is None or abs(wall - beacons.at) > rules.beacon_max_age_seconds
    blind_since = sight.blind_since
    if jumped or now_blind:
        blind_since = sight.steady if blind_since is None else blind_since
    if now_blind:
        # What a jump lost is kept as an earlier beginning of the blindness.
        assert blind_since is not None
        blind_since = min(blind_since, steady - lost_seconds)
        after = attrs.evolve(sight, wall=wall, steady=steady, blind_since=blind_since)
        return after, Judgement(may_declare=False, blind=True)
    assert beacons is not None
    seconds = max(lost_seconds, 0.0 if blind_since is None else steady - blind_since)
    ended_at = wall
    new_row = beacons.since != sight.row_since
    if new_row:
        dark = math.inf if beacons.dark_seconds is None else beacons.dark_seconds
        if blind_since is None:
            ended_at = min(beacons.since, wall)
        seconds = max(seconds, dark)
    grace = None
    if new_row or blind_since is not None:
        grace = Blindness(ended_at=ended_at, seconds=seconds)
    after = attrs.evolve(sight, wall=wall, steady=steady, blind_since=None, row_since=beacons.since)
    quiet = _STARTUP_INTERVALS * rules.agent_interval_seconds
    return after, Judgement(
        may_declare=steady - sight.started_at >= quiet, blind=False, grace=grace
    )


def store_failed(before: Sight | None, *, wall: float, steady: float) -> Sight:
    """Return the state after the presence store gave no answer.

    The times of the last good observation stay, so that a clock step in between is still seen.
    """
    if before is None:
        return Sight(started_at=steady, wall=wall, steady=steady, blind_since=steady)
    since = before.steady if before.blind_since is None else before.blind_since
    return attrs.evolve(before, blind_since=since)
