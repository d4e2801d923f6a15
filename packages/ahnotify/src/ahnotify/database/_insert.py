"""INSERT … ON CONFLICT, which both databases have and SQLAlchemy spells once for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

Insert: TypeAlias = sqlite.Insert | postgresql.Insert


def insert_into(connection: AsyncConnection, table: sa.Table) -> Insert:
    """An INSERT of this connection's database that knows ON CONFLICT."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


async def upsert(
    connection: AsyncConnection,
    table: sa.Table,
    row: dict[str, Any],
    *,
    key: Sequence[str] | None = None,
    keep: Sequence[str] = ("created_at",),
) -> None:
    """Insert `row`, or make the row with the same key equal to it except for the columns in `keep`.

    Args:
        connection: Within a transaction.
        table: Where.
        row: Every column that is set.
        key: The columns of the unique key; the primary key by default.
        keep: Columns that an existing row keeps.
    """
    names = list(key or [column.name for column in table.primary_key.columns])
    changed = {name: value for name, value in row.items() if name not in names and name not in keep}
    statement = insert_into(connection, table).values(row)
    await connection.execute(statement.on_conflict_do_update(index_elements=names, set_=changed))
