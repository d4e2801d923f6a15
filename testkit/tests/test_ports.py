import socket

from testkit import free_port
from testkit.ports import Port


def test_a_reserved_port_is_not_given_twice():
    class Stuck:
        """Chance that proposes the same port until that is taken."""

        def __init__(self):
            self.proposals = iter([first.number, first.number, first.number + 1, first.number + 2])

        def randint(self, low, high):
            return next(self.proposals)

    first = Port()
    second = Port(rng=Stuck())
    try:
        assert second.number != first.number
    finally:
        first.release()
        second.release()


def test_ports_lie_below_the_ephemeral_range():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ephemeral = probe.getsockname()[1]
    assert 10_000 <= free_port() < 32_768 or ephemeral < 32_768
