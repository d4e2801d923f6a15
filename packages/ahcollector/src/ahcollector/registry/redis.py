"""The registry that several processes share, in Redis.

Keys, each behind the client's prefix:

| key | type | holds |
| --- | --- | --- |
| `reg:tok:{hash}` | hash | agent_id, company_id, server_id, state, exp, ver |
| `reg:agent:{id}` | hash | the record's fields, newest (version), revoked, tokens (hashes) |
| `reg:srv:{co}:{s}` | set | agents of a server; `%` and `:` in ids are `%25` and `%3A` |
| `reg:co:{co}` | set | agents of a company |
| `reg:all` | set | all agents |
| `reg:act:{co}` | set | active agents of a company |
| `reg:cos` | hash | company to how many active agents it has |
| `reg:pend` | set | pending agents |
| `reg:rev` | zset | revoked agents by when they were revoked (Unix seconds) |
| `reg:cursor` | string | where following the hub goes on |
| `reg:cursor:damaged` | any | what was found there last that is no cursor |
| `reg:full` | hash | when all agents of the hub were read, and began to be |
| `reg:cfg:{co}` | hash | settings (JSON), etag of the hub; gone after 30 days unasked |

Each change is one Lua script, which keeps the law of versions, so two processes may race and no
crash leaves a half. What changes something also publishes it on ``reg:changes``, in the same
script: words ``a{agent id}`` and ``t{token hash}``, separated by spaces. A change whose reply was
lost is told of all the same; one that changed nothing is not told of.

Durability is that of Redis: with ``appendfsync everysec`` up to two seconds may be lost at a power
cut. The cursor is then as old as the rest, and the next sync reads what is missing from the hub.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from ahcollector.errors import RedisError, RedisRefusedError, RegistryError
from ahcollector.presence.base import AgentRef
from ahcollector.redis import RedisClient, Script
from ahcollector.registry._redis_fields import (
    AGENT_FIELDS,
    LONG_AGO_TEXT,
    TOKEN_FIELDS,
    key_part,
    put_arguments,
    read_agent,
    read_change,
    read_token,
)
from ahcollector.registry.base import (
    AgentEntry,
    Change,
    Put,
    RegistryCounts,
    ScanPage,
    TokenEntry,
)
from ahcollector.registry.settings import KeptSettings
from ahwire import AgentRecord, DecodeError
from ahwire.hub import CompanySettings

__all__ = ["RedisCompanySettings", "RedisRegistry"]

_log = logging.getLogger("ahcollector.registry")


def _script(name: str) -> Script:
    return Script.load("ahcollector.registry", name, after=("library",))


_PUT = _script("put")
_REVOKE = _script("revoke")
_FORGET = _script("forget")
_FORGET_ONE = _script("forget_one")
_SWEEP = _script("sweep")
_COUNTS = _script("counts")
_BEGIN_FULL_SYNC = _script("begin_full_sync")
_SET_CURSOR_ASIDE = _script("set_cursor_aside")

_CHANNEL = ("reg", "changes")


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise RegistryError(f"registry: cannot {doing}: {error}") from error


class RedisRegistry:
    """`Registry` and `ChangeFeed` over one Redis; see the module for keys and durability.

    A read is one command (`by_server` and `scan` are one a page), a write one script. Writes that
    raised may be repeated.

    Args:
        client: The way to Redis; it stays the caller's to close.
        step_agents_max: Agents that one script forgets at most. Redis does nothing else meanwhile:
            fifty take it some 2 ms.
    """

    def __init__(self, *, client: RedisClient, step_agents_max: int = 50) -> None:
        self._client = client
        self._step_agents_max = step_agents_max

    async def lookup(self, token_hash: str) -> TokenEntry | None:
        """Return what a token hash leads to; damaged fields are logged and lead to nobody."""
        with _translated("look a token up"):
            reply = await self._client.call(
                "HMGET", self._client.key("reg", "tok", token_hash), *TOKEN_FIELDS
            )
        return read_token(token_hash, reply)

    async def put(self, record: AgentRecord, *, now: float, renewal: bool = False) -> Put:
        """Take a record by the law of versions, which the script applies."""
        arguments = put_arguments(record, now, renewal=renewal)
        reply = await self._run(_PUT, f"put {record.agent_id}", *arguments)
        applied, before, after = reply
        known = None if before is None else read_agent(record.agent_id, before[:-1])
        # What is older than what is there brings back what is there, which may be damaged.
        return Put(applied=bool(applied), before=known, after=self._read(record.agent_id, after))

    async def revoke(self, agent_id: str, *, now: float) -> AgentEntry | None:
        """Revoke an agent; its hashes become tombstones."""
        reply = await self._run(_REVOKE, f"revoke {agent_id}", agent_id, repr(now), LONG_AGO_TEXT)
        return None if reply is None else self._read(agent_id, reply)

    async def get(self, agent_id: str) -> AgentEntry | None:
        """Return one agent's entry; damaged fields are logged and there is none."""
        with _translated("read an agent"):
            reply = await self._client.call(
                "HMGET", self._client.key("reg", "agent", agent_id), *AGENT_FIELDS
            )
        return read_agent(agent_id, reply)

    async def by_server(self, company_id: str, server_id: str) -> tuple[AgentEntry, ...]:
        """Return a server's agents, read in pages."""
        key = self._client.key("reg", "srv", key_part(company_id), key_part(server_id))
        found: dict[str, AgentEntry] = {}
        cursor = ""
        while True:
            page = await self._page(key, cursor, 500)
            for entry in page.entries:
                # One that moved away between the two readings is not listed here any more.
                if (entry.agent.company_id, entry.agent.server_id) == (company_id, server_id):
                    found[entry.agent.agent_id] = entry
            cursor = page.cursor
            if not cursor:
                return tuple(found[agent_id] for agent_id in sorted(found))

    async def scan(
        self, *, cursor: str = "", company_id: str | None = None, limit: int = 500
    ) -> ScanPage:
        """Return a page of all agents, or of one company's, in Redis' order."""
        parts = ("reg", "all") if company_id is None else ("reg", "co", company_id)
        return await self._page(self._client.key(*parts), cursor, limit)

    async def delete_agent(self, agent_id: str, *, newest_version: int) -> AgentRef | None:
        """Forget one agent, unless a newer version of it came."""
        reply = await self._run(_FORGET_ONE, f"forget {agent_id}", agent_id, str(newest_version))
        if reply is None:
            return None
        company_id, server_id = (_text(field) for field in reply)
        return AgentRef(agent_id=agent_id, company_id=company_id, server_id=server_id)

    async def delete_server(self, company_id: str, server_id: str) -> tuple[AgentRef, ...]:
        """Forget a server's agents in bounded steps."""
        return await self._forget("server", company_id, server_id)

    async def delete_company(self, company_id: str) -> tuple[AgentRef, ...]:
        """Forget a company's agents in bounded steps, and its settings."""
        gone = await self._forget("company", company_id, "")
        with _translated("forget a company's settings"):
            await self._client.call("DEL", self._client.key("reg", "cfg", company_id))
        return gone

    async def count(self) -> RegistryCounts:
        """Count agents by state, without looking at them."""
        total, pending, revoked = await self._run(_COUNTS, "count")
        return RegistryCounts(
            active=max(0, total - pending - revoked), pending=pending, revoked=revoked
        )

    async def company_counts(self) -> dict[str, int]:
        """Count active agents by company, without looking at them."""
        with _translated("count companies"):
            reply = await self._client.call("HGETALL", self._client.key("reg", "cos"))
        return {_text(company): int(count) for company, count in _pairs(reply)}

    async def sweep(self, *, revoked_before: float) -> int:
        """Forget agents revoked before an instant, in bounded steps."""
        swept = 0
        while True:
            step: int = await self._run(
                _SWEEP, "sweep", repr(revoked_before), str(self._step_agents_max)
            )
            swept += step
            if step < self._step_agents_max:
                return swept

    async def cursor(self) -> str:
        """Return where following the hub goes on; what is no text is set aside, and it is "".

        To begin anew costs a reading of all agents and changes none, by the law of versions.
        """
        key = self._client.key("reg", "cursor")
        try:
            with _translated("read the cursor"):
                reply = await self._client.call("GET", key)
            return "" if reply is None else cast("str", reply.decode())
        except UnicodeDecodeError as error:
            found = str(error)
        except RegistryError as error:
            refused = error.__cause__
            if not isinstance(refused, RedisRefusedError) or refused.code != "WRONGTYPE":
                raise
            found = str(refused)
        await self._run(_SET_CURSOR_ASIDE, "set a damaged cursor aside")
        _log.error(
            "the cursor in Redis is damaged and was set aside: the hub is followed from the start",
            extra={"key": key, "aside": f"{key}:damaged", "error": found},
        )
        return ""

    async def set_cursor(self, cursor: str) -> None:
        """Remember where following the hub goes on; of two processes the last one counts."""
        with _translated("keep the cursor"):
            await self._client.call("SET", self._client.key("reg", "cursor"), cursor)

    async def begin_full_sync(
        self, *, now: float, interval_seconds: float, claim_seconds: float
    ) -> bool:
        """Return whether the caller is to read all agents of the hub now."""
        return bool(
            await self._run(
                _BEGIN_FULL_SYNC,
                "begin a full sync",
                repr(now),
                repr(interval_seconds),
                repr(claim_seconds),
            )
        )

    async def end_full_sync(self, *, now: float) -> None:
        """Remember when all agents of the hub were read."""
        with _translated("end a full sync"):
            await self._client.call(
                "HSET", self._client.key("reg", "full"), "done", repr(now), "began", ""
            )

    async def changes(
        self, *, changed: Callable[[Change], None], doubt: Callable[[], None]
    ) -> None:
        """Tell of every change in this Redis; see `ChangeFeed`."""

        def heard(message: str) -> None:
            change = read_change(message)
            if change is None:
                # Of a later program, perhaps: whatever it meant, nothing cached is sure.
                doubt()
            else:
                changed(change)

        await self._client.listen(":".join(_CHANNEL), heard=heard, connected=doubt)

    def _read(self, agent_id: str, flat: Sequence[bytes]) -> AgentEntry:
        """Return the agent that a script told of; "unknown" would be no true answer to a write."""
        entry = read_agent(agent_id, flat[:-1])
        if entry is None:
            raise RegistryError(
                f"registry: agent {agent_id} is damaged in Redis: delete the key "
                f"{self._client.key('reg', 'agent', agent_id)}, and the hub's next word of it is "
                "taken"
            )
        return entry

    async def _page(self, key: str, cursor: str, limit: int) -> ScanPage:
        with _translated("list agents"):
            following, members = await self._client.call(
                "SSCAN", key, cursor or "0", "COUNT", limit
            )
            ids = [_text(member) for member in members]
            replies = await self._client.pipeline(
                [
                    ["HMGET", self._client.key("reg", "agent", agent_id), *AGENT_FIELDS]
                    for agent_id in ids
                ]
            )
        entries = (read_agent(one, reply) for one, reply in zip(ids, replies, strict=True))
        # Those without one were forgotten between the two readings.
        there = tuple(entry for entry in entries if entry is not None)
        return ScanPage(entries=there, cursor=str(int(following) or ""))

    async def _forget(self, what: str, company_id: str, server_id: str) -> tuple[AgentRef, ...]:
        gone: dict[str, AgentRef] = {}
        while True:
            left, *reply = await self._run(
                _FORGET,
                f"forget a {what}'s agents",
                what,
                company_id,
                server_id,
                str(self._step_agents_max),
            )
            texts = [_text(field) for field in reply]
            for position in range(0, len(texts), 3):
                agent_id, company, server = texts[position : position + 3]
                gone[agent_id] = AgentRef(agent_id=agent_id, company_id=company, server_id=server)
            if not left:
                return tuple(gone[agent_id] for agent_id in sorted(gone))

    async def _run(self, script: Script, doing: str, *arguments: str) -> Any:
        with _translated(doing):
            return await self._client.run(
                script,
                keys=[self._client.key("reg", "all")],
                args=[self._client.prefix, *arguments],
            )


