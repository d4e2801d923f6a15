"""Queues are read by weight."""

from __future__ import annotations

from ahnotify.sending._reader import WeightedTurns


def test_instant_messages_go_first_but_never_starve_digests():
    turns = WeightedTurns({"instant": 100, "digest": 1})
    taken = []
    for _ in range(1_010):
        name = turns.order()[0]
        turns.took(name)
        taken.append(name)
    assert taken.count("digest") == 10
    assert taken[100] == "digest"


def test_a_queue_alone_is_taken_without_a_pause():
    turns = WeightedTurns({"instant": 3, "digest": 1})
    for _ in range(10):
        assert "digest" in turns.order()
        turns.took("digest")
    assert turns.order()[0] == "instant"
