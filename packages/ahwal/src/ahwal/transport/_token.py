"""Secrets on their way into a header, and nowhere else."""

import re
from typing import NoReturn

from ahwal.errors import TokenError

TOKEN_CHARS_MAX = 4096
# Visible ASCII: what every server and proxy takes in a header, and what cannot end one.
_UNSENDABLE = re.compile(r"[^\x21-\x7e]")
MASK = "***"


class Secret:
    """A text that shows itself only to who asks for it by name.

    Its repr is a mask, so that neither a log line, nor the repr of what holds it, nor a traceback
    with the values of variables shows it; it cannot be pickled.

    Args:
        text: The secret.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return MASK

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled; read it again where it is needed")

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def masked_in(self, text: str) -> str:
        """Return a text in which the secret, should it be there, is masked."""
        return text.replace(self._text, MASK) if self._text else text


def check_token(token: Secret) -> Secret:
    """Return the token, without white space around it, if a header can carry it.

    Raises:
        TokenError: It is empty, too long, or holds a character outside visible ASCII. The text says
            where; neither it nor the variables of the frames in its traceback show the token.
    """
    problem = _problem(token)
    if problem is not None:
        raise TokenError(problem)
    return Secret(_stripped(token))


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds something that must not be shown."""
    return any(
        part in name.lower() for part in ("token", "authorization", "password", "secret", "license")
    )


def _stripped(token: Secret) -> str:
    return token.reveal().strip(" \t\r\n")


def _problem(token: Secret) -> str | None:
    # Returned, not raised: this frame holds the plain text, and a traceback keeps its frames.
    text = _stripped(token)
    if not text:
        return "the agent token is empty; enrol again"
    if len(text) > TOKEN_CHARS_MAX:
        return (
            f"the agent token has {len(text)} characters, at most {TOKEN_CHARS_MAX} can be sent; "
            "enrol again"
        )
    found = _UNSENDABLE.search(text)
    if found is not None:
        return (
            f"the agent token holds a character at position {found.start()} that a header cannot "
            "carry (visible ASCII only); it was damaged, enrol again"
        )
    return None
