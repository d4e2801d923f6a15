"""Licenses, agents and their tokens, as the hub keeps them.

The database holds hashes only: a license or a token is shown once, when it is made.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import attrs
from sqlalchemy import Connection, RowMapping, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ah_server.hub._bodies import is_number
from ah_server.hub._database import HubDatabase
from ah_server.hub._tables import agents, licenses
from ahwire import AgentRecord, Clock, now_ms
from ahwire.hub import AgentPage, AgentState, EnrollGrant, RenewGrant
from ahwire.names import is_id

REPEAT_WINDOW_MS = 600_000
PAGE_MAX = 500
TEXT_CHARS_MAX = 256


class EnrollRefusedError(Exception):
    """The hub says no to an enrolment or renewal: `status` and `code` are its answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@attrs.frozen(kw_only=True)
class LicenseLine:
    """A license as the admin page lists it; the license itself is not kept."""

    company_id: str
    server_id: str
    created_ms: int
    expires_ms: int
    used_ms: int | None
    agent_id: str | None


@attrs.frozen(kw_only=True)
class AgentLine:
    """An agent as the admin page lists it."""

    agent_id: str
    company_id: str
    server_id: str
    hostname: str
    state: str
    version: int
    last_seen_ms: int | None


class Identities:
    """Licenses, enrolment, renewal, look-up and the pages of the sync.

    Args:
        database: the hub's database.
        clock: wall clock of every stamp.
        token_ttl_seconds: life of a token; None: for ever.
        renew_overlap_seconds: a renewed agent's old token stays good so long.
    """

    def __init__(
        self,
        *,
        database: HubDatabase,
        clock: Clock,
        token_ttl_seconds: float | None = None,
        renew_overlap_seconds: float = 86_400.0,
    ) -> None:
        self._database = database
        self._clock = clock
        self._token_ttl_seconds = token_ttl_seconds
        self._renew_overlap_ms = round(renew_overlap_seconds * 1000)

    async def new_license(self, company_id: str, server_id: str, ttl_seconds: float) -> str:
        """Makes a one-time license that binds its user to a company and a server.

        Raises:
            ValueError: an id is not one; the text says which and how ids look.
        """
        for name, value in (("company", company_id), ("server", server_id)):
            if not is_id(value):
                raise ValueError(
                    f"{name} {value[:40]!r} is not an id: letters, digits and _ . : - are allowed,"
                    " 128 at most, the first a letter or a digit"
                )
        text = "ahl_" + secrets.token_urlsafe(24)
        now = now_ms(self._clock)
        async with self._database.begin() as connection:
            await connection.execute(
                insert(licenses).values(
                    license_hash=_sha256(text),
                    company_id=company_id,
                    server_id=server_id,
                    created_ms=now,
                    expires_ms=now + round(ttl_seconds * 1000),
                )
            )
        return text

    async def enroll(self, request: Mapping[str, Any]) -> EnrollGrant:
        """Exchanges a license for an identity; the same machine may ask again for 10 minutes.

        Args:
            request: EnrollRequest as JSON.

        Raises:
            EnrollRefusedError: with the status and code of the refusal.
        """
        license_text = request.get("license")
        machine_id = request.get("machine_id")
        if not isinstance(license_text, str) or not license_text:
            raise EnrollRefusedError(404, "license_unknown", "the license is missing")
        if not isinstance(machine_id, str) or not machine_id:
            raise EnrollRefusedError(422, "binding_failed", "machine_id is missing")
        if len(machine_id) > TEXT_CHARS_MAX:
            raise EnrollRefusedError(
                422, "binding_failed", f"machine_id is over {TEXT_CHARS_MAX} characters"
            )
        async with self._database.begin() as connection:
            found = await self._usable_license(connection, _sha256(license_text), machine_id)
            now = now_ms(self._clock)
            again = found["agent_id"] is not None
            agent_id = found["agent_id"] or "ag_" + secrets.token_hex(8)
            token, record = await self._give_token(
                connection,
                agent_id,
                {
                    "company_id": found["company_id"],
                    "server_id": found["server_id"],
                    "machine_id": machine_id,
                    "hostname": str(request.get("hostname") or "")[:TEXT_CHARS_MAX],
                    "state": AgentState.ACTIVE.value,
                    "prev_token_hash": None,
                    "prev_expires_ms": None,
                },
            )
            if not again:
                await connection.execute(
                    update(licenses)
                    .where(licenses.c.license_hash == found["license_hash"])
                    .values(used_ms=now, machine_id=machine_id, agent_id=agent_id)
                )
        assert record.token_hash is not None
        return EnrollGrant(
            agent_id=agent_id,
            company_id=record.company_id,
            server_id=record.server_id,
            token_hash=record.token_hash,
            agent_token=token,
            expires_at=record.expires_at,
            version=record.version,
        )

    async def _usable_license(
        self, connection: AsyncConnection, license_hash: str, machine_id: str
    ) -> RowMapping:
        row = (
            (
                await connection.execute(
                    select(licenses).where(licenses.c.license_hash == license_hash)
                )
            )
            .mappings()
            .first()
        )
        now = now_ms(self._clock)
        if row is None:
            raise EnrollRefusedError(404, "license_unknown", "the license is not known")
        if row["used_ms"] is not None:
            if row["machine_id"] != machine_id or now - row["used_ms"] > REPEAT_WINDOW_MS:
                raise EnrollRefusedError(409, "token_used", "the license was used already")
        elif row["expires_ms"] <= now:
            raise EnrollRefusedError(410, "license_expired", "the license has expired")
        return row

    async def renew(self, agent_id: str) -> RenewGrant:
        """Gives an active agent a new token; the one in use stays good for `renew_overlap_seconds`.

        Raises:
            EnrollRefusedError: the agent is unknown or not active.
        """
        async with self._database.begin() as connection:
            row = await _agent_row(connection, agent_id)
            if row is None or row["state"] != AgentState.ACTIVE.value:
                raise EnrollRefusedError(404, "not_found", f"no active agent {agent_id[:40]!r}")
            overlap = now_ms(self._clock) + self._renew_overlap_ms
            token, record = await self._give_token(
                connection,
                agent_id,
                {"prev_token_hash": row["token_hash"], "prev_expires_ms": overlap},
            )
        assert record.token_hash is not None
        return RenewGrant(
            token_hash=record.token_hash,
            agent_token=token,
            expires_at=record.expires_at,
            prev_token_expires_at=_time(overlap),
            version=record.version,
        )

    async def _give_token(
        self, connection: AsyncConnection, agent_id: str, values: dict[str, Any]
    ) -> tuple[str, AgentRecord]:
        token = "aht_" + secrets.token_urlsafe(32)
        ttl = self._token_ttl_seconds
        expires = None if ttl is None else now_ms(self._clock) + round(ttl * 1000)
        values |= {"token_hash": _sha256(token), "expires_ms": expires}
        row = await _write_agent(connection, agent_id, values)
        return token, _record(row)

    async def revoke(self, agent_id: str) -> bool:
        """Revokes an agent; false when there is none."""
        async with self._database.begin() as connection:
            if await _agent_row(connection, agent_id) is None:
                return False
            await _write_agent(connection, agent_id, {"state": AgentState.REVOKED.value})
        return True

    async def lookup(self, token_hash: str) -> AgentRecord | None:
        """The agent whose current or previous token has this hash."""
        if re.fullmatch(r"[0-9a-f]{64}", token_hash) is None:
            return None
        async with self._database.begin() as connection:
            query = select(agents).where(
                (agents.c.token_hash == token_hash) | (agents.c.prev_token_hash == token_hash)
            )
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else _record(row)

    async def page(self, since: str, limit: int) -> AgentPage:
        """Agents changed after the cursor, oldest change first.

        Raises:
            ValueError: `since` is no cursor of this hub.
        """
        if since and not is_number(since):
            raise ValueError(f"since {since[:40]!r} is not a cursor of this hub; begin with none")
        limit = max(1, min(limit, PAGE_MAX))
        async with self._database.begin() as connection:
            query = (
                select(agents)
                .where(agents.c.change > int(since or 0))
                .order_by(agents.c.change)
                .limit(limit + 1)
            )
            rows = (await connection.execute(query)).mappings().all()
        page = rows[:limit]
        return AgentPage(
            agents=tuple(_record(row) for row in page),
            more=len(rows) > limit,
            next_since=str(page[-1]["change"]) if page else since,
        )

    async def record_seen(self, seen: Mapping[str, int]) -> None:
        """Notes when agents were last heard; an older stamp never replaces a newer one."""
        async with self._database.begin() as connection:
            for agent_id, at_ms in seen.items():
                newer = agents.c.last_seen_ms.is_(None) | (agents.c.last_seen_ms < at_ms)
                await connection.execute(
                    update(agents)
                    .where(agents.c.agent_id == agent_id, newer)
                    .values(last_seen_ms=at_ms)
                )

    async def record_inventory(self, agent_id: str, body: str) -> None:
        """Keeps the newest inventory of an agent."""
        async with self._database.begin() as connection:
            await connection.execute(
                update(agents).where(agents.c.agent_id == agent_id).values(inventory=body)
            )

    async def list_licenses(self, limit: int = 200) -> tuple[LicenseLine, ...]:
        """The newest licenses."""
        fields = [licenses.c[name] for name in attrs.fields_dict(LicenseLine)]
        query = select(*fields).order_by(licenses.c.created_ms.desc()).limit(limit)
        async with self._database.begin() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return tuple(LicenseLine(**row) for row in rows)

    async def list_agents(self, limit: int = 1000) -> tuple[AgentLine, ...]:
        """Agents by company and server."""
        fields = [agents.c[name] for name in attrs.fields_dict(AgentLine)]
        query = select(*fields).order_by(agents.c.company_id, agents.c.server_id).limit(limit)
        async with self._database.begin() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return tuple(AgentLine(**row) for row in rows)


