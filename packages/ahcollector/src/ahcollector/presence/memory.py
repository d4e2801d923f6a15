"""The presence of one process, with a snapshot file that carries it over restarts."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread

from ahcollector import metrics as names
from ahcollector.clock import AsyncClock
from ahcollector.errors import SnapshotError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.presence._arguments import down_min_of, interval_of
from ahcollector.presence._beacons import after_beacon
from ahcollector.presence._counted import counted
from ahcollector.presence._deadlines import DeadlineQueue
from ahcollector.presence._gone import Gone
from ahcollector.presence._intents import Intents
from ahcollector.presence._journal import Journal, JournalFile, with_journal
from ahcollector.presence._saving import Saving
from ahcollector.presence._seen import Contacts
from ahcollector.presence._snapshot import PresenceImage, Snapshot, SnapshotFile
from ahcollector.presence._state import AgentState, GraceEpoch, to_ms
from ahcollector.presence.base import (
    AgentPresence,
    AgentRef,
    IngestSight,
    PresenceCounts,
    SeenLease,
    Transition,
    TransitionKind,
    WatchRule,
)

__all__ = ["MemoryPresence"]


class MemoryPresence:
    """`Presence` in dictionaries and a queue of deadlines, for one event loop.

    With a snapshot, intents are on disk before `expire` and `pending` hand them out, and everything
    else is at most `snapshot_interval_seconds` (of `run`) old after a crash. `touch` never waits
    for the disk: a recovery that a crash makes unknown is seen again at the agent's next batch.

    It is as large as the number of agents; intents pile up only while they are not confirmed.

    Args:
        event_ids: Makes event ids, each above the last (`UUID7Generator.next`).
        down_min_seconds: No agent is down after less silence than this.
        default_interval_seconds: The interval of agents that name none.
        beacon_max_age_seconds: A longer pause between two beacons was darkness.
        removed_quiet_seconds: For so long after its removal a contact does not make an agent known.
        metrics: Where to count contacts of removed agents.
        snapshot: Where to save; None: a crash forgets everything.
        journal: Where decisions are kept between two saves; None: each page of them is a save.
        image: What an earlier process saved; see `open`.
    """

    def __init__(
        self,
        *,
        event_ids: Callable[[], str],
        down_min_seconds: float = 90.0,
        default_interval_seconds: float = 30.0,
        beacon_max_age_seconds: float = 15.0,
        removed_quiet_seconds: float = 60.0,
        metrics: Metrics | None = None,
        snapshot: Snapshot | None = None,
        journal: Journal | None = None,
        image: PresenceImage | None = None,
    ) -> None:
        image = image if image is not None else PresenceImage()
        self._event_ids = event_ids
        self._down_min_seconds = down_min_seconds
        self._default_interval_seconds = default_interval_seconds
        self._beacon_max_age_seconds = beacon_max_age_seconds
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._saving = Saving(snapshot=snapshot, image=self._image, journal=journal)
        self._sight = image.sight
        # Whether this process wrote a beacon; the image tells of those before it.
        self._shone = False
        self._epoch = image.epoch
        self._agents = {state.agent.agent_id: state for state in image.agents}
        self._gone = Gone(image.gone, quiet_seconds=removed_quiet_seconds)
        self._intents = Intents(image.intents)
        self._down = sum(state.down_since is not None for state in image.agents)
        self._deadlines = DeadlineQueue(self._agents)
        self._contacts = Contacts(
            (state.agent.agent_id, state.last_seen)
            for state in image.agents
            if state.last_seen is not None
        )
        self.damaged_lines = image.damaged

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        event_ids: Callable[[], str],
        down_min_seconds: float = 90.0,
        default_interval_seconds: float = 30.0,
        beacon_max_age_seconds: float = 15.0,
        removed_quiet_seconds: float = 60.0,
        metrics: Metrics | None = None,
    ) -> MemoryPresence:
        """Return a presence that goes on where the process before saved to `path`.

        Of a damaged file the one before is used, else the rest of it; what was damaged is kept
        aside in ``<name>.damaged``, counted in `damaged_lines` and logged.

        Raises:
            SnapshotError: The file cannot be read, or is of another version.
        """
        snapshot, journal = SnapshotFile(path), JournalFile(path)
        try:
            image = await anyio.to_thread.run_sync(snapshot.read)
            found = await anyio.to_thread.run_sync(journal.read)
        except OSError as error:
            raise SnapshotError(
                f"the presence snapshot {path} cannot be read ({error}): repair its permissions or "
                "choose another path"
            ) from error
        return cls(
            event_ids=event_ids,
            down_min_seconds=down_min_seconds,
            default_interval_seconds=default_interval_seconds,
            beacon_max_age_seconds=beacon_max_age_seconds,
            removed_quiet_seconds=removed_quiet_seconds,
            metrics=metrics,
            snapshot=snapshot,
            journal=journal,
            image=with_journal(
                image,
                found,
                down_min_seconds=down_min_seconds,
                default_interval_seconds=default_interval_seconds,
            ),
        )

    async def run(self, *, clock: AsyncClock, snapshot_interval_seconds: float = 5.0) -> None:
        """Save what changed, every few seconds, and once more when cancelled.

        A save that fails is logged and tried again at the next turn.
        """
        await self._saving.run(clock=clock, interval_seconds=snapshot_interval_seconds)

    async def save(self) -> None:
        """Save now if anything changed since the last save. Raises PresenceError."""
        await self._saving.save()

    async def ping(self) -> None:
        """Raise PresenceError when the last save failed."""
        self._saving.check()

    def _image(self) -> PresenceImage:
        # The states are copied, because the thread that writes them must not see them change.
        return PresenceImage(
            sight=self._sight,
            epoch=self._epoch,
            agents=tuple(state.copy() for state in self._agents.values()),
            gone=self._gone.all(),
            intents=self._intents.all(),
        )

    # --- who is there

    async def touch(
        self,
        agent: AgentRef,
        now: float,
        interval_seconds: float | None,
        *,
        waits_seconds: float = 0.0,
        rule: WatchRule | None = None,
    ) -> None:
        """Note a contact."""
        if agent.agent_id not in self._agents and self._gone.is_quiet(agent.agent_id, now):
            self._metrics.inc(names.PRESENCE_LATE_CONTACTS)
            return
        state = self._get_or_add(agent, rule)
        self._pace(state, interval_seconds, told=True)
        before = state.last_seen
        state.heard(now, self._down_min_seconds, waits_seconds)
        if before is None or now > before:
            self._contacts.heard(agent.agent_id, now)
        if state.down_since is not None:
            self._decide(state, TransitionKind.UP, now, last_seen=before, reason=None)
        self._deadlines.put(state)
        self._saving.changed()

    async def ensure(
        self,
        agent: AgentRef,
        now: float,
        interval_seconds: float | None,
        *,
        rule: WatchRule | None = None,
    ) -> None:
        """Make an agent known."""
        known = agent.agent_id in self._agents
        state = self._get_or_add(agent, rule)
        if rule is None or (
            (rule.is_firm or not known) and interval_of(rule.interval_seconds) is None
        ):
            self._pace(state, interval_seconds, told=False)
        if not known:
            state.wait_for(now, self._down_min_seconds, self._epoch)
            self._deadlines.put(state)
        self._saving.changed()

    async def remove(self, agent_id: str, now: float, reason: str) -> None:
        """Forget an agent, after its up transition when it was down."""
        state = self._agents.get(agent_id)
        if state is None:
            self._gone.add_again(agent_id, now)
            self._saving.changed()
            return
        if state.down_since is not None:
            self._decide(state, TransitionKind.UP, now, last_seen=state.last_seen, reason=reason)
        del self._agents[agent_id]
        self._contacts.forget(agent_id)
        self._gone.add(agent_id, seq=state.seq, now=now)
        self._saving.changed()

    def _get_or_add(self, agent: AgentRef, rule: WatchRule | None) -> AgentState:
        state = self._agents.get(agent.agent_id)
        is_new = state is None
        if state is None:
            state = AgentState(
                agent=agent,
                interval_seconds=self._default_interval_seconds,
                seq=self._gone.take(agent.agent_id),
            )
            self._agents[agent.agent_id] = state
        state.agent = agent
        if rule is not None and (rule.is_firm or is_new):
            usual = interval_of(rule.interval_seconds)
            self._pace(state, self._default_interval_seconds if usual is None else usual)
            state.down_min_seconds = down_min_of(rule)
        return state

    def _pace(
        self, state: AgentState, interval_seconds: float | None, *, told: bool = False
    ) -> None:
        """Take the interval that the agent (told) or a setting names."""
        interval = interval_of(interval_seconds)
        if interval is not None:
            if told or not state.interval_told:
                state.interval_seconds = interval
            state.interval_told = state.interval_told or told

    # --- transitions

    async def expire(self, now: float, limit: int) -> list[Transition]:
        """Decide who fell silent; hand out intents."""
        result = self._intents.first(limit)
        now_ms = to_ms(now)
        while len(result) < limit:
            state = self._deadlines.pop(now_ms)
            if state is None:
                break
            reason = None if state.last_seen is not None else "never_reported"
            result.append(
                self._decide(
                    state, TransitionKind.DOWN, now, last_seen=state.last_seen, reason=reason
                )
            )
        if self._gone.sweep(now, self._intents.has):
            self._saving.changed()
        await self._saving.save_decided()
        return result

    async def pending(self, limit: int) -> list[Transition]:
        """Hand out intents."""
        result = self._intents.first(limit)
        await self._saving.save_decided()
        return result

    async def pending_count(self) -> int:
        """Count intents."""
        return len(self._intents)

    async def confirm(self, transition: Transition) -> None:
        """Drop an intent."""
        if self._intents.confirm(transition):
            self._saving.told(transition.event_id)

    async def confirm_all(self, transitions: Sequence[Transition]) -> None:
        """Drop intents."""
        for transition in transitions:
            await self.confirm(transition)

    def _decide(
        self,
        state: AgentState,
        kind: TransitionKind,
        now: float,
        *,
        last_seen: float | None,
        reason: str | None,
    ) -> Transition:
        """Move the agent and write the intent, in one step that nothing can come between."""
        transition = Transition(
            agent=state.agent,
            event_id=self._event_ids(),
            seq=state.next_seq(now),
            kind=kind,
            occurred_at=now,
            last_seen=last_seen,
            down_since=state.down_since,
            reason=reason,
        )
        state.down_since = now if kind is TransitionKind.DOWN else None
        self._down += 1 if kind is TransitionKind.DOWN else -1
        self._intents.add(transition)
        # Only a removal has a reason to come up; the journal does not tell that the agent is gone.
        self._saving.decided(transition, whole=kind is TransitionKind.UP and reason is not None)
        return transition

    # --- deadlines

    async def grace(
        self, *, now: float, ended_at: float, blind_seconds: float, blind_max_seconds: float
    ) -> None:
        """Let deadlines count anew."""
        epoch = GraceEpoch(
            ended_at=min(ended_at, now), blind_seconds=min(blind_seconds, blind_max_seconds)
        )
        self._epoch = epoch
        for state in self._agents.values():
            if state.down_since is None:
                state.pardon(now, epoch, blind_max_seconds, self._down_min_seconds)
        self._deadlines.rebuild(self._agents.values())
        self._saving.changed()

    async def beacon(self, now: float) -> None:
        """Note that agents could be heard."""
        self._sight = after_beacon(
            self._sight, now, self._beacon_max_age_seconds, first=not self._shone
        )
        self._shone = True
        self._saving.changed()

    async def ingest_sight(self) -> IngestSight | None:
        """Return what the beacons tell."""
        return self._sight

    # --- what the hub and the console are told

    async def drain_seen(self, limit: int) -> SeenLease:
        """Lease contacts."""
        return self._contacts.drain(limit)

    async def confirm_seen(self, lease: SeenLease) -> None:
        """Forget leased contacts."""
        self._contacts.confirm(lease)

    async def release_seen(self, lease: SeenLease) -> None:
        """Take leased contacts back."""
        self._contacts.release(lease, self._last_seen)

    def _last_seen(self, agent_id: str) -> float | None:
        state = self._agents.get(agent_id)
        return None if state is None else state.last_seen

    async def counts(self) -> PresenceCounts:
        """Count all agents."""
        return PresenceCounts(agents=len(self._agents), down=self._down)

    async def company_counts(self) -> dict[str, PresenceCounts]:
        """Count agents by company; they may be some moments apart."""
        return await counted(list(self._agents.values()))

    async def agents(
        self, *, company_id: str | None = None, after: str = "", limit: int = 500
    ) -> list[AgentPresence]:
        """List agents by id."""
        ids = heapq.nsmallest(
            limit,
            (
                agent_id
                for agent_id, state in self._agents.items()
                if agent_id > after and company_id in (None, state.agent.company_id)
            ),
        )
        return [self._agents[agent_id].shown() for agent_id in ids]
