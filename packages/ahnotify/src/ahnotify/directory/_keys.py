"""API keys: who may change the directory and the rules of a tenant."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

import attrs
import sqlalchemy as sa

from ahnotify.clock import SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.database import _control_tables as t
from ahnotify.database._require import require_tenant
from ahnotify.errors import InvalidError, NotFoundError
from ahwire import Clock

_KEY_PREFIX: Final = "ahn"


class Role:
    """What a key may do; each may do what those before it may, within its tenant."""

    VIEWER: Final = "viewer"
    EDITOR: Final = "editor"
    ADMIN: Final = "admin"
    OPERATOR: Final = "operator"
    ORDER: Final = (VIEWER, EDITOR, ADMIN, OPERATOR)


@attrs.frozen(kw_only=True)
class ApiKey:
    """A fresh key; the only time its text exists on our side."""

    key_id: str
    key: str = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Principal:
    """Who asks: the tenant and role of a key."""

    tenant_id: str
    role: str
    key_id: str


class ApiKeys:
    """Makes, revokes and recognises keys. A key is 256 random bits, kept as its SHA-256 only."""

    def __init__(self, *, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def create(self, tenant_id: str, *, role: str, name: str = "") -> ApiKey:
        """A new key of the tenant. Its text is returned here and stored nowhere.

        Raises:
            InvalidError: The role is not one.
            NotFoundError: The tenant does not exist.
        """
        if role not in Role.ORDER:
            raise InvalidError([("role", f"{role!r} is none of {', '.join(Role.ORDER)}")])
        key_id = secrets.token_hex(8)
        key = f"{_KEY_PREFIX}_{key_id}_{secrets.token_urlsafe(32)}"
        async with self._database.write() as connection:
            await require_tenant(connection, tenant_id)
            await connection.execute(
                sa.insert(t.api_keys).values(
                    tenant_id=tenant_id,
                    key_id=key_id,
                    key_hash=_hash(key),
                    role=role,
                    name=name,
                    created_at=utc_now(self._clock),
                )
            )
        return ApiKey(key_id=key_id, key=key)

    async def revoke(self, tenant_id: str, key_id: str) -> None:
        """The key is refused from now on.

        Raises:
            NotFoundError: The tenant has none of this id.
        """
        async with self._database.write() as connection:
            result = await connection.execute(
                sa.update(t.api_keys)
                .where(t.api_keys.c.tenant_id == tenant_id, t.api_keys.c.key_id == key_id)
                .values(revoked_at=utc_now(self._clock))
            )
        if result.rowcount == 0:
            raise NotFoundError(f"there is no key {key_id!r}")

    async def authenticate(self, key: str) -> Principal | None:
        """Whose key this is; None when it is nobody's (any more). Compared in constant time."""
        prefix, _, rest = key.partition("_")
        key_id = rest.partition("_")[0]
        if prefix != _KEY_PREFIX or not key_id:
            return None
        # The key's own id is what is looked up: the tenant is what it tells.
        query = sa.select(t.api_keys).where(
            t.api_keys.c.key_id == key_id, t.api_keys.c.revoked_at.is_(None)
        )
        async with self._database.read() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        stored = row["key_hash"] if row is not None else bytes(32)
        if not hmac.compare_digest(stored, _hash(key)) or row is None:
            return None
        return Principal(tenant_id=row["tenant_id"], role=row["role"], key_id=key_id)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
