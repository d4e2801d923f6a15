"""Who can be told: tenants, recipients, contacts.

Every method names a tenant and touches that tenant's rows only, but for `snapshot`: sending serves
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ahnotify._identity import name_id
from ahnotify.clock import SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.database import _control_tables as t
from ahnotify.database._insert import upsert
from ahnotify.database._require import require_tenant
from ahnotify.directory._values import RECIPIENT_TYPES, Contact, DirectorySnapshot, RecipientKey
from ahnotify.errors import ConflictError, InvalidError, NotFoundError
from ahnotify.providers._addresses import is_address
from ahnotify.providers.base import CHANNELS
from ahrules import Schedule, Unit, UnknownZoneError
from ahwire import Clock

_NAME_CHARS_MAX: Final = 200


class Directory:
    """Reads and writes the directory; every `put_*` may be repeated and then changes nothing."""

    def __init__(self, *, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def put_tenant(self, tenant_id: str, *, name: str = "", timezone: str = "UTC") -> None:
        """Make the tenant, or give it this name and time zone (of rules that have none).

        Raises:
            InvalidError: The id is empty or the zone is not one.
        """
        problems = _text_problems(tenant_id=tenant_id)
        try:
            Schedule(1, Unit.DAYS, timezone)
        except UnknownZoneError as error:
            problems.append(("timezone", str(error)))
        _raise(problems)
        now = utc_now(self._clock)
        row = {"tenant_id": tenant_id, "name": name or tenant_id, "timezone": timezone}
        async with self._database.write() as connection:
            await upsert(connection, t.tenants, row | {"created_at": now, "updated_at": now})

    async def put_recipient(
        self,
        tenant_id: str,
        recipient_type: str,
        recipient_id: str,
        *,
        name: str = "",
        members: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Make the recipient with exactly these members (`(recipient_type, recipient_id)` pairs).

        Raises:
            InvalidError: A field is wrong; users have no members.
            NotFoundError: The tenant does not exist.
        """
        chosen = list(dict.fromkeys(members))
        problems = _text_problems(recipient_id=recipient_id)
        problems += _type_problems("recipient_type", recipient_type)
        for index, (member_type, _) in enumerate(chosen):
            problems += _type_problems(f"members[{index}].recipient_type", member_type)
        if chosen and recipient_type == "user":
            problems.append(("members", "a user has none; make it a team or a group"))
        _raise(problems)
        now = utc_now(self._clock)
        key = {
            "tenant_id": tenant_id,
            "recipient_type": recipient_type,
            "recipient_id": recipient_id,
        }
        members_of = t.recipient_members
        async with self._database.write() as connection:
            await require_tenant(connection, tenant_id)
            row = key | {"name": name or recipient_id, "created_at": now, "updated_at": now}
            await upsert(connection, t.recipients, row)
            await connection.execute(
                sa.delete(members_of).where(*(members_of.c[n] == v for n, v in key.items()))
            )
            if chosen:
                rows = [key | {"member_type": kind, "member_id": id_} for kind, id_ in chosen]
                await connection.execute(sa.insert(members_of), rows)

    async def put_contact(
        self,
        tenant_id: str,
        recipient_type: str,
        recipient_id: str,
        channel: str,
        address: str,
        *,
        enabled: bool = True,
        verified: bool = False,
        contact_id: str | None = None,
        expected_version: int | None = None,
    ) -> Contact:
        """Make the contact, or change it; without an id it is found by its recipient and address.

        Raises:
            InvalidError: A field is wrong.
            NotFoundError: The tenant does not exist.
            ConflictError: Its version is not `expected_version`.
        """
        problems = _text_problems(recipient_id=recipient_id, address=address)
        problems += _type_problems("recipient_type", recipient_type)
        if channel not in CHANNELS:
            problems.append(("channel", f"{channel!r} is none of {', '.join(CHANNELS)}"))
        if channel == "email" and not is_address(address):
            problems.append(("address", "is not an e-mail address; give name@domain in ASCII"))
        _raise(problems)
        chosen = contact_id or name_id(
            tenant_id, "contact", recipient_type, recipient_id, channel, address
        )
        now = utc_now(self._clock)
        async with self._database.write() as connection:
            await require_tenant(connection, tenant_id)
            version = await _next_version(connection, tenant_id, chosen, expected_version)
            contact = Contact(
                tenant_id=tenant_id,
                contact_id=chosen,
                recipient=RecipientKey(recipient_type, recipient_id),
                channel=channel,
                address=address,
                enabled=enabled,
                verified=verified,
                version=version,
            )
            await _write_contact(connection, contact, now)
        return contact

    async def knows(self, tenant_id: str, recipient: RecipientKey) -> bool:
        """Whether the tenant has this recipient, or a contact or members of one of this name."""
        async with self._database.read() as connection:
            for table in (t.recipients, t.contacts, t.recipient_members):
                query = sa.select(table.c.recipient_id).where(
                    table.c.tenant_id == tenant_id,
                    table.c.recipient_type == recipient.recipient_type,
                    table.c.recipient_id == recipient.recipient_id,
                )
                if (await connection.execute(query.limit(1))).first() is not None:
                    return True
        return False

    async def get_contact(self, tenant_id: str, contact_id: str) -> Contact:
        """One contact.

        Raises:
            NotFoundError: The tenant has none of this id.
        """
        rows = await self._contacts(
            sa.select(t.contacts).where(
                t.contacts.c.tenant_id == tenant_id, t.contacts.c.contact_id == contact_id
            )
        )
        if not rows:
            raise NotFoundError(f"there is no contact {contact_id!r}")
        return rows[0]

    async def list_contacts(
        self, tenant_id: str, *, after: str = "", limit: int = 100
    ) -> list[Contact]:
        """The tenant's contacts in the order of their ids, from behind `after`."""
        return await self._contacts(
            sa.select(t.contacts)
            .where(t.contacts.c.tenant_id == tenant_id, t.contacts.c.contact_id > after)
            .order_by(t.contacts.c.contact_id)
            .limit(limit)
        )

    async def delete_contact(
        self, tenant_id: str, contact_id: str, *, expected_version: int | None = None
    ) -> None:
        """Remove the contact; frozen targets of messages on their way keep their address.

        Raises:
            NotFoundError: The tenant has none of this id.
            ConflictError: Its version is not `expected_version`.
        """
        async with self._database.write() as connection:
            version = await _next_version(connection, tenant_id, contact_id, expected_version)
            if version == 1:
                raise NotFoundError(f"there is no contact {contact_id!r}")
            await connection.execute(
                sa.delete(t.contacts).where(
                    t.contacts.c.tenant_id == tenant_id, t.contacts.c.contact_id == contact_id
                )
            )

    async def _contacts(self, query: sa.Select[Any]) -> list[Contact]:
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [_contact(row) for row in rows]

    async def snapshot(self) -> DirectorySnapshot:
        """Everything that sending needs, of all tenants, as it is now."""
        return await self._snapshot(None)

    async def tenant_snapshot(self, tenant_id: str) -> DirectorySnapshot:
        """The same of one tenant: what a miss reads before it is an error."""
        return await self._snapshot(tenant_id)

    async def _snapshot(self, tenant_id: str | None) -> DirectorySnapshot:
        def scoped(table: sa.Table, *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
            query = sa.select(table).where(*where)
            return query if tenant_id is None else query.where(table.c.tenant_id == tenant_id)

        usable = sa.and_(t.contacts.c.enabled, t.contacts.c.verified)
        async with self._database.read() as connection:
            contact_rows = (await connection.execute(scoped(t.contacts, usable))).mappings().all()
            member_rows = (await connection.execute(scoped(t.recipient_members))).mappings().all()
            rule_rows = (await connection.execute(scoped(t.notification_rules))).mappings().all()
            tenant_rows = (await connection.execute(scoped(t.tenants))).mappings().all()
        contacts: dict[tuple[str, RecipientKey], tuple[Contact, ...]] = {}
        for contact in map(_contact, contact_rows):
            key = (contact.tenant_id, contact.recipient)
            contacts[key] = (*contacts.get(key, ()), contact)
        members: dict[tuple[str, RecipientKey], tuple[RecipientKey, ...]] = {}
        for row in member_rows:
            whole = (row["tenant_id"], RecipientKey(row["recipient_type"], row["recipient_id"]))
            member = RecipientKey(row["member_type"], row["member_id"])
            members[whole] = (*members.get(whole, ()), member)
        names = {(row["tenant_id"], row["rule_id"]): row["name"] for row in rule_rows}
        zones = {
            (row["tenant_id"], row["rule_id"]): zone
            for row in rule_rows
            if (zone := row["definition"].get("timezone"))
        }
        return DirectorySnapshot(
            contacts=contacts,
            members=members,
            rule_names=names,
            rule_timezones=zones,
            tenant_names={row["tenant_id"]: row["name"] for row in tenant_rows},
            tenant_timezones={row["tenant_id"]: row["timezone"] for row in tenant_rows},
        )


def _contact(row: sa.RowMapping) -> Contact:
    return Contact(
        tenant_id=row["tenant_id"],
        contact_id=row["contact_id"],
        recipient=RecipientKey(row["recipient_type"], row["recipient_id"]),
        channel=row["channel"],
        address=row["address"],
        enabled=row["enabled"],
        verified=row["verified"],
        version=row["version"],
    )


def _text_problems(**fields: str) -> list[tuple[str, str]]:
    return [
        (name, f"must have 1 to {_NAME_CHARS_MAX} printable characters")
        for name, value in fields.items()
        if not 1 <= len(value) <= _NAME_CHARS_MAX or not value.isprintable()
    ]


def _type_problems(field: str, value: str) -> list[tuple[str, str]]:
    if value in RECIPIENT_TYPES:
        return []
    return [(field, f"{value!r} is none of {', '.join(RECIPIENT_TYPES)}")]


def _raise(problems: Sequence[tuple[str, str]]) -> None:
    if problems:
        raise InvalidError(list(problems))


async def _next_version(
    connection: AsyncConnection, tenant_id: str, contact_id: str, expected: int | None
) -> int:
    """The version after this change: 1 for a row that is not there.

    Raises:
        ConflictError: The row has not the version that the caller read.
    """
    query = sa.select(t.contacts.c.version).where(
        t.contacts.c.tenant_id == tenant_id, t.contacts.c.contact_id == contact_id
    )
    stored = (await connection.execute(query)).scalar_one_or_none()
    if expected is not None and stored != expected:
        raise ConflictError(f"contact {contact_id!r} changed since it was read; read it again")
    return (stored or 0) + 1


async def _write_contact(connection: AsyncConnection, contact: Contact, now: datetime) -> None:
    row = {
        "tenant_id": contact.tenant_id,
        "contact_id": contact.contact_id,
        "recipient_type": contact.recipient.recipient_type,
        "recipient_id": contact.recipient.recipient_id,
        "channel": contact.channel,
        "address": contact.address,
        "enabled": contact.enabled,
        "verified": contact.verified,
        "version": contact.version,
        "created_at": now,
        "updated_at": now,
    }
    try:
        await upsert(connection, t.contacts, row)
    except sa.exc.IntegrityError as error:
        raise InvalidError(
            [("address", "the recipient has this address in another contact already")]
        ) from error