def _text(field: bytes) -> str:
    """Return a field as text; what is none, which only damage makes, leads to nobody."""
    return field.decode("utf-8", "replace")


def _pairs(reply: Any) -> list[tuple[bytes, bytes]]:
    """Return what HGETALL answers, a map or a flat list by the client's version, as pairs."""
    if isinstance(reply, dict):
        return list(reply.items())
    flat = cast("Sequence[bytes]", reply)
    return list(zip(flat[::2], flat[1::2], strict=True))


_SETTINGS_SECONDS = 30 * 86_400


class RedisCompanySettings:
    """`CompanySettingsStore` in Redis: the hub's last word of each company, for every process.

    Args:
        client: The way to Redis; it stays the caller's to close.
    """

    def __init__(self, *, client: RedisClient) -> None:
        self._client = client

    async def load(self, company_id: str) -> KeptSettings | None:
        """Return what was kept last; what cannot be read counts as nothing."""
        with _translated("read company settings"):
            settings, etag = await self._client.call(
                "HMGET", self._client.key("reg", "cfg", company_id), "settings", "etag"
            )
        if settings is None:
            return None
        try:
            return KeptSettings(
                settings=CompanySettings.from_json(settings),
                etag=None if not etag else etag.decode(),
            )
        except (DecodeError, UnicodeDecodeError):
            return None

    async def save(self, company_id: str, kept: KeptSettings) -> None:
        """Keep the hub's word; it is gone when nobody keeps it again within 30 days."""
        key = self._client.key("reg", "cfg", company_id)
        with _translated("keep company settings"):
            await self._client.pipeline(
                [
                    ["HSET", key, "settings", kept.settings.to_json(), "etag", kept.etag or ""],
                    ["EXPIRE", key, _SETTINGS_SECONDS],
                ]
            )
