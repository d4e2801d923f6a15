"""What rows need to be there first."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ahnotify.database import _control_tables as t
from ahnotify.errors import NotFoundError


async def require_tenant(connection: AsyncConnection, tenant_id: str) -> None:
    """The tenant, or NotFoundError."""
    query = sa.select(t.tenants.c.tenant_id).where(t.tenants.c.tenant_id == tenant_id)
    if (await connection.execute(query)).first() is None:
        raise NotFoundError(f"there is no tenant {tenant_id!r}; make it first")
