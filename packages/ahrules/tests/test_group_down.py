"""Many agents of a company down at once."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import (
    GROUP_DOWN_DEFAULTS,
    GroupDownState,
    InstantError,
    SnapshotError,
    observe_agents,
)
from ahwire.hub import Event, EventSeverity, EventType, GroupDownSettings

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def at(seconds):
    return START + timedelta(seconds=seconds)


def event(kind, agent, when, **values):
    given = {
        "event_id": "0190b6f2-0000-7000-8000-000000000001",
        "type": EventType(f"agent.{kind}"),
        "seq": 1,
        "occurred_at": when if isinstance(when, datetime) else at(when),
        "company_id": "c1",
        "server_id": f"s-{agent}",
        "agent_id": agent,
        "rule_id": "agent_down",
        "series_key": "agent",
        "severity": EventSeverity.CRITICAL if kind == "down" else EventSeverity.INFO,
        "suppressed": False,
    }
    return Event(**(given | values))


class Company:
    """The state of a company, and everything that went out."""

    def __init__(self, agents=100, settings=GROUP_DOWN_DEFAULTS):
        self.state = GroupDownState(company_id="c1")
        self.agents, self.settings = agents, settings
        self.log = []

    def step(self, seconds, *, down=(), up=(), events=(), more_follow=False):
        """`told`/`hidden` with each event that came in, then what came besides."""
        now = at(seconds)
        events = [
            *events,
            *(event("down", agent, now) for agent in down),
            *(event("up", agent, now) for agent in up),
        ]
        done = observe_agents(
            self.state,
            events,
            settings=self.settings,
            company_agents=self.agents,
            now=now,
            more_follow=more_follow,
        )
        self.state = done.state
        self.log += [*done.events, *done.drafts]
        assert [each.event_id for each in done.events] == [each.event_id for each in events]
        lines = [
            f"{'hidden' if each.suppressed else 'told'} {each.type.value} {each.agent_id}"
            for each in done.events
        ]
        for draft in done.drafts:
            assert not draft.suppressed
            what = draft.agent_id or f"{draft.group_key} {draft.labels['members_count']}"
            lines.append(f"{draft.type.value} {what}")
        return lines


def names(first, last):
    return [f"a{number:04}" for number in range(first, last + 1)]


KEY = f"group-{int(START.timestamp()) * 1000}"


def test_a9_thirty_agents_in_one_step_are_one_group_that_lists_them_and_the_next_is_an_update():
    company = Company(agents=100)
    told = company.step(0, down=names(1, 30))
    assert told == [f"hidden agent.down {name}" for name in names(1, 30)] + [f"group.down {KEY} 30"]
    group = company.log[-1]
    assert group.labels == {"members": names(1, 30), "members_count": 30}
    assert (group.company_id, group.server_id, group.rule_id) == ("c1", None, "group_down")
    assert (group.severity, group.occurred_at, group.reason) == ("critical", START, None)
    hidden = company.log[0]
    assert (hidden.suppress_reason, hidden.group_key) == ("group_down", KEY)
    assert company.step(3_600, down=["a0031"]) == [
        "hidden agent.down a0031",
        f"group.down {KEY} 31",
    ]
    assert company.log[-1].labels["members"] == names(1, 31)
    assert company.log[-1].event(event_id=hidden.event_id, seq=2).group_key == KEY


def test_a9_one_by_one_those_before_the_group_are_told_and_the_group_lists_them_too():
    company = Company(agents=100)
    for second, name in enumerate(names(1, 29)):
        assert company.step(second, down=[name]) == [f"told agent.down {name}"]
    told = company.step(29, down=["a0030"])
    assert told[0] == "hidden agent.down a0030"
    assert company.log[-1].labels["members"] == names(1, 30)
    assert len(told) == 2


def test_a9_exactly_the_number_and_exactly_the_share_are_enough():
    assert len(Company(agents=16).step(0, down=names(1, 5))) == 6
    assert len(Company(agents=17).step(0, down=names(1, 5))) == 5, "5 of 17 are 29 %"
    assert len(Company(agents=1).step(0, down=names(1, 4))) == 4, "fewer than 5"
    assert len(Company(agents=100).step(0, down=names(1, 29))) == 29
    # Shares that no binary fraction is: k of n is exactly what k/n is written as.
    for percent in range(1, 101):
        settings = GroupDownSettings(enabled=True, min=1, ratio=percent / 100, window_seconds=1)
        assert len(Company(100, settings).step(0, down=names(1, percent))) == percent + 1
        if percent > 1:
            assert len(Company(100, settings).step(0, down=names(2, percent))) == percent - 1


def test_a9_exactly_the_window_is_inside_and_a_microsecond_more_is_not():
    def last(when):
        company = Company(agents=10)
        company.step(0, down=names(1, 4))
        return company.step(70, events=[event("down", "a0005", when)])

    assert last(at(60)) == ["hidden agent.down a0005", f"group.down group-{KEY[6:-5]}70000 5"]
    assert last(at(60) + TICK) == ["told agent.down a0005"]


def test_who_came_up_again_does_not_count():
    company = Company(agents=10)
    company.step(0, down=names(1, 4))
    company.step(10, up=["a0004"])
    assert company.step(20, down=["a0005"]) == ["told agent.down a0005"]
    assert company.step(30, down=["a0004"])[-1].endswith(" 5")


def test_who_was_down_for_longer_is_no_member_and_is_told_by_itself():
    company = Company(agents=10)
    company.step(0, down=["old"])
    company.step(1_000, down=names(1, 5))
    assert company.log[-1].labels["members"] == names(1, 5)
    assert company.step(1_001, up=["old"]) == ["told agent.up old"]


def test_a_down_that_comes_late_is_told_by_itself_when_a_group_forms_without_it():
    company = Company(agents=10)
    late = event("down", "late", 0)
    told = company.step(100, down=names(1, 5), events=[late])
    assert told[0] == "told agent.down late"
    assert company.log[-1].labels["members"] == names(1, 5)


def test_a10_a_group_that_ends_with_two_still_down_tells_each_of_them_once():
    company = Company(agents=10)
    company.step(0, down=["a0001"])
    last_seen = {"labels": {"last_seen_at": "2026-06-15T11:58:00.000Z"}, "reason": "never_reported"}
    company.step(5, down=names(3, 5), events=[event("down", "a0002", 5, **last_seen)])
    assert company.log[-1].labels["members_count"] == 5
    told = company.step(600, up=names(3, 5))
    assert told == [f"hidden agent.up {name}" for name in names(3, 5)] + [
        f"group.up {company.log[-3].group_key} 2",
        "agent.down a0001",
        "agent.down a0002",
    ]
    group, _, down = company.log[-3:]
    assert group.labels == {"members": names(1, 2), "members_count": 2}
    assert (group.severity, group.duration_seconds) == ("info", 595.0)
    # The old state under the hub's key, with a reason of its own.
    assert (down.reason, down.occurred_at, down.group_key) == ("group_ended", at(600), None)
    assert (down.server_id, down.rule_id, down.series_key) == ("s-a0002", "agent_down", "agent")
    assert (down.severity, down.labels) == ("critical", last_seen["labels"])
    assert company.step(700) == []
    assert company.step(800, up=names(1, 2)) == ["told agent.up a0001", "told agent.up a0002"]


def test_a_group_goes_on_while_the_minimum_is_down_and_each_up_is_told_as_its_down_was():
    company = Company(agents=10)
    company.step(0, down=names(1, 2))
    company.step(1, down=names(3, 7))
    assert company.step(2, up=["a0001", "a0007"]) == [
        "told agent.up a0001",
        "hidden agent.up a0007",
    ]
    assert company.step(3, down=["a0001"])[0] == "hidden agent.down a0001"
    assert company.step(4, up=["a0001"]) == ["hidden agent.up a0001"]
    assert company.step(5, up=["a0002"])[1].startswith("group.up ")


def test_who_goes_down_and_up_in_one_step_is_told_of_alike_and_joins_nothing():
    company = Company(agents=10)
    both = [event("down", "x", 0), event("up", "x", 0)]
    told = company.step(0, down=names(1, 5), events=both)
    assert told[:2] == ["told agent.down x", "told agent.up x"]
    assert company.log[-1].labels["members"] == names(1, 5)
    assert company.step(1, events=both) == ["hidden agent.down x", "hidden agent.up x"]


def test_a_group_of_more_than_a_thousand_names_the_first_thousand_and_counts_all():
    company = Company(agents=2_000)
    company.step(0, down=names(501, 1_500))
    company.step(1, down=names(1, 500))
    group = company.log[-1]
    assert group.labels["members_count"] == 1_500
    assert group.labels["members"] == names(501, 1_500), "by when they went down, then by id"
    assert group.event(event_id=company.log[0].event_id, seq=1).labels == group.labels


def test_a_moment_in_several_steps_tells_the_group_at_once_and_who_joined_with_the_last_of_them():
    company = Company(agents=60)
    assert company.step(0, down=names(1, 20), more_follow=True)[-1] == f"group.down {KEY} 20"
    assert company.step(0, down=names(21, 40), more_follow=True)[-1].startswith("hidden agent.down")
    assert company.state.group.untold
    company.state = GroupDownState.restore(json.loads(json.dumps(company.state.snapshot())))
    assert company.step(0, down=names(41, 50))[-1] == f"group.down {KEY} 50"
    assert not company.state.group.untold
    assert company.step(1) == []


def test_who_joined_is_told_also_when_nothing_followed_and_never_after_the_groups_end():
    company = Company(agents=60)
    company.step(0, down=names(1, 20))
    company.step(0, down=names(21, 40), more_follow=True)
    assert company.step(10) == [f"group.down {KEY} 40"]
    assert company.step(10) == []
    company.step(20, down=names(41, 42), more_follow=True)
    ended = company.step(30, up=names(1, 40))
    assert ended[-3:] == [f"group.up {KEY} 2", "agent.down a0041", "agent.down a0042"]
    assert company.step(40) == []


def test_the_same_events_again_change_nothing_and_go_out_as_before():
    company = Company(agents=10)
    first = [event("down", name, 0) for name in names(1, 4)]
    told = company.step(0, events=first)
    state = company.state
    assert company.step(1, events=first) == told
    assert company.state == state
    last = [event("down", "a0005", 2)]
    told = company.step(2, events=last)
    assert company.step(3, events=last) == told[:1]
    again = ["told agent.down a0001", "hidden agent.down a0005", "told agent.down a0002"]
    assert company.step(3, events=[first[0], *last, first[1]]) == again
    assert company.step(3, events=first) == [f"told agent.down {name}" for name in names(1, 4)]


def test_what_a_silence_hid_counts_for_nothing_until_the_silence_ends():
    company = Company(agents=10)
    hidden = {"suppressed": True, "suppress_reason": "silence:s"}
    silenced = [event("down", name, 0, **hidden) for name in names(1, 5)]
    assert company.step(0, events=silenced) == [f"hidden agent.down {name}" for name in names(1, 5)]
    assert company.log[0].suppress_reason == "silence:s"
    assert company.state == GroupDownState(company_id="c1")
    after = [event("down", name, 900, reason="silence_ended") for name in names(1, 5)]
    assert company.step(900, events=after)[-1].endswith(" 5")
    assert company.step(901, events=[event("up", "a0001", 901, **hidden)])[-5].startswith(
        "group.up"
    )
    assert company.log[-6].suppress_reason == "silence:s"


def test_what_came_from_here_counts_for_nothing_when_it_comes_back():
    company = Company(agents=10)
    again = [event("down", name, 0, reason="group_ended") for name in names(1, 5)]
    assert company.step(0, events=again) == [f"told agent.down {name}" for name in names(1, 5)]
    assert not company.state.recent


def test_settings_and_size_end_a_group_at_once_but_form_none():
    company = Company(agents=10)
    company.step(0, down=names(1, 5))
    company.agents = 1_000
    assert company.step(1) == []
    company.settings = attrs.evolve(GROUP_DOWN_DEFAULTS, ratio=1.0, window_seconds=0)
    assert company.step(2) == []
    company.settings = attrs.evolve(GROUP_DOWN_DEFAULTS, min=6)
    told = company.step(3)
    assert told == [f"group.up {KEY} 5", *(f"agent.down {name}" for name in names(1, 5))]
    company.settings, company.agents = GROUP_DOWN_DEFAULTS, 10
    assert company.step(4) == [], "nobody went down now"
    assert company.step(4, up=["a0001"]) == ["told agent.up a0001"]


def test_turned_off_a_group_ends_and_none_forms_and_turned_on_the_window_is_known():
    company = Company(agents=10)
    company.step(0, down=names(1, 5))
    company.settings = attrs.evolve(GROUP_DOWN_DEFAULTS, enabled=False)
    assert len(company.step(1)) == 6
    assert company.step(2, down=["a0006"]) == ["told agent.down a0006"]
    company.settings = GROUP_DOWN_DEFAULTS
    assert company.step(3, down=["a0007"])[-1].endswith(" 7")


def test_agents_that_are_removed_leave_the_group():
    company = Company(agents=10)
    company.step(0, down=names(1, 5))
    removed = [event("up", "a0001", 9, reason="removed")]
    told = company.step(9, events=removed)
    assert told[:2] == ["hidden agent.up a0001", f"group.up {KEY} 4"]


def test_a_size_that_is_too_small_counts_as_the_agents_that_are_down():
    assert len(Company(agents=0).step(0, down=names(1, 5))) == 6
    settings = GroupDownSettings(enabled=True, min=1, ratio=1, window_seconds=1)
    assert Company(0, settings).step(0) == []


def test_two_groups_never_share_a_key_even_when_the_clock_stands_or_goes_back():
    company = Company(agents=10)
    keys = []
    for second in (0, 0, -5):
        company.step(second, down=names(1, 5))
        keys.append(company.log[-1].group_key)
        company.step(second, up=names(1, 5))
    assert len(set(keys)) == 3
    assert keys == sorted(keys)
    assert company.log[-1].duration_seconds == 0.0


def test_a_group_that_formed_within_the_window_of_the_last_has_its_own_key():
    company = Company(agents=10)
    company.step(0, down=names(1, 5))
    company.step(1, up=["a0001"])
    told = company.step(2, down=["a0001"])
    assert told[0] == "hidden agent.down a0001"
    assert company.log[-1].labels["members"] == ["a0002", "a0003", "a0004", "a0005", "a0001"]
    assert company.log[-1].group_key != KEY


def test_an_agent_without_an_id_is_known_by_its_server():
    company = Company(agents=10)
    company.step(0, events=[event("down", name, 0, agent_id=None) for name in names(1, 5)])
    assert company.log[-1].labels["members"] == [f"s-{name}" for name in names(1, 5)]


def test_what_does_not_belong_here_is_refused():
    company = Company()
    with pytest.raises(ValueError, match="'c2' came to the state of 'c1'"):
        company.step(0, events=[event("down", "a", 0, company_id="c2")])
    with pytest.raises(ValueError, match=r"alert\.opened"):
        company.step(0, events=[event("down", "a", 0, type=EventType.ALERT_OPENED)])
    with pytest.raises(InstantError):
        observe_agents(
            company.state,
            [],
            settings=GROUP_DOWN_DEFAULTS,
            company_agents=1,
            now=datetime(2026, 6, 15),
        )


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"company_id": None},
        {"recent": 7},
        {"recent": [["a", {}, True]]},
        {"newest_key": -1},
        {"newest_key": "1"},
        {"group": {}},
        {"group": {"key": "g", "formed_at": 7, "members": []}},
    ],
)
def test_a_snapshot_that_cannot_be_read_is_refused(change):
    with pytest.raises(SnapshotError, match="start without it"):
        GroupDownState.restore(GroupDownState(company_id="c1").snapshot() | change)
    with pytest.raises(SnapshotError):
        GroupDownState.restore(None)


POOL = names(1, 9)
moves = st.dictionaries(
    st.sampled_from(POOL), st.sampled_from(["down", "up", "bounce"]), max_size=9
)
pauses = st.sampled_from([0, 1, 20, 40, 59, 60, 61, 500])
all_settings = st.builds(
    GroupDownSettings,
    enabled=st.sampled_from([True, True, True, False]),
    min=st.integers(1, 5),
    ratio=st.sampled_from([0.0, 0.3, 0.5]),
    window_seconds=st.just(60.0),
)
scripts = st.lists(
    st.tuples(pauses, moves, st.none() | all_settings, st.integers(0, 12)), max_size=9
)


class SlowModel:
    """All that ever happened in lists; every question is answered by a look through all of it."""

    def __init__(self):
        self.downs = []  # [agent, when, told, group number or None, still down]
        self.groups = 0
        self.open = False

    def down_now(self, agent=None):
        return [each for each in self.downs if each[4] and agent in (None, each[0])]

    def step(self, now, changes, settings, agents):
        lines, fresh = [], []
        for kind, agent in changes:
            if kind == "down":
                self.downs.append([agent, now, not self.open, self.groups * self.open, True])
                fresh.append(self.downs[-1])
                lines.append(["told" if not self.open else "hidden", "down", agent])
            else:
                own = self.down_now(agent)
                told = not own or own[0][2] or not own[0][3]
                lines.append(["told" if told else "hidden", "up", agent])
                for each in own:
                    each[4] = False
        joined = [each for each in fresh if each[4]]
        besides = []
        if self.open:
            members = [each for each in self.down_now() if each[3] == self.groups]
            if not settings.enabled or len(members) < settings.min:
                self.open = False
                members = [each for each in members if each not in fresh]
                besides = [f"group.up {len(members)}"]
                self.show(lines, joined, "told")
                for each in sorted(members, key=lambda each: (each[1], each[0])):
                    each[2], each[3] = True, 0
                    besides.append(f"agent.down {each[0]}")
            elif joined:
                besides = [f"group.down {len(members)}"]
        elif joined and settings.enabled:
            window = [each for each in self.down_now() if now - each[1] <= 60]
            if len(window) >= settings.min and len(window) >= settings.ratio * max(
                agents, len(window)
            ):
                self.open, self.groups = True, self.groups + 1
                for each in window:
                    each[3] = self.groups
                self.show(lines, [each for each in joined if each in window], "hidden")
                besides = [f"group.down {len(window)}"]
        return [f"{how} agent.{kind} {agent}" for how, kind, agent in lines] + besides

    def show(self, lines, downs, how):
        """Let the newest down of each of these agents go out so."""
        for each in downs:
            each[2] = how == "told"
            line = next(line for line in reversed(lines) if line[1:] == ["down", each[0]])
            line[0] = how


def changes_of(plan, is_down):
    """Events that can follow: an agent that is down comes up, one that is up goes down."""
    for agent, move in plan.items():
        if move == "bounce":
            yield from (
                [("up", agent), ("down", agent)]
                if is_down(agent)
                else [
                    ("down", agent),
                    ("up", agent),
                ]
            )
        elif (move == "down") is not is_down(agent):
            yield move, agent


def keyless(lines):
    """Without the keys, which the model does not make."""
    return [" ".join(part for part in line.split() if "group-" not in part) for line in lines]


@given(scripts)
def test_a9_a10_the_machine_says_what_a_look_through_the_whole_past_says(script):
    company, model, second = Company(), SlowModel(), 0
    for pause, plan, settings, agents in script:
        second += pause
        company.agents = agents
        company.settings = settings or company.settings
        changes = list(changes_of(plan, lambda agent: bool(model.down_now(agent))))
        expected = model.step(second, changes, company.settings, agents)
        events = [event(kind, agent, second) for kind, agent in changes]
        assert keyless(company.step(second, events=events)) == expected
        company.state = GroupDownState.restore(json.loads(json.dumps(company.state.snapshot())))


@given(scripts, st.data())
def test_in_how_many_steps_a_moment_comes_changes_no_state_and_only_the_lists(script, data):
    """Each list but the last of a moment is left out; who is hidden, and each end, is the same."""
    one, many, second = Company(), Company(), 0
    for pause, plan, settings, agents in script:
        second += pause
        for company in (one, many):
            company.agents, company.settings = agents, settings or company.settings
        states = one.state.recent if one.state.group is None else one.state.group.members
        changes = list(changes_of(plan, lambda agent, states=states: agent in states))
        events = [event(kind, agent, second) for kind, agent in changes]
        more = data.draw(st.booleans())
        told, deferred = (
            one.step(second, events=events),
            many.step(second, events=events, more_follow=more),
        )
        late = many.step(second)
        assert [line for line in told if not line.startswith("group.down")] == [
            line for line in deferred if not line.startswith("group.down")
        ]
        assert [line for line in told if line.startswith("group.down")] == [
            line for line in deferred + late if line.startswith("group.down")
        ]
        assert many.state == one.state


class Reader:
    """Somebody who sees only what is not suppressed, and believes the newest of it."""

    def __init__(self):
        self.told = Counter()
        self.lists = {}
        self.believed = set()

    def read(self, log):
        """Return whom group.up names, and who was told again after it."""
        left, again = [], []
        for each in log:
            agent = each.agent_id
            if each.type == "group.down":
                listed = set(each.labels["members"])
                for name in listed:
                    self.told[name] = max(1, self.told[name])
                self.believed -= self.lists.get(each.group_key, set())
                self.believed |= listed
                self.lists[each.group_key] = listed
            elif each.type == "group.up":
                left = each.labels["members"]
                self.believed -= self.lists.pop(each.group_key)
            elif each.type == "agent.up":
                self.believed.discard(agent)
            else:
                self.believed.add(agent)
                if each.reason == "group_ended":
                    again.append(agent)
                else:
                    self.told[agent] += 1
                    for listed in self.lists.values():
                        listed.discard(agent)
        return left, again


@given(scripts)
def test_every_agent_that_is_down_was_told_once_and_who_reads_it_knows_who_is_down(script):
    """Once by itself or by the group's list; and once more each time that its group ends."""
    company, reader, second, down = Company(), Reader(), 0, set()
    for pause, plan, settings, agents in script:
        second += pause
        company.agents = agents
        company.settings = settings or company.settings
        changes = list(changes_of(plan, down.__contains__))
        for kind, agent in changes:
            (down.add if kind == "down" else down.discard)(agent)
            reader.told[agent] = 0
        seen = len(company.log)
        company.step(second, events=[event(kind, agent, second) for kind, agent in changes])
        left, again = reader.read(each for each in company.log[seen:] if not each.suppressed)
        assert again == left
        assert [agent for agent in down if reader.told[agent] != 1] == []
        assert reader.believed >= down
        if company.state.group is None:
            assert reader.believed == down
        else:
            # Who came up unseen is known to be up from the next list on, or from the group's end.
            assert reader.believed - down <= set().union(*reader.lists.values())
            assert down & set(again) == set()


def test_a_down_from_before_the_groups_window_that_comes_late_passes_as_it_is():
    company = Company()
    company.step(0, down=[f"w{number}" for number in range(40)])
    assert company.state.group is not None
    late = event("down", "late", -61)
    assert company.step(10, events=[late]) == ["told agent.down late"]
    assert "late" not in company.state.group.members
    edge = event("down", "edge", -60)
    assert company.step(11, events=[edge])[0] == "hidden agent.down edge"
