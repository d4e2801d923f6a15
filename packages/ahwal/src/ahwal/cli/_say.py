"""Printing what others wrote: a status file, a batch, the text of an error.

It must neither steer the terminal (escape sequences, characters that turn the direction) nor end
the command because the terminal's encoding lacks a character.
"""

import json
import re
import sys

# Control characters but tab and newline, those that turn the direction, and halves of surrogates.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def say(text: str, *, error: bool = False) -> None:
    r"""Print a text, or JSON, in which what cannot be shown as it is becomes `\u….`."""
    stream = sys.stderr if error else sys.stdout
    shown = _UNSHOWN.sub(_escaped, text)
    try:
        shown.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        shown = re.sub(r"[^\x00-\x7f]", _escaped, shown)
    print(shown, file=stream)


def say_field(name: str, value: object) -> None:
    """Print `name: value` as one line, whatever the value holds."""
    say(f"{name}: {value}".replace("\n", "\\n"))


def _escaped(found: re.Match[str]) -> str:
    # As JSON has it, so that JSON stays JSON: in its texts alone there is something to escape.
    return f"\\u{ord(found[0]):04x}" if ord(found[0]) < 0x80 else json.dumps(found[0])[1:-1]
