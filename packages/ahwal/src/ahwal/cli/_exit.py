"""Exit codes of the command, and which error ends with which."""

from enum import IntEnum

from ahwal.errors import (
    AgentRevokedError,
    AhwalError,
    AlreadyEnrolledError,
    ConfigError,
    CredentialsError,
    EnrolRefusedError,
    NotEnrolledError,
    TokenError,
    WALLockedError,
)


class ExitCode(IntEnum):
    """What the number at the end means."""

    OK = 0
    USAGE = 2
    CONFIGURATION = 3
    NOT_ENROLLED = 4
    ENROLMENT_REFUSED = 5
    TEMPORARY = 6
    REVOKED = 7
    IN_USE = 8


# The first line that fits counts.
_BY_ERROR: tuple[tuple[type[AhwalError], ExitCode], ...] = (
    (AlreadyEnrolledError, ExitCode.USAGE),
    (NotEnrolledError, ExitCode.NOT_ENROLLED),
    (TokenError, ExitCode.NOT_ENROLLED),
    (CredentialsError, ExitCode.CONFIGURATION),
    (ConfigError, ExitCode.CONFIGURATION),
    (EnrolRefusedError, ExitCode.ENROLMENT_REFUSED),
    (AgentRevokedError, ExitCode.REVOKED),
    (WALLockedError, ExitCode.IN_USE),
)


def exit_code(error: AhwalError) -> ExitCode:
    """Return the code for an error; what no line names may pass, so it is temporary."""
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.TEMPORARY
