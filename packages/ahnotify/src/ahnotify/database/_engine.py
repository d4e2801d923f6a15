"""One database: connections, transactions, and the errors of its drivers in our words."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import anyio
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from ahnotify._extras import extra_text
from ahnotify.errors import ConfigurationError, DatabaseUnavailableError

_BEGIN: Final = "ahnotify_begin"
_BUSY_TIMEOUT_MS: Final = 10_000
_MIGRATE: Final = (
    "call ahnotify.migrate(url) once before the database is used; ah-server does so when it starts"
)


def async_url(url: str) -> sa.URL:
    """`sqlite:///file` or `postgresql://…` with the asynchronous driver named.

    Raises:
        ConfigurationError: The URL is no URL, names another database, or an in-memory one.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        # The text of a URL can hold a password, so it is not repeated.
        raise ConfigurationError(
            "the database URL cannot be read; give sqlite:///path or postgresql://user@host/name"
        ) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ConfigurationError(
                "an in-memory database would lose every notification; give sqlite:///path"
            )
        return parsed.set(drivername="sqlite+aiosqlite")
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+asyncpg")
    raise ConfigurationError(f"database {backend!r} is not supported; use sqlite or postgresql")


def make_engine(url: sa.URL, **options: Any) -> AsyncEngine:
    """The engine of an asynchronous URL.

    Raises:
        ConfigurationError: Its driver is not installed.
    """
    try:
        return create_async_engine(url, **options)
    except ModuleNotFoundError as error:
        extra = "sqlite" if url.get_backend_name() == "sqlite" else "postgres"
        text = extra_text(f"a database of {url.get_backend_name()}", extra, error)
        raise ConfigurationError(text) from error


class Database:
    """The notification database; an asynchronous context manager that closes it.

    Transactions are shielded from cancellation: a cancelled task ends before its transaction began
    or after it ended, never in the middle of a driver's call. They are short; no network call is
    made inside one.

    On SQLite: WAL journal, `synchronous=FULL` (a commit that returned survives a power loss), and
    writers begin IMMEDIATE, one at a time in this process and in turn with other processes.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        # Waiting here is fair and cheap; waiting inside SQLite is polling.
        self._writer = anyio.Lock() if self._is_sqlite else None

    @classmethod
    def open(cls, url: str, *, connections_max: int = 8) -> Database:
        """A database at `url`; nothing is connected before the first transaction.

        Args:
            url: `sqlite:///relative`, `sqlite:////absolute` or `postgresql://user@host/name`.
            connections_max: Open connections at most.

        Raises:
            ConfigurationError: The URL is not one of these, or its driver is not installed.
        """
        parsed = async_url(url)
        engine = make_engine(parsed, pool_size=connections_max, max_overflow=0)
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
            sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return cls(engine)

    @property
    def dialect_name(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads: one snapshot, blocks no writer.

        Raises:
            DatabaseUnavailableError: The database did not answer.
            ConfigurationError: It was never migrated, or to an older release's tables only.
        """
        async with self._transaction("BEGIN") as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write; committed, durably, when the block ends without an error.

        Raises:
            DatabaseUnavailableError: The database did not answer or stayed locked; nothing is
                committed unless the connection was lost during COMMIT itself.
            ConfigurationError: It was never migrated, or to an older release's tables only.
        """
        if self._writer is None:
            async with self._transaction("BEGIN") as connection:
                yield connection
            return
        async with self._writer, self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[AsyncConnection]:
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope(shield=True):
            try:
                async with self._engine.connect() as plain:
                    connection = await plain.execution_options(**{_BEGIN: begin})
                    async with connection.begin():
                        yield connection
            except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
                if _lacks_schema(error):
                    raise ConfigurationError(
                        f"the {self.dialect_name} database has not the tables of this release; "
                        f"{_MIGRATE}"
                    ) from error
                if isinstance(error, sa.exc.ProgrammingError):
                    raise
                raise self._unavailable(error) from error
            except (sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
                raise self._unavailable(error) from error
            except OSError as error:
                raise DatabaseUnavailableError(
                    f"the {self.dialect_name} database cannot be reached: {error.strerror}; "
                    "it is tried again"
                ) from error

    def _unavailable(self, error: sa.exc.SQLAlchemyError) -> DatabaseUnavailableError:
        return DatabaseUnavailableError(
            f"the {self.dialect_name} database did not answer: {_cause(error)}; it is tried again"
        )

    async def check(self) -> None:
        """Reach the database and see that its schema is there.

        Raises:
            DatabaseUnavailableError: It cannot be reached.
            ConfigurationError: It was never migrated.
        """
        async with self.read() as connection:
            there = await connection.run_sync(lambda sync: sa.inspect(sync).has_table("tenants"))
        if not there:
            raise ConfigurationError(f"the notification database has no tables yet; {_MIGRATE}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        with anyio.CancelScope(shield=True):
            await self._engine.dispose()


def _cause(error: sa.exc.SQLAlchemyError) -> str:
    """The driver's own words, without the statement and its values."""
    original = getattr(error, "orig", None)
    return (
        str(original) if isinstance(original, sqlite3.Error) else type(original or error).__name__
    )


def _lacks_schema(error: sa.exc.DBAPIError) -> bool:
    """Whether a table or a column is not there: SQLite says so in words, PostgreSQL by SQLSTATE."""
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return str(original).startswith(("no such table", "no such column")) or (
            "has no column named" in str(original)
        )
    return getattr(original, "sqlstate", None) in ("42P01", "42703")


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver must not begin transactions on its own, or BEGIN IMMEDIATE comes too late.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
