"""Notification rules in the database: the truth that every rule cache follows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ahnotify.clock import SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.database import _control_tables as t
from ahnotify.database._insert import upsert
from ahnotify.database._require import require_tenant
from ahnotify.errors import ConflictError, ExistsError, InvalidError, NotFoundError
from ahnotify.providers.base import CHANNELS
from ahrules import NotificationRule, RuleValidationError
from ahwire import Clock
from ahwire.names import is_id

_rules = t.notification_rules


@attrs.frozen(kw_only=True)
class StoredRule:
    """A rule and its place in history.

    Attributes:
        rule: The rule, with its times.
        version: Grows by one with every change; the ETag of the API.
        created: Whether this very call made it.
    """

    rule: NotificationRule
    version: int
    created: bool = False


@attrs.frozen(kw_only=True)
class RuleChanges:
    """What changed after a revision.

    Attributes:
        changed: Rules as they are now.
        removed: `(tenant_id, rule_id)` of those that are gone.
        timezones: Every tenant's time zone.
        revision: The newest that was seen.
    """

    changed: tuple[NotificationRule, ...]
    removed: tuple[tuple[str, str], ...]
    timezones: Mapping[str, str]
    revision: int


class RuleStore:
    """Reads and writes rules."""

    def __init__(self, *, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def put(
        self,
        tenant_id: str,
        rule_id: str,
        definition: Mapping[str, Any],
        *,
        actor: str = "system",
        expected_version: int | None = None,
    ) -> StoredRule:
        """Make the rule, or replace it; the same definition again changes nothing.

        Args:
            tenant_id: Whose rule.
            rule_id: Its id, as `ahwire.names.is_id` has it.
            definition: As `NotificationRule.from_dict` takes it; ids and times are ours.
            actor: Who does it, for the audit log.
            expected_version: The version the caller read (0: it must not exist yet), or None.

        Raises:
            InvalidError: With every fault by field path.
            NotFoundError: The tenant does not exist.
            ExistsError: It was to be made only, and is there.
            ConflictError: Its version is not `expected_version`.
        """
        if not is_id(rule_id):
            reason = (
                f"{rule_id[:40]!a} is not an id; give letters, digits and _ . : -, at most 128,"
                " the first a letter or a digit"
            )
            raise InvalidError([("rule_id", reason)])
        now = utc_now(self._clock)
        async with self._database.write() as connection:
            await require_tenant(connection, tenant_id)
            stored = await _read(connection, tenant_id, rule_id)
            version = (
                stored.version if stored else await _last_version(connection, tenant_id, rule_id)
            )
            _expect(rule_id, stored, expected_version)
            created_at = stored.rule.created_at if stored and stored.rule.created_at else now
            rule = read_rule(tenant_id, rule_id, definition, created_at=created_at, updated_at=now)
            if stored and attrs.evolve(rule, updated_at=stored.rule.updated_at) == stored.rule:
                return stored
            await _write(connection, rule, version + 1, deleted_at=None)
            await _log(connection, tenant_id, actor, "rule.put", rule_id, now)
        return StoredRule(rule=rule, version=version + 1, created=stored is None)

    async def get(self, tenant_id: str, rule_id: str) -> StoredRule:
        """One rule.

        Raises:
            NotFoundError: The tenant has none of this id.
        """
        async with self._database.read() as connection:
            stored = await _read(connection, tenant_id, rule_id)
        if stored is None:
            raise NotFoundError(f"there is no rule {rule_id!r}")
        return stored

    async def list_rules(
        self, tenant_id: str, *, after: str = "", limit: int = 100
    ) -> list[StoredRule]:
        """The tenant's rules in the order of their ids, from behind `after`."""
        query = (
            sa.select(_rules)
            .where(
                _rules.c.tenant_id == tenant_id,
                _rules.c.rule_id > after,
                _rules.c.deleted_at.is_(None),
            )
            .order_by(_rules.c.rule_id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [_stored(row) for row in rows]

    async def delete(
        self,
        tenant_id: str,
        rule_id: str,
        *,
        actor: str = "system",
        expected_version: int | None = None,
    ) -> None:
        """End the rule; what it decided before still goes out.

        Raises:
            NotFoundError: The tenant has none of this id.
            ConflictError: Its version is not `expected_version`.
        """
        now = utc_now(self._clock)
        async with self._database.write() as connection:
            stored = await _read(connection, tenant_id, rule_id)
            if stored is None:
                raise NotFoundError(f"there is no rule {rule_id!r}")
            if expected_version is not None and expected_version != stored.version:
                raise ConflictError(f"rule {rule_id!r} changed since it was read; read it again")
            rule = attrs.evolve(stored.rule, updated_at=now)
            await _write(connection, rule, stored.version + 1, deleted_at=now)
            await _log(connection, tenant_id, actor, "rule.delete", rule_id, now)

    async def changes(self, since_revision: int = 0) -> RuleChanges:
        """What changed after `since_revision`, of all tenants: a cache serves all of them."""
        query = sa.select(_rules).where(_rules.c.revision > since_revision)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
            zones = (
                await connection.execute(sa.select(t.tenants.c.tenant_id, t.tenants.c.timezone))
            ).all()
        live = [row for row in rows if row["deleted_at"] is None]
        gone = [row for row in rows if row["deleted_at"] is not None]
        return RuleChanges(
            changed=tuple(_stored(row).rule for row in live),
            removed=tuple((row["tenant_id"], row["rule_id"]) for row in gone),
            timezones=dict(zones),
            revision=max((row["revision"] for row in rows), default=since_revision),
        )


def _expect(rule_id: str, stored: StoredRule | None, version: int | None) -> None:
    if version is None or version == (stored.version if stored else 0):
        return
    if version == 0:
        raise ExistsError(
            f"rule {rule_id!r} exists already; to replace it read it and PUT it with its ETag as "
            "If-Match, or choose another rule_id"
        )
    raise ConflictError(f"rule {rule_id!r} changed since it was read; read it again")


def read_rule(
    tenant_id: str,
    rule_id: str,
    definition: Mapping[str, Any],
    *,
    created_at: datetime,
    updated_at: datetime,
) -> NotificationRule:
    """The rule of a definition from outside, or every fault in it.

    Raises:
        InvalidError: Something is wrong.
    """
    ours = {"tenant_id", "rule_id", "created_at", "updated_at"}
    given = {name: value for name, value in definition.items() if name not in ours}
    given |= {
        "tenant_id": tenant_id,
        "rule_id": rule_id,
        "created_at": created_at,
        "updated_at": updated_at,
    }
    # ahrules takes a rule without them; stored here it could never tell anybody.
    problems = [
        (name, f"is empty; name at least one {one}")
        for name, one in (("recipients", "recipient"), ("channels", "channel"))
        if given.get(name) in (None, [], ())
    ]
    try:
        rule = NotificationRule.from_dict(given)
    except RuleValidationError as error:
        problems += [(fault.path, fault.message) for fault in error.errors]
        raise InvalidError(problems) from error
    problems += [
        (f"channels[{index}]", f"{channel!r} is none of {', '.join(CHANNELS)}")
        for index, channel in enumerate(rule.channels)
        if channel not in CHANNELS
    ]
    if rule.template_policy != "default":
        problems.append(("template_policy", "only 'default', the built-in text, is available"))
    if problems:
        raise InvalidError(problems)
    return rule


def _stored(row: sa.RowMapping) -> StoredRule:
    return StoredRule(rule=NotificationRule.from_dict(row["definition"]), version=row["version"])


async def _read(connection: AsyncConnection, tenant_id: str, rule_id: str) -> StoredRule | None:
    query = sa.select(_rules).where(
        _rules.c.tenant_id == tenant_id, _rules.c.rule_id == rule_id, _rules.c.deleted_at.is_(None)
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else _stored(row)


async def _last_version(connection: AsyncConnection, tenant_id: str, rule_id: str) -> int:
    """The version of a deleted rule of this id: versions are never given twice."""
    query = sa.select(_rules.c.version).where(
        _rules.c.tenant_id == tenant_id, _rules.c.rule_id == rule_id
    )
    return (await connection.execute(query)).scalar_one_or_none() or 0


async def _write(
    connection: AsyncConnection,
    rule: NotificationRule,
    version: int,
    *,
    deleted_at: datetime | None,
) -> None:
    newest = (await connection.execute(sa.select(sa.func.max(_rules.c.revision)))).scalar()
    row = {
        "tenant_id": rule.tenant_id,
        "rule_id": rule.rule_id,
        "name": rule.name,
        "enabled": rule.enabled,
        "owner_id": rule.owner_id or "",
        "definition": rule.to_dict(),
        "version": version,
        "revision": (newest or 0) + 1,
        "created_at": rule.created_at,
        "updated_at": rule.updated_at,
        "deleted_at": deleted_at,
    }
    await upsert(connection, _rules, row, keep=())


async def _log(
    connection: AsyncConnection, tenant_id: str, actor: str, action: str, subject: str, at: datetime
) -> None:
    row = {
        "tenant_id": tenant_id,
        "actor": actor,
        "action": action,
        "subject": subject,
        "created_at": at,
    }
    await connection.execute(sa.insert(t.audit_log).values(row))
