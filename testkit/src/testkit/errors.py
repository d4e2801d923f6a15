"""What can go wrong with a test service.

TestkitError
├── MissingProgramError   the machine has no such program and it could not be installed
├── StartError            the service ended, or did not answer in time; carries its log's tail
└── KeeperError           the process that watches over a service is gone
"""

__all__ = ["KeeperError", "MissingProgramError", "StartError", "TestkitError"]


class TestkitError(Exception):
    """The root of everything testkit raises."""

    __test__ = False  # the name begins with Test, but pytest has nothing to collect here


class MissingProgramError(TestkitError):
    """A service's program is not on this machine; the text says how to get it."""


class StartError(TestkitError):
    """A service did not come up; the text ends with the tail of its log."""


class KeeperError(TestkitError):
    """The keeper of a service does not answer."""
