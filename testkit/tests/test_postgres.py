"""PostgreSQL through asyncpg: a committed row is there after kill -9."""

import contextlib

import asyncpg
import pytest

from testkit import PostgresServer

pytestmark = [pytest.mark.service, pytest.mark.anyio]


async def test_the_shared_database_answers(postgres_server):
    connection = await asyncpg.connect(postgres_server.url)
    try:
        assert await connection.fetchval("select 6 * 7") == 42
        assert await connection.fetchval("show server_encoding") == "UTF8"
    finally:
        await connection.close()


async def test_a_committed_row_survives_kill_and_restart(start_service):
    server = start_service(PostgresServer)
    connection = await asyncpg.connect(server.url)
    await connection.execute("create table line (id int primary key, word text)")
    await connection.execute("insert into line values (1, 'kept')")

    server.kill()
    with contextlib.suppress(asyncpg.PostgresError, OSError):
        await connection.close(timeout=1)
    server.restart()

    connection = await asyncpg.connect(server.url)
    try:
        assert await connection.fetchval("select word from line where id = 1") == "kept"
    finally:
        await connection.close()
