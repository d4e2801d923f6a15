"""The states of a company's agents: stored piece by piece, and what they come to in the end."""

import itertools

import attrs
from agents_world import START, agent, group_settings, silence
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.alerts import AlertImage, silences_in_force
from ahcollector.detector._company import CompanyAgents
from ahcollector.presence import Transition, TransitionKind
from ahrules import event_key
from ahwire import EventType

AGENTS = [agent(number) for number in range(5)]
OFF = group_settings(enabled=False)


@attrs.frozen
class Toggle:
    numbers: tuple


@attrs.frozen
class Hush:
    servers: tuple | None


@attrs.frozen
class Grouping:
    least: int
    window_seconds: float


@attrs.frozen
class Tick:
    seconds: float


numbers = st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True).map(tuple)
steps = st.lists(
    st.tuples(
        st.one_of(
            st.builds(Toggle, numbers),
            st.builds(Toggle, numbers),
            st.builds(Hush, st.one_of(st.none(), st.just(()), numbers)),
            st.builds(Grouping, st.integers(1, 5), st.sampled_from([0.0, 5.0, 60.0])),
            st.builds(Tick, st.sampled_from([0.0, 0.001, 3.0, 70.0, -5.0])),
        ),
        st.sampled_from(["stays", "is stored", "dies"]),
    ),
    max_size=40,
)


class Life:
    """A company over its lives; `image` is what its store has."""

    def __init__(self, *, dies):
        self.dies = dies
        self.image = AlertImage(epoch=0)
        self.now = START
        self.down = {}
        self.seqs = {}
        self.ids = itertools.count(1)
        self.told = []
        self.transitions = []
        self.silences = silences_in_force(()).silences
        self.settings = group_settings()
        self.company = self.new()

    def next_id(self):
        return f"018bcfe5-6800-7000-8000-{next(self.ids):012x}"

    def new(self):
        def lost(kind, error):
            raise AssertionError(f"{kind} is lost: {error}")

        return CompanyAgents("acme", defaults=OFF, event_ids=self.next_id, lost=lost, held_max=3)

    def step(self, step, end):
        if isinstance(step, Hush):
            found = [] if step.servers is None else [silence(*(f"s{n}" for n in step.servers))]
            self.silences = silences_in_force(found).silences
        elif isinstance(step, Grouping):
            self.settings = group_settings(step.least, 0.4, step.window_seconds)
        elif isinstance(step, Tick):
            self.now += step.seconds
        self.company.refresh(self.silences, self.settings)
        if isinstance(step, Toggle):
            page = [self.toggle(number) for number in step.numbers]
            self.company.take(page, self.now, agents=len(AGENTS))
            # What is handed out again moves nothing.
            self.company.take(page, self.now, agents=len(AGENTS))
        self.company.tick(self.now, agents=len(AGENTS))
        if end != "stays":
            self.store(again=self.dies and end == "dies")

    def store(self, *, again):
        [change] = [change for change in self.company.changes(self.now) if change is not None]
        self.told += change.intents
        self.image = change.on(self.image)
        self.company.stored(change)
        self.company.told([event.event_id for event in change.intents])
        self.image = attrs.evolve(self.image, intents=())
        if again:
            self.company = self.new()
            assert self.company.restore(self.image) == []

    def toggle(self, number):
        ref = AGENTS[number]
        since = self.down.get(number)
        self.seqs[number] = max(int(self.now * 1000), self.seqs.get(number, 0) + 1)
        if since is None:
            self.down[number] = self.now
        else:
            del self.down[number]
        transition = Transition(
            agent=ref,
            event_id=self.next_id(),
            seq=self.seqs[number],
            kind=TransitionKind.DOWN if since is None else TransitionKind.UP,
            occurred_at=self.now,
            last_seen=None,
            down_since=since,
            reason=None,
        )
        self.transitions.append(transition)
        return transition


def told_by(story, *, dies):
    life = Life(dies=dies)
    for step, end in story:
        life.step(step, end)
    # No silence and no group: whatever is owed is told.
    life.step(Hush(None), "stays")
    life.settings = OFF
    life.step(Tick(1.0), "stays")
    life.store(again=False)
    return life


@settings(deadline=None)
@given(story=steps)
def test_a_company_that_is_read_from_its_store_goes_on_as_one_that_lived(story):
    assert told_by(story, dies=True).told == told_by(story, dies=False).told


@settings(deadline=None)
@given(story=steps)
def test_a_snapshot_in_place_of_pieces_is_the_same(story):
    life, other = Life(dies=True), Life(dies=True)
    for step, end in story:
        life.step(step, end)
        other.company._is_whole_due = True
        other.step(step, end)
    assert life.told == other.told


@settings(deadline=None)
@given(story=steps)
def test_each_transition_is_told_once_and_in_the_end_people_know_who_is_down(story):
    life = told_by(story, dies=True)
    assert len({event.event_id for event in life.told}) == len(life.told)
    repeats = {"silence_ended", "group_ended"}
    own = [event for event in life.told if not event.type.is_group and event.reason not in repeats]
    assert [event.event_id for event in own] == [each.event_id for each in life.transitions]
    newest = {}
    for event in life.told:
        assert event.seq > newest.get(event_key(event), 0), "a state at the hub goes back"
        newest[event_key(event)] = event.seq
    last = {event_key(event): event for event in life.told}
    heard = {event_key(event): event.type for event in life.told if not event.suppressed}
    for key, event in last.items():
        if event.type in {EventType.AGENT_DOWN, EventType.GROUP_DOWN}:
            assert event.type is EventType.AGENT_DOWN, "a group goes on though there is none"
            assert heard[key] is event.type, "somebody is down and nobody was told"
        elif not (event.suppress_reason or "").startswith("silence:"):
            # In a silence an end is not told, whether its beginning was or not.
            assert heard.get(key) in {None, event.type}, "nobody was told that it is over"
    for number, ref in enumerate(AGENTS):
        events = [event for event in life.told if event.agent_id == ref.agent_id]
        is_down = bool(events) and events[-1].type is EventType.AGENT_DOWN
        assert is_down == (number in life.down)


def test_a_damaged_state_is_told_and_the_rest_is_used():
    life = Life(dies=True)
    life.step(Hush((1,)), "stays")
    life.step(Toggle((1, 2)), "is stored")
    pieces = dict(life.image.pieces)
    [held] = [name for name in pieces if name.startswith('["a"') and '"a1"' in name]
    pieces[held] = '{"held": 1}'
    again = life.new()
    faults = again.restore(attrs.evolve(life.image, pieces=pieces))
    assert len(faults) == 1
    assert again.is_dirty, "the whole of it is stored anew"
    assert not again.is_fresh(life.transitions[0])


def test_pieces_do_not_pile_up():
    """After so many pieces there is a whole snapshot in their place."""
    life = Life(dies=True)
    bases = 0
    for _ in range(400):
        before = life.image.base
        life.step(Toggle((0, 1)), "is stored")
        bases += life.image.base is not before and life.image.base != before
        assert len(life.image.pieces) <= 300
    assert 2 <= bases <= 20
