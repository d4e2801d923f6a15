"""Many agents of a company down at once: told as one group.

The state of one company. A step takes the events of one moment (a page of a scan) and ends with one
judgement, so that a group names all that are known when it forms:

| group | in the step                              | next  | told                               |
| ----- | ---------------------------------------- | ----- | ---------------------------------- |
| none  | downs; with them fewer than `min` or     | none  | each agent.down as it is           |
|       | `ratio` in the window                    |       |                                    |
| none  | downs; with them at least `min` and      | group | group.down with all of the window; |
|       | `ratio` in the window                    |       | this step's suppressed under it    |
| group | downs                                    | group | suppressed under it; one           |
|       |                                          |       | group.down of the same key, with   |
|       |                                          |       | the last step of the moment        |
| group | ups, at least `min` members still down   | group | ups as their downs                 |
| group | fewer than `min` members still down,     | none  | group.up; for each of them one     |
|       | this step's with them, or `enabled` is   |       | agent.down, `group_ended`; this    |
|       | false                                    |       | step's downs as they are           |

- **Window**: an agent counts when it is down and went down at most `window_seconds` before the
  newest down that is known: exactly `window_seconds` counts. Exactly `min` is enough, and exactly
  `ratio` of the company's agents.
- **Members** are the agents of the window when the group forms, and then every agent of the company
  that goes down while there is a group. A member that comes up leaves. Who was down for longer when
  the group formed is no member: an agent.down from more than `window_seconds` before that, which
  comes late, goes out as it is.
- **Ups as their downs**: the agent.up of an agent whose agent.down was told is told; where that was
  suppressed under the group, it is suppressed too. So nobody hears of half of it.
- A group forms only in a step with a down in it: other settings or another size of the company form
  none by themselves. Both may end one.
- An agent whose down was suppressed before it came here (by a silence) counts for nothing; it does
  when its silence ends, and its agent.down comes with the reason `silence_ended`.
- The same event again changes nothing and goes out as before.

So while an agent is down, people are told of it: by its own agent.down before the group, and by the
group's list (by its number, from the 1,001st member on), of which the latter alone tells who went
down later; and once more by its own agent.down with the reason `group_ended` when the group ends
first.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Self

import attrs
from attrs import field, frozen

from ahrules._down_times import copied, first, newest
from ahrules._draft import EventDraft
from ahrules._moments import check_aware
from ahrules._reading import shown
from ahrules._snapshots import (
    VERSION,
    count_from_json,
    event_from_json,
    event_to_json,
    field_from_json,
    flag_from_json,
    list_from_json,
    reading,
    row_from_json,
    text_from_json,
    time_from_json,
    time_to_json,
    unique,
)
from ahwire.hub import Event, EventSeverity, EventType, GroupDownSettings
from ahwire.limits import MAX_GROUP_MEMBERS

__all__ = [
    "GROUP_DOWN_DEFAULTS",
    "DownGroup",
    "GroupDownState",
    "GroupDownStep",
    "GroupMember",
    "observe_agents",
]

GROUP_DOWN_DEFAULTS: Final = GroupDownSettings(enabled=True, min=5, ratio=0.3, window_seconds=60.0)
"""The settings of a company that has none: 5 agents and 30 % within 60 seconds."""

_RULE: Final = "group_down"
_REASON: Final = "group_ended"


@frozen(kw_only=True)
class GroupMember:
    """An agent that is down.

    Attributes:
        event: Its agent.down.
        told: Whether that went out unsuppressed.
    """

    event: Event
    told: bool


Members = Mapping[str, GroupMember]
_NOBODY: Final[Members] = MappingProxyType({})


@frozen(kw_only=True)
class DownGroup:
    """A group that is down.

    Attributes:
        key: Its `group_key`; no two groups of a company share one.
        formed_at: When it formed.
        members: Those who are down, by agent id.
        untold: Whether some of them joined since the list was told.
    """

    key: str
    formed_at: datetime
    members: Members = field(hash=False)
    untold: bool = False


@frozen(kw_only=True)
class GroupDownState:
    """What is kept of one company; nothing need be, while no agent is in `recent` or `group`.

    Attributes:
        company_id: The company.
        recent: While there is no group: who went down within the newest window, by agent id.
        group: The group that is down.
        newest_key: Milliseconds in the key of the newest group.
    """

    company_id: str
    recent: Members = field(default=_NOBODY, hash=False)
    group: DownGroup | None = None
    newest_key: int = 0

    def snapshot(self) -> dict[str, Any]:
        """Return everything that `restore` needs, as JSON values."""
        group = self.group
        return {
            "version": VERSION,
            "company_id": self.company_id,
            "recent": _members_to_json(self.recent),
            "newest_key": self.newest_key,
            "group": group
            and {
                "key": group.key,
                "formed_at": time_to_json(group.formed_at),
                "members": _members_to_json(group.members),
                "untold": group.untold,
            },
        }

    @classmethod
    def restore(cls, data: object) -> Self:
        """Return the state that a snapshot holds.

        Raises:
            SnapshotError: It cannot be read.
        """
        with reading("a company's agents that are down", data) as document:
            company_id = text_from_json(field_from_json(document, "company_id"))
            recent = _members_from_json(field_from_json(document, "recent"), company_id)
            newest_key = count_from_json(field_from_json(document, "newest_key"))
            given = field_from_json(document, "group")
            group = None if given is None else _group_from_json(given, company_id)
            if group is not None and (recent or group.key != _group_key(newest_key)):
                raise ValueError("its group is not the newest one, or others went down beside it")
            return cls(company_id=company_id, recent=recent, group=group, newest_key=newest_key)


@frozen(kw_only=True)
class GroupDownStep:
    """What a step came to. Keep the state only together with what it tells.

    Attributes:
        state: The next state.
        events: The events that came in, in their order, as they go out.
        drafts: What is told besides, in this order.
    """

    state: GroupDownState
    events: tuple[Event, ...]
    drafts: tuple[EventDraft, ...]


def observe_agents(
    state: GroupDownState,
    events: Sequence[Event],
    *,
    settings: GroupDownSettings,
    company_agents: int,
    now: datetime,
    more_follow: bool = False,
) -> GroupDownStep:
    """Take what happened to agents of a company at one moment; see the module's text.

    Also without events: when the settings changed, as a group may end by that, and to tell who
    joined when nothing followed after all.

    Args:
        state: What is kept of the company.
        events: agent.down and agent.up of the company, an agent's own in their order. Drafts that
            came from here are not given back.
        settings: The company's, as they are now.
        company_agents: How many agents the company has.
        now: When groups begin and end: an aware datetime.
        more_follow: Whether there may be more of this moment. Then the list of a group that grew is
            told by the next step without it, once for all of them.

    Raises:
        InstantError: `now` is naive.
        ValueError: An event is another company's, or of another type.
    """
    check_aware(now)
    work = _Work(state)
    for event in events:
        work.take(event, settings.window_seconds)
    if state.group is not None:
        return work.judge_group(state.group, settings, now, more_follow=more_follow)
    return work.judge_recent(settings, company_agents, now)


class _Work:
    """One step while it goes on."""

    def __init__(self, state: GroupDownState) -> None:
        self._state = state
        self._group = state.group
        self._members = copied(state.recent if state.group is None else state.group.members)
        self._events: list[Event] = []
        # Where the agent.down stands of those who went down in this step and still are. How it goes
        # out is judged at the end.
        self._fresh: dict[str, list[int]] = {}

    def take(self, event: Event, window_seconds: float) -> None:
        """Take one event of the company; the window is that of groups."""
        if event.company_id != self._state.company_id:
            raise ValueError(
                f"an event of {event.company_id!r} came to the state of {self._state.company_id!r}"
            )
        agent = _agent_of(event)
        self._events.append(event)
        if event.type is EventType.AGENT_UP:
            self._leave(agent)
            return
        if event.type is not EventType.AGENT_DOWN:
            raise ValueError(f"an event of type {event.type} is about no agent's silence")
        if event.suppressed or event.reason == _REASON:
            return
        known = agent in self._members
        if not known and self._is_older(event, window_seconds):
            return
        if not known or agent in self._fresh:
            self._members[agent] = GroupMember(event=event, told=True)
            self._fresh.setdefault(agent, []).append(len(self._events) - 1)
        elif not self._members[agent].told:
            self._hide(len(self._events) - 1)

    def _is_older(self, event: Event, window_seconds: float) -> bool:
        """Whether the agent was down before the group's window: then its down came late."""
        group = self._group
        if group is None:
            return False
        return (group.formed_at - event.occurred_at).total_seconds() > window_seconds

    def _leave(self, agent: str) -> None:
        """Let the last event, an agent.up, go out as its agent.down did."""
        member = self._members.pop(agent, None)
        downs = self._fresh.pop(agent, [])
        if self._group is not None and (downs or (member is not None and not member.told)):
            self._hide(*downs, len(self._events) - 1)

    def _hide(self, *places: int) -> None:
        assert self._group is not None, "nothing is hidden but under a group"
        for place in places:
            event = self._events[place]
            if not event.suppressed:
                self._events[place] = attrs.evolve(
                    event, suppressed=True, suppress_reason=_RULE, group_key=self._group.key
                )

    def judge_group(
        self, group: DownGroup, settings: GroupDownSettings, now: datetime, *, more_follow: bool
    ) -> GroupDownStep:
        """End the group, tell who joined it, or neither."""
        if settings.enabled and len(self._members) >= settings.min:
            grew = group.untold or bool(self._fresh)
            group = attrs.evolve(
                group, members=self._join(self._members), untold=grew and more_follow
            )
            tells = grew and not more_follow
            drafts = (self._tell(group, EventType.GROUP_DOWN, now),) if tells else ()
            return self._step(attrs.evolve(self._state, group=group), drafts)
        left = {
            agent: attrs.evolve(member, told=True)
            for agent, member in self._members.items()
            if agent not in self._fresh
        }
        group = attrs.evolve(group, members=MappingProxyType(left))
        recent = newest(self._members | left, settings.window_seconds)
        again = (
            EventDraft.again(member.event, occurred_at=now, reason=_REASON)
            for _, member in first(left, len(left))
        )
        ended = (self._tell(group, EventType.GROUP_UP, now), *again)
        return self._step(attrs.evolve(self._state, group=None, recent=recent), ended)

    def judge_recent(
        self, settings: GroupDownSettings, company_agents: int, now: datetime
    ) -> GroupDownStep:
        """Form a group, or not."""
        recent = newest(self._members, settings.window_seconds)
        count = len(recent)
        # A size from before these agents came is too small; a division by it must not be by 0.
        share = count / max(company_agents, count, 1)
        forms = settings.enabled and count >= settings.min and share >= settings.ratio
        if not (forms and self._fresh):
            return self._step(attrs.evolve(self._state, recent=recent), ())
        newest_key = max(int(now.timestamp() * 1000), self._state.newest_key + 1)
        self._group = DownGroup(key=_group_key(newest_key), formed_at=now, members=_NOBODY)
        group = attrs.evolve(self._group, members=self._join(recent))
        state = attrs.evolve(self._state, recent=_NOBODY, group=group, newest_key=newest_key)
        return self._step(state, (self._tell(group, EventType.GROUP_DOWN, now),))

    def _join(self, members: Members) -> Members:
        """Hide the events of those of them who went down in this step."""
        joined = copied(members)
        for agent, places in self._fresh.items():
            if agent in joined:
                joined[agent] = attrs.evolve(joined[agent], told=False)
                self._hide(*places)
        return MappingProxyType(joined)

    def _step(self, state: GroupDownState, drafts: tuple[EventDraft, ...]) -> GroupDownStep:
        return GroupDownStep(state=state, events=tuple(self._events), drafts=drafts)

    def _tell(self, group: DownGroup, kind: EventType, now: datetime) -> EventDraft:
        ended = kind is EventType.GROUP_UP
        named = first(group.members, MAX_GROUP_MEMBERS)
        return EventDraft(
            type=kind,
            occurred_at=now,
            company_id=self._state.company_id,
            rule_id=_RULE,
            severity=EventSeverity.INFO if ended else EventSeverity.CRITICAL,
            duration_seconds=max(0.0, (now - group.formed_at).total_seconds()) if ended else None,
            group_key=group.key,
            labels={
                "members": [agent for agent, _ in named],
                "members_count": len(group.members),
            },
        )


