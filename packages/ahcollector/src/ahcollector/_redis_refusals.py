"""What an answer of Redis that is an error means: its word for it, whose fault it is, the way out.

An error begins with a word (``OOM``, ``READONLY`` …). Of a command in a script the word may stand
behind where it happened, and how differs:

=============================================================  ===================================
text                                                           who says it so
=============================================================  ===================================
``OOM …``                                                      a command
``OOM … script: {sha}, on @user_script:1.``                    a command in a script, Redis 7
``user_script:10: OOM … script: {sha}, …``                     the same, raised again by the script
``Error running script (call to f_{sha}): @user_script:1:``    Redis 6
``@user_script: 1: -OOM …``
=============================================================  ===================================

Only there is a word looked for: names of keys, and values, may have the same ones. This is the one
place that tells a Redis that cannot from a key that holds something else; whoever tells people to
repair a key asks `Refusal.is_of_server` first.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

__all__ = ["Refusal", "refusal"]

_WITHOUT_WORD: Final = "ERR"

_BEGINNING: Final = re.compile(
    r"(?:(?:ERR )?Error running script \([^)]*\): )?(?:@?user_script: ?\d+: )*-?(?:ERR )?"
)
_WORD: Final = re.compile(r"([A-Z]{2,})(?: |$)")

_WAYS_OUT: Final = {
    "OOM": "raise maxmemory, or remove what others keep there",
    "READONLY": "it is a replica, which takes no writes; name its master",
    "MISCONF": "it cannot write its own files; see its log, and make room on its disk",
    "NOREPLICAS": "too few replicas follow it; bring them back, or lower min-replicas-to-write",
    "BUSY": "a script runs there for too long; wait for its end, or end it with SCRIPT KILL",
    "LOADING": "it reads its data after a start; wait for that",
    "MASTERDOWN": "it is a replica that has lost its master; name its master",
    "CLUSTERDOWN": "its cluster serves nothing; see CLUSTER INFO there",
    "TRYAGAIN": "its cluster moves these keys now; wait for that",
    "NOPERM": "see the rights of this user, ACL LIST there",
    "NOAUTH": "check username and password",
}
"""Words that tell of Redis, or of the user, and nothing of what a key holds."""

# Redis says these without a word of their own.
_SENTENCES: Final = (
    (
        re.compile(r"Script killed by user"),
        _WITHOUT_WORD,
        "somebody ended the script with SCRIPT KILL; it is run again",
    ),
    (
        re.compile(r"The user executing the script can't "),
        "NOPERM",
        _WAYS_OUT["NOPERM"],
    ),
)


@attrs.frozen(kw_only=True)
class Refusal:
    """An answer that is an error.

    Attributes:
        code: Redis' word for it, ``ERR`` where it gave none; a script's own word, too.
        text: What was said, and the way out where it is known.
        is_of_server: Whether Redis cannot do it now, or not for this user: no key is at fault, and
            the same may be done later.
    """

    code: str
    text: str
    is_of_server: bool


def refusal(said: str, *, code: str | None = None) -> Refusal:
    """Return what a text of Redis means.

    Args:
        said: The text, with its word where it has one.
        code: The word, where it was taken off the text.
    """
    begin = _BEGINNING.match(said)
    rest = said[begin.end() :] if begin is not None else said
    way_out: str | None = None
    if code is None:
        word = _WORD.match(rest)
        code = _WITHOUT_WORD if word is None else word.group(1)
    if code == _WITHOUT_WORD:
        for sentence, meant, told in _SENTENCES:
            if sentence.match(rest):
                code, way_out = meant, told
    way_out = _WAYS_OUT.get(code, way_out)
    return Refusal(
        code=code,
        text=said if way_out is None else f"{said.rstrip('. ')}: {way_out}",
        is_of_server=way_out is not None,
    )
