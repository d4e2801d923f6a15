"""The server is killed at any moment around a silence: one down, one mail, one up, all the same."""

import random
import time

import pytest
from world import Mailbox, World, wait_until

pytestmark = pytest.mark.fault
ROUNDS = 4


def test_a_killed_server_loses_no_transition_and_doubles_none(tmp_path):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    with Mailbox() as mailbox, World(tmp_path, mailbox) as world:
        world.start_server()
        world.set_up()
        for number in range(1, ROUNDS + 1):
            world.start_agent()
            wait_until("the agent is heard", world.is_heard, seconds=40)
            wait_until(
                "ups of earlier rounds",
                lambda number=number: world.events().count("agent.up") == number - 1,
                seconds=20,
            )
            world.kill_agent()
            # The silence is noticed after 4 s; every step from there to the mail takes part of the
            # next second, and the kill falls before, between or behind them.
            time.sleep(rng.uniform(3.5, 6.5))
            world.kill_server()
            world.start_server()
            wait_until(
                "the down",
                lambda number=number: world.events().count("agent.down") == number,
                seconds=40,
            )
            wait_until(
                "the mail", lambda number=number: len(mailbox.messages) >= number, seconds=40
            )
        time.sleep(2)
        assert world.events() == ["agent.down", "agent.up"] * (ROUNDS - 1) + ["agent.down"]
        # A kill between the mail server's answer and our commit is the one window in which a person
        # may be told twice, under the same Message-ID.
        ids = [message["Message-ID"] for message in mailbox.messages]
        assert len(set(ids)) == ROUNDS
        assert len(ids) <= ROUNDS + 1


def test_a_mail_server_that_refuses_for_now_is_asked_again_and_nobody_is_told_twice(tmp_path):
    with Mailbox() as mailbox, World(tmp_path, mailbox) as world:
        world.start_server()
        world.set_up()
        world.start_agent()
        wait_until("the agent is heard", world.is_heard, seconds=40)
        mailbox.answers = ["451 later"]
        world.kill_agent()
        wait_until("the down", lambda: world.events() == ["agent.down"], seconds=40)
        wait_until("the refusal", lambda: not mailbox.answers, seconds=20)
        assert mailbox.messages == []
        wait_until("the mail", lambda: mailbox.messages, seconds=100)
        time.sleep(2)
        assert len(mailbox.messages) == 1
