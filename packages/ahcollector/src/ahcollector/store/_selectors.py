"""Selectors of series in MetricsQL: built here and nowhere else.

A selector always names its company, and no value can end the string that it stands in: so a query
reaches one tenant's series, whatever its values are.
"""

from __future__ import annotations

import json
from typing import Final

__all__ = ["ROLLUP_MARK", "quoted", "selector"]

ROLLUP_MARK: Final = ":"
"""Stands in the names that recording rules give, and in no name that an agent can give."""


def quoted(value: str) -> str:
    """Return a text as a string of MetricsQL.

    Raises:
        ValueError: It has half a surrogate pair, which no store can hold.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{value[:40]!r} is no Unicode text (a lone surrogate): nothing of this name is stored"
        ) from error
    # The string of JSON: quote, backslash and control characters are escaped in a way that
    # MetricsQL, which reads strings as Go does, reads alike; everything else stands as it is.
    return json.dumps(value, ensure_ascii=False)


def selector(
    company_id: str,
    *,
    server_id: str | None = None,
    name: str | None = None,
    rollups: bool = True,
) -> str:
    """Return the selector of a company's series.

    Args:
        company_id: Whose.
        server_id: Of this server only; None: of all.
        name: Of this stored name only; None: of all.
        rollups: Whether the series that recording rules made are among them.

    Raises:
        ValueError: An id or the name is empty, which would select everybody's, or is no Unicode
            text.
    """
    matchers = [("company_id", company_id)]
    if server_id is not None:
        matchers.append(("server_id", server_id))
    if name is not None:
        matchers.insert(0, ("__name__", name))
    for label, value in matchers:
        if not value:
            raise ValueError(f"{label} is empty: a query names whose series it asks for")
    parts = [f"{label}={quoted(value)}" for label, value in matchers]
    if not rollups:
        parts.append(f'__name__!~".*{ROLLUP_MARK}.*"')
    return "{" + ",".join(parts) + "}"