def _members_to_json(members: Members) -> list[Any]:
    return [[agent, event_to_json(each.event), each.told] for agent, each in members.items()]


def _group_key(newest_key: int) -> str:
    return f"group-{newest_key}"


def _agent_of(event: Event) -> str:
    return event.agent_id or event.server_id or ""


def _group_from_json(data: object, company_id: str) -> DownGroup:
    return DownGroup(
        key=text_from_json(field_from_json(data, "key")),
        formed_at=time_from_json(field_from_json(data, "formed_at")),
        members=_members_from_json(field_from_json(data, "members"), company_id),
        untold=flag_from_json(field_from_json(data, "untold", default=False)),
    )


def _members_from_json(data: object, company_id: str) -> Members:
    rows = list_from_json(data, "members")
    return MappingProxyType(unique(_member_from_json(row, company_id) for row in rows))


def _member_from_json(data: object, company_id: str) -> tuple[str, GroupMember]:
    agent, document, told = row_from_json(data, "agent", "event", "told")
    event = event_from_json(document)
    if (event.type, event.company_id, _agent_of(event)) != (
        EventType.AGENT_DOWN,
        company_id,
        agent,
    ):
        raise ValueError(f"the event of {shown(agent)} is no agent.down of this company's agent")
    return text_from_json(agent), GroupMember(event=event, told=flag_from_json(told))
