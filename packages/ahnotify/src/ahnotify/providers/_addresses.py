"""What an address looks like; needs no provider's library."""

from __future__ import annotations

import re
from typing import Final

#: Printable ASCII on both sides of one @; what SMTP needs quoting for is refused, as are
#: international local parts. RFC 5321 4.5.3.1 has the lengths.
_ADDRESS: Final = re.compile(
    r"(?=[^@]{1,64}@)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)


def is_address(text: str) -> bool:
    """Whether `text` is an address that can be mailed to (ASCII, no display name, no quoting)."""
    return _ADDRESS.fullmatch(text) is not None
