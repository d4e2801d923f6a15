"""One company's agents: what happened to them, led through silences and the group of downs.

Pure: what it decides is stored and told by `AgentEventStage`, which waits in between.

* A transition whose seq is not above the last one that was taken of its agent was taken already,
  and moves nothing. So presence may hand it out again after a crash.
* What is told besides a transition (an owed agent.down, a group) has a seq above all that this
  company was told before; where presence gives an agent a lower one afterwards, the event goes out
  with the next above what its agent was told.
* A decision stays in `new`, and what it moved in the dirty names, until `stored` is called for a
  change that carries them. So a change that may or may not have been stored is made again, with the
  same events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import attrs

from ahcollector.alerts.base import AlertChange, AlertImage
from ahcollector.alerts.stages import SilenceStage
from ahcollector.detector._company_texts import (
    AgentSeqs,
    Found,
    dump,
    group_of,
    head_text,
    member_text,
    members_of,
    seqs_of,
    settings_of,
)
from ahcollector.detector._events import event_of, moment
from ahcollector.detector._told import is_repeat
from ahcollector.presence.base import Transition
from ahrules import (
    EventDraft,
    EventKey,
    GroupDownState,
    SilenceSet,
    event_key,
    observe_agents,
)
from ahwire import DecodeError, Event, EventType, next_seq
from ahwire.hub import GroupDownSettings

__all__ = ["CompanyAgents"]

_AGENTS: Final = "agents"
_MEMBERS: Final = "members"
_HEAD: Final = "group"
_NULL: Final = "null"
_PIECES_MIN: Final = 256
_CHUNK: Final = 500
_SEQ_KEEP_MS: Final = 30 * 86_400_000


class CompanyAgents:
    """Judges what happened to the agents of one company; for one task at a time.

    Args:
        company_id: The tenant.
        defaults: When its agents are a group, while nobody has said otherwise.
        event_ids: Makes event ids, each above the last.
        lost: Told of an event that breaks the contract of events.
        held_max: How many agents silences may hold back.

    Attributes:
        epoch: What its commits carry.
        new: Events decided, not stored yet, in order.
        waiting: Events stored, not in the outbox yet, in order.
        appended: Ids of those that the outbox has and the store still keeps.
    """

    def __init__(
        self,
        company_id: str,
        *,
        defaults: GroupDownSettings,
        event_ids: Callable[[], str],
        lost: Callable[[EventType, Exception], None],
        held_max: int,
    ) -> None:
        self.company_id = company_id
        self._settings = defaults
        self._event_ids = event_ids
        self._lost = lost
        self._silences = SilenceStage(held_max=held_max)
        self._group = GroupDownState(company_id=company_id)
        self._seqs: dict[str, AgentSeqs] = {}
        self._seq = 0
        self._now_ms = 0
        self._moved_agents: dict[str, None] = {}
        self._moved_keys: dict[EventKey, None] = {}
        self._moved_members: dict[str, None] = {}
        self._is_head_moved = False
        self._pieces_kept = 0
        self._is_whole_due = False
        self.epoch = 0
        self.new: list[Event] = []
        self.waiting: dict[str, Event] = {}
        self.appended: dict[str, None] = {}

    # --- what is judged

    def refresh(self, silences: SilenceSet | None, settings: GroupDownSettings | None) -> None:
        """Judge by these from now on; None: by the last ones."""
        if silences is not None:
            self._silences.replace(silences)
        if settings is not None and settings != self._settings:
            self._settings, self._is_head_moved = settings, True

    def is_fresh(self, transition: Transition) -> bool:
        """Whether a transition was not taken yet."""
        seqs = self._seqs.get(transition.agent.agent_id)
        return seqs is None or transition.seq > seqs.taken

    def take(
        self,
        transitions: Iterable[Transition],
        now: float,
        *,
        agents: int,
        more_follow: bool = False,
    ) -> None:
        """Take what happened to agents, each agent's in order; what was taken already is passed.

        Args:
            transitions: Of this company.
            now: Unix seconds.
            agents: How many agents the company has.
            more_follow: Whether there may be more of this moment; who joined a group is then told
                by the next call without it, or by `settle`.
        """
        at = self._at(now)
        events = []
        for transition in transitions:
            if self.is_fresh(transition):
                event = self._with_seq(transition)
                events.append(self._marked(event, at))
        if events or (self.is_growing and not more_follow):
            self._judge(events, at, agents, more_follow=more_follow)

    @property
    def is_growing(self) -> bool:
        """Whether agents joined its group of whom the group's list was not told yet."""
        return self._group.group is not None and self._group.group.untold

    def settle(self, now: float, *, agents: int) -> None:
        """Tell who joined the group, when nothing followed."""
        if self.is_growing:
            self._judge((), self._at(now), agents)

    def tick(self, now: float, *, agents: int) -> None:
        """Let time pass: tell what silences owe, and end a group that is none any more."""
        at = self._at(now)
        owed: list[Event] = []
        # In an order that does not hang on how the states were stored.
        for draft in sorted(self._silences.tick(at), key=event_key):
            event = self._minted(draft)
            if event is not None:
                event = self._marked(event, at)
                if event.type.is_group:
                    self.new.append(event)
                else:
                    owed.append(event)
        if owed or self._group.group is not None:
            self._judge(owed, at, agents)

    def _at(self, now: float) -> datetime:
        self._now_ms = int(now * 1000)
        return moment(now)

    def _with_seq(self, transition: Transition) -> Event:
        event = event_of(transition)
        agent_id = transition.agent.agent_id
        seqs = self._seqs.get(agent_id)
        if seqs is not None and event.seq <= seqs.told:
            event = attrs.evolve(event, seq=seqs.told + 1)
        self._note(agent_id, AgentSeqs(transition.seq, event.seq))
        return event

    def _note(self, agent_id: str, seqs: AgentSeqs) -> None:
        self._seqs[agent_id] = seqs
        self._seq = max(self._seq, seqs.told)
        self._moved_agents[agent_id] = None

    def _marked(self, event: Event, at: datetime) -> Event:
        self._moved_keys[event_key(event)] = None
        marked, _ = self._silences.take(event, at)
        return marked

    def _judge(
        self, events: Sequence[Event], at: datetime, agents: int, *, more_follow: bool = False
    ) -> None:
        step = observe_agents(
            self._group,
            events,
            settings=self._settings,
            company_agents=agents,
            now=at,
            more_follow=more_follow,
        )
        self._move_to(step.state, events)
        self.new += step.events
        for draft in step.drafts:
            event = self._minted(draft)
            if event is not None:
                # These are the group's own words, and not given to it again.
                self.new.append(self._marked(event, at))

    def _move_to(self, state: GroupDownState, events: Sequence[Event]) -> None:
        before, after = members_of(self._group), members_of(state)
        was, now = self._group.group, state.group
        names = {event.agent_id for event in events if event.agent_id is not None}
        if (was is None) != (now is None):
            names = before.keys() | after.keys()
        elif was is None:
            # Besides those of whom there is an event, only those move who leave the window.
            names |= before.keys() ^ after.keys()
        for agent_id in names:
            if before.get(agent_id) is not after.get(agent_id):
                self._moved_members[agent_id] = None
        if (was is None, was and was.untold) != (now is None, now and now.untold):
            self._is_head_moved = True
        self._group = state

    def _minted(self, draft: EventDraft) -> Event | None:
        seq = next_seq(self._now_ms, self._seq)
        try:
            event = draft.event(event_id=self._event_ids(), seq=seq)
        except DecodeError as error:
            self._lost(draft.type, error)
            return None
        self._seq = seq
        if event.agent_id is not None:
            seqs = self._seqs.get(event.agent_id)
            self._note(event.agent_id, AgentSeqs(0 if seqs is None else seqs.taken, seq))
        return event

    # --- what is stored

    @property
    def is_dirty(self) -> bool:
        """Whether a decision is not stored yet."""
        return bool(self.new or self._is_whole_due or self._moved)

    @property
    def _moved(self) -> int:
        moved = len(self._moved_agents) + len(self._moved_keys) + len(self._moved_members)
        return moved + self._is_head_moved

    @property
    def is_told(self) -> bool:
        """Whether the outbox has everything that was decided."""
        return not self.new and len(self.appended) == len(self.waiting)

    @property
    def held(self) -> int:
        """How many agents and groups silences hold back."""
        return len(self._silences)

    @property
    def owed(self) -> int:
        """How many events besides those of transitions are on their way to the outbox."""
        return sum(
            event.event_id not in self.appended and (event.type.is_group or is_repeat(event))
            for event in (*self.new, *self.waiting.values())
        )

    @property
    def is_idle(self) -> bool:
        """Whether neither time nor other silences and settings can move it."""
        return not (self.held or self._group.group or self.is_dirty or self.waiting)

    def is_forgettable(self, now: float) -> bool:
        """Whether nothing would be missed, because nothing happened for 30 days."""
        return (
            self.is_idle
            and not members_of(self._group)
            and self._seq < int(now * 1000) - _SEQ_KEEP_MS
        )

    def changes(self, now: float) -> Iterator[AlertChange | None]:
        """Yield None after each of the steps that make the next change, and the change at last.

        Nothing may move the company in between.
        """
        entries = len(self._seqs) + len(self._silences) + len(members_of(self._group))
        if not (self._is_whole_due or self._pieces_kept + self._moved > _PIECES_MIN + entries):
            pieces: dict[str, str | None] = {}
            for number, (name, text) in enumerate(self._pieces(), 1):
                pieces[name] = text
                if number % _CHUNK == 0:
                    yield None
            yield AlertChange(seq=self._seq, pieces=pieces, intents=tuple(self.new))
            return
        oldest = int(now * 1000) - _SEQ_KEEP_MS
        self._seqs = {agent: seqs for agent, seqs in self._seqs.items() if seqs.told >= oldest}
        rows: list[str] = []
        for number, pair in enumerate(members_of(self._group).items()):
            rows.append(member_text(*pair))
            if number % _CHUNK == _CHUNK - 1:
                yield None
        agents: list[str] = []
        for number, (agent, seqs) in enumerate(self._seqs.items()):
            agents.append(f"{dump(agent)}:[{seqs.taken},{seqs.told}]")
            if number % _CHUNK == _CHUNK - 1:
                yield None
        base = {
            _AGENTS: f"{{{','.join(agents)}}}",
            _HEAD: head_text(self._group, self._settings),
            _MEMBERS: f"[{','.join(rows)}]",
            self._silences.name: dump(self._silences.snapshot()),
        }
        yield AlertChange(seq=self._seq, base=base, intents=tuple(self.new))

    def _pieces(self) -> Iterator[tuple[str, str]]:
        for agent_id in self._moved_agents:
            seqs = self._seqs[agent_id]
            yield dump(["q", agent_id]), dump([seqs.taken, seqs.told])
        for key in self._moved_keys:
            # Also where nothing is kept any more: the base may still have it.
            yield dump(["a", *key]), dump(self._silences.snapshot_alert(key))
        members = members_of(self._group)
        for agent_id in self._moved_members:
            member = members.get(agent_id)
            text = _NULL if member is None else member_text(agent_id, member)
            yield dump(["m", agent_id]), text
        if self._is_head_moved:
            yield dump(["g"]), head_text(self._group, self._settings)

    def stored(self, change: AlertChange) -> None:
        """Note that a change is stored; nothing moved since it was made."""
        self.waiting.update((event.event_id, event) for event in change.intents)
        self.new.clear()
        self._moved_agents.clear()
        self._moved_keys.clear()
        self._moved_members.clear()
        self._is_head_moved = self._is_whole_due = False
        self._pieces_kept = 0 if change.base is not None else self._pieces_kept + len(change.pieces)

    def told(self, event_ids: Iterable[str]) -> None:
        """Note that the outbox has events and the store keeps them no more."""
        for event_id in event_ids:
            self.waiting.pop(event_id, None)
            self.appended.pop(event_id, None)

    def restore(self, image: AlertImage) -> list[str]:
        """Become what is stored, as far as it can be read; return what could not be.

        Only for a company that is new.
        """
        self.epoch, self._seq = image.epoch, image.seq
        self.waiting = {event.event_id: event for event in image.intents}
        self._pieces_kept = len(image.pieces)
        found = Found()
        for part, text in image.base.items():
            found.read(part, partial(self._read_base, found, part, text))
        for name, text in image.pieces.items():
            found.read(name, partial(self._read_piece, found, name, text))
        found.read(_HEAD, lambda: self._restore_group(found))
        self._is_whole_due = bool(found.faults)
        return found.faults

    def _read_base(self, found: Found, part: str, text: str) -> None:
        data = json.loads(text)
        if part == _AGENTS:
            self._seqs = {agent: seqs_of(row) for agent, row in data.items()}
        elif part == _MEMBERS:
            found.members = {row[0]: row for row in data}
        elif part == _HEAD:
            found.head = data
        elif part == self._silences.name:
            self._silences.restore(data)

    def _read_piece(self, found: Found, name: str, text: str) -> None:
        kind, *rest = json.loads(name)
        data = json.loads(text)
        if kind == "q":
            self._seqs[rest[0]] = seqs_of(data)
        elif kind == "a":
            company, server, rule, series, agent, group = rest
            self._silences.restore_alert((company, server, rule, series, agent, group), data)
        elif kind == "m" and data is None:
            found.members.pop(rest[0], None)
        elif kind == "m":
            found.members[rest[0]] = data
        elif kind == "g":
            found.head = data

    def _restore_group(self, found: Found) -> None:
        self._group = group_of(self.company_id, found)
        if found.head is not None:
            self._settings = settings_of(found.head)