async def _agent_row(connection: AsyncConnection, agent_id: str) -> RowMapping | None:
    query = select(agents).where(agents.c.agent_id == agent_id)
    return (await connection.execute(query)).mappings().first()


async def _write_agent(
    connection: AsyncConnection, agent_id: str, values: dict[str, Any]
) -> RowMapping:
    """Inserts or updates an agent with the next version and the next place in the sync."""

    def write(sync: Connection) -> None:
        top = sync.scalar(select(func.max(agents.c.change))) or 0
        old = sync.scalar(select(agents.c.version).where(agents.c.agent_id == agent_id))
        changed = {**values, "version": (old or 0) + 1, "change": top + 1}
        if old is None:
            sync.execute(insert(agents).values(agent_id=agent_id, **changed))
        else:
            sync.execute(update(agents).where(agents.c.agent_id == agent_id).values(**changed))

    await connection.run_sync(write)
    row = await _agent_row(connection, agent_id)
    assert row is not None
    return row


def _record(row: RowMapping) -> AgentRecord:
    return AgentRecord(
        agent_id=row["agent_id"],
        company_id=row["company_id"],
        server_id=row["server_id"],
        state=AgentState(row["state"]),
        token_hash=row["token_hash"],
        expires_at=_time(row["expires_ms"]),
        prev_token_hash=row["prev_token_hash"],
        prev_token_expires_at=_time(row["prev_expires_ms"]),
        version=row["version"],
    )


def _time(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
