"""The schema, the journal, transactions and times."""

from __future__ import annotations

import sqlite3
import stat
import threading
from datetime import UTC, datetime, timedelta, timezone

import anyio
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st

from ahnotify import (
    DeadLetterRecorder,
    IncidentRecorder,
    RuleCache,
    RuleStore,
    Scheduling,
    Sending,
    SqlBroker,
    SqlIncidentStore,
)
from ahnotify.database import Database, UtcDateTime, downgrade, metadata, migrate
from ahnotify.database._control_tables import tenants
from ahnotify.errors import ConfigurationError, DatabaseUnavailableError


def test_migrations_make_exactly_the_tables_that_the_code_uses(url, tmp_path):
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": "ahnotify_version", "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_migrations_go_down_to_nothing_and_up_again(url, tmp_path):
    downgrade(url, "base")
    with sqlite3.connect(tmp_path / "notify.db") as plain:
        names = {row[0] for row in plain.execute("SELECT name FROM sqlite_master")}
    plain.close()
    assert {name for name in names if "ahnotify_version" not in name} == set()
    migrate(url)
    migrate(url)


def test_every_table_carries_its_tenant():
    assert [t.name for t in metadata.sorted_tables if "tenant_id" not in t.c] == []


def test_the_file_can_be_read_by_its_owner_only(url, tmp_path):
    assert stat.S_IMODE((tmp_path / "notify.db").stat().st_mode) == 0o600


@pytest.mark.anyio
async def test_sqlite_writes_a_wal_and_syncs_every_commit(database):
    async with database.read() as connection:
        journal = (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar()
        synchronous = (await connection.exec_driver_sql("PRAGMA synchronous")).scalar()
    assert (journal, synchronous) == ("wal", 2)


def _row(tenant_id: str) -> dict:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return {
        "tenant_id": tenant_id,
        "name": tenant_id,
        "timezone": "UTC",
        "created_at": now,
        "updated_at": now,
    }


@pytest.mark.anyio
async def test_a_writer_waits_for_a_writer_of_another_process(url, database):
    other = Database.open(url)
    order = []
    async with anyio.create_task_group() as tasks, database.write() as connection:
        await connection.execute(sa.insert(tenants).values(_row("a")))

        async def second() -> None:
            async with other.write() as late:
                count = (await late.execute(sa.select(sa.func.count(tenants.c.tenant_id)))).scalar()
                order.append(count)

        tasks.start_soon(second)
        await anyio.sleep(0.2)
        order.append("first is still open")
    await other.aclose()
    assert order == ["first is still open", 1]


@pytest.mark.anyio
async def test_a_failed_block_commits_nothing(database):
    async def half() -> None:
        async with database.write() as connection:
            await connection.execute(sa.insert(tenants).values(_row("a")))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await half()
    async with database.read() as connection:
        assert (await connection.execute(sa.select(tenants))).all() == []


@pytest.mark.anyio
async def test_a_cancelled_task_ends_outside_of_its_transaction(database):
    done = []

    async def write() -> None:
        async with database.write() as connection:
            await anyio.sleep(0.1)
            await connection.execute(sa.insert(tenants).values(_row("a")))
        done.append("committed")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.sleep(0.03)
        tasks.cancel_scope.cancel()
    async with database.read() as connection:
        assert len((await connection.execute(sa.select(tenants))).all()) == 1


@pytest.mark.anyio
async def test_a_database_that_is_not_there_is_one_error_of_ours(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")
    before = set(threading.enumerate())
    with pytest.raises(DatabaseUnavailableError):
        await database.check()
    await database.aclose()
    for thread in set(threading.enumerate()) - before:
        if "connection_worker" in thread.name:
            # The driver's thread reports its end to this event loop, so the loop must outlive it.
            await anyio.to_thread.run_sync(thread.join)


@pytest.mark.anyio
async def test_a_database_without_tables_says_what_to_run(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(ConfigurationError, match="migrate"):
        await database.check()
    await database.aclose()


@pytest.mark.anyio
async def test_parts_on_a_database_without_tables_stop_and_do_not_try_again(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path / 'empty.db'}")
    broker = SqlBroker(database=database)
    parts = [
        RuleCache(store=RuleStore(database=database)),
        Sending(database=database, broker=broker, channels={}),
        Scheduling(database=database, broker=broker),
        DeadLetterRecorder(database=database, broker=broker),
        IncidentRecorder(store=SqlIncidentStore(database=database), broker=broker),
    ]
    for part in parts:
        with anyio.fail_after(5), pytest.raises((ConfigurationError, ExceptionGroup)) as caught:
            await part.run()
        error = caught.value
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, ConfigurationError), type(part).__name__
        assert "ahnotify.migrate(url)" in str(error)
        assert "ah-server" in str(error)
    await database.aclose()


@pytest.mark.anyio
async def test_a_table_of_an_older_release_is_named_as_that(database):
    with pytest.raises(ConfigurationError, match="migrate"):
        async with database.write() as connection:
            await connection.exec_driver_sql("SELECT nothing_of_this_name FROM tenants")


@pytest.mark.parametrize(
    "wrong", ["", "sqlite://", "sqlite:///:memory:", "mysql://u:secret@h/d", "nonsense"]
)
def test_a_wrong_url_is_refused_without_its_password(wrong):
    with pytest.raises(ConfigurationError) as error:
        Database.open(wrong)
    assert "secret" not in str(error.value)


SQLITE = sa.create_engine("sqlite://").dialect


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=30))])))
def test_an_instant_comes_back_as_the_same_instant(value):
    column = UtcDateTime()
    stored = column.process_bind_param(value, SQLITE)
    assert isinstance(stored, int)
    assert column.process_result_value(stored, SQLITE) == value


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_stored_instants_order_as_instants_do(a, b):
    column = UtcDateTime()
    assert (a < b) == (column.process_bind_param(a, SQLITE) < column.process_bind_param(b, SQLITE))


def test_a_naive_time_is_refused():
    with pytest.raises(ValueError, match="naive"):
        UtcDateTime().process_bind_param(datetime(2026, 1, 1), SQLITE)
