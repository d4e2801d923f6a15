"""The hub's SQLite file: opened, owner-only, one writer at a time."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import event, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from ah_server.errors import StateDirectoryError
from ah_server.hub._tables import meta, metadata

SCHEMA_VERSION = 1


class HubDatabase:
    """The opened file. Transactions come one after the other, and none is left half."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._turn = anyio.Lock()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed durably when the block ends, rolled back when it raises.

        The wait for the turn can be cancelled. What follows cannot: it is a matter of
        milliseconds, and the driver does not survive a cancellation in the middle of a call.
        """
        async with self._turn:
            with anyio.CancelScope(shield=True):
                async with self._engine.begin() as connection:
                    yield connection

    async def aclose(self) -> None:
        """Closes the file."""
        with anyio.CancelScope(shield=True):
            await self._engine.dispose()


async def open_database(path: Path) -> HubDatabase:
    """Opens the file, making it and its tables when they are missing.

    Raises:
        StateDirectoryError: the file cannot be made or opened, or another version wrote it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made here with its mode, because SQLite would make it readable by others.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StateDirectoryError(
            f"the hub's file {path} cannot be opened ({error.strerror});"
            " give state_dir a directory that this user may write"
        ) from error
    # One connection: SQLite has one writer anyhow, and waiting here is fairer than its busy loop.
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", pool_size=1, max_overflow=0)
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    database = HubDatabase(engine)
    async with database.begin() as connection:
        await connection.run_sync(metadata.create_all)
        found = await connection.scalar(select(meta.c.value).where(meta.c.name == "schema"))
        if found is None:
            await connection.execute(insert(meta).values(name="schema", value=SCHEMA_VERSION))
    if found not in (None, SCHEMA_VERSION):
        await database.aclose()
        raise StateDirectoryError(
            f"the hub's file {path} has schema {found}, this program knows {SCHEMA_VERSION};"
            " use the program that made it, or another state_dir"
        )
    return database


def _prepare(connection: Any, _record: Any) -> None:
    # The driver's own transaction handling is off, so that _begin decides how one begins.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()


def _begin(connection: Any) -> None:
    # IMMEDIATE: a transaction that reads, then writes, must not find the file locked in between.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
