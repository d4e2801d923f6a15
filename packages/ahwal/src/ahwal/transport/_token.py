"""Secrets on their way into a header, and nowhere else."""

import re

from ahwal.errors import TokenError

TOKEN_CHARS_MAX = 4096
# Visible ASCII: what every server and proxy takes in a header, and what cannot end one.
_UNSENDABLE = re.compile(r"[^\x21-\x7e]")
MASK = "***"


def check_token(token: str) -> str:
    """Return the token, without white space around it, if a header can carry it.

    Raises:
        TokenError: It is empty, too long, or holds a character outside visible ASCII. The text says
            where, and never shows any part of the token.
    """
    token = token.strip(" \t\r\n")
    if not token:
        raise TokenError("the agent token is empty; enrol again")
    if len(token) > TOKEN_CHARS_MAX:
        raise TokenError(
            f"the agent token has {len(token)} characters, at most {TOKEN_CHARS_MAX} can be sent; "
            "enrol again"
        )
    found = _UNSENDABLE.search(token)
    if found is not None:
        raise TokenError(
            f"the agent token holds a character at position {found.start()} that a header cannot "
            "carry (visible ASCII only); it was damaged, enrol again"
        )
    return token


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds something that must not be shown."""
    return any(
        part in name.lower() for part in ("token", "authorization", "password", "secret", "license")
    )
