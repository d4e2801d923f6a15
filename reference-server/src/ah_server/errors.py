"""Everything that ends `ah-server` before its time.

    ServerError
    ├── SettingsError          a setting is wrong, missing or contradicts another   exit 3
    ├── DependencyError        something the settings name cannot be reached        exit 3
    ├── AddressInUseError      a port is taken                                      exit 4
    ├── StateDirectoryError    the state directory cannot be used                   exit 5
    ├── ServiceFailedError     a part of the running server ended with an error     exit 1
    └── CheckFailedError       a check that was asked for did not hold              exit 1

Every error says what is wrong, with which value, and what to do; the command line prints it as one
sentence and ends with the exit code of its class.
"""

from collections.abc import Sequence


class ServerError(Exception):
    """Root of what the server tells its operator."""

    exit_code = 1

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class SettingsError(ServerError):
    """One or more settings cannot be used; nothing was started.

    `problems` holds one sentence a setting, each beginning with its dotted name.
    """

    exit_code = 3

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(*problems)


class DependencyError(ServerError):
    """A service the settings name cannot be reached."""

    exit_code = 3


class AddressInUseError(ServerError):
    """Another program listens where the server should."""

    exit_code = 4


class StateDirectoryError(ServerError):
    """The state directory cannot be written, or another process holds it."""

    exit_code = 5


class ServiceFailedError(ServerError):
    """A part of the running server failed, so all of it was stopped."""


class CheckFailedError(ServerError):
    """Something that was to be proved did not hold."""


def joined(problems: Sequence[ServerError]) -> ServerError:
    """All problems as one error of the first one's class; there is one at least."""
    lines = tuple(dict.fromkeys(line for error in problems for line in error.problems))
    kind = type(problems[0])
    return SettingsError(lines) if issubclass(kind, SettingsError) else kind(*lines)
