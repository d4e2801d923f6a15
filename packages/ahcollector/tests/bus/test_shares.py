"""Workers that decide alone come to even shares, and no shard stays with nobody."""

from hypothesis import given
from hypothesis import strategies as st

from ahcollector.bus._shares import decide, shares

ALL = frozenset(range(64))
WORKERS = st.lists(
    st.one_of(st.just(ALL), st.frozensets(st.integers(0, 63), min_size=1)), min_size=1, max_size=7
).map(lambda wanted: {f"worker {n}": one for n, one in enumerate(wanted)})


class World:
    """Leases in memory, and workers that look one after the other."""

    def __init__(self, wants):
        self.wants = dict(wants)
        self.owners = {}
        self.free = dict.fromkeys(wants, frozenset())
        self.moved = 0

    def look(self, me):
        moves = decide(
            me=me,
            wants=self.wants,
            owners=dict(self.owners),
            leaving=(),
            free_before=self.free[me],
        )
        self.free[me] = ALL - self.owners.keys()
        for shard in moves.take:
            assert shard not in self.owners
            self.owners[shard] = me
            self.moved += 1
        if moves.give is not None:
            assert self.owners.pop(moves.give) == me
            self.moved += 1
        return moves

    def settle(self, rounds=300):
        for _ in range(rounds):
            moves = [self.look(me) for me in list(self.wants)]
            if all(one.even for one in moves):
                return True
        return False

    def count(self, me):
        return sum(owner == me for owner in self.owners.values())


@given(WORKERS)
def test_every_wanted_shard_gets_an_owner_who_wants_it_and_then_all_are_at_rest(wants):
    world = World(wants)
    assert world.settle()
    assert world.owners.keys() == frozenset().union(*wants.values())
    assert all(shard in wants[owner] for shard, owner in world.owners.items())


@given(st.integers(1, 9), st.randoms(use_true_random=False))
def test_where_all_want_all_nobody_has_more_than_a_share(count, rng):
    wants = {f"worker {n}": ALL for n in range(count)}
    world = World(wants)
    world.owners = {shard: rng.choice(list(wants)) for shard in ALL if rng.random() < 0.7}
    assert world.settle()
    assert len(world.owners) == 64
    assert max(map(world.count, wants)) <= -(-64 // count)


@given(st.integers(1, 5))
def test_one_who_joins_gets_a_share_and_one_who_dies_leaves_his(count):
    wants = {f"worker {n}": ALL for n in range(count)}
    world = World(wants)
    world.settle()
    before = dict(world.owners)
    world.wants["late"] = ALL
    world.free["late"] = frozenset()
    assert world.settle()
    assert world.count("late") >= 64 - count * -(-64 // (count + 1))
    # Only what the new one got has moved.
    assert all(world.owners[s] in {before[s], "late"} for s in ALL)
    del world.wants["late"]
    world.owners = {s: owner for s, owner in world.owners.items() if owner != "late"}
    assert world.settle()
    assert len(world.owners) == 64


def test_a_worker_gives_up_one_at_a_time_and_only_to_somebody_who_has_too_little():
    wants = {"one": ALL, "two": ALL}
    owners = dict.fromkeys(ALL, "one")
    moves = decide(me="one", wants=wants, owners=owners, leaving=(), free_before=())
    assert moves.give in ALL
    assert moves.take == ()
    owners = dict.fromkeys(range(33), "one") | dict.fromkeys(range(33, 64), "two")
    moves = decide(me="one", wants=wants, owners=owners, leaving=[5], free_before=())
    assert moves.even
    wants = {"one": ALL, "two": frozenset(range(40))}
    moves = decide(
        me="one", wants=wants, owners=dict.fromkeys(ALL, "one"), leaving=(), free_before=()
    )
    assert moves.give in range(40)


def test_the_share_is_sixty_four_by_the_number_of_workers():
    for count in range(1, 65):
        wants = {f"worker {n}": ALL for n in range(count)}
        assert set(shares(wants).values()) == {-(-64 // count)}
    assert shares({"one": frozenset(range(32)), "two": frozenset(range(32, 64))}) == {
        "one": 32,
        "two": 32,
    }
