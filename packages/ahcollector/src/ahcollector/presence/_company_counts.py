"""How many agents each company has, read in pages."""

from __future__ import annotations

from typing import Final

from ahcollector.presence._redis_link import RedisLink
from ahcollector.presence.base import PresenceCounts

__all__ = ["company_counts"]

_PAGE: Final = 500


async def company_counts(link: RedisLink) -> dict[str, PresenceCounts]:
    """Count agents by company; the numbers may be some moments apart. Raises PresenceError."""
    result: dict[str, PresenceCounts] = {}
    cursor = 0
    while True:
        reply_cursor, page = await link.call("SSCAN", link.key("companies"), cursor, "COUNT", _PAGE)
        names = [name.decode() for name in page]
        numbers = await link.pipeline(
            [
                command
                for name in names
                for command in (
                    ("ZCARD", link.key(f"ids:{name}")),
                    ("SCARD", link.key(f"down:{name}")),
                )
            ]
        )
        for name, agents, down in zip(names, numbers[::2], numbers[1::2], strict=True):
            if agents:
                result[name] = PresenceCounts(agents=agents, down=down)
        cursor = int(reply_cursor)
        if cursor == 0:
            return result
