"""Bring a database to this release's schema, or back; the scripts travel inside the package."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import anyio
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from ahnotify.database._engine import async_url, make_engine
from ahnotify.errors import ConfigurationError


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade the database at `url` to `revision`; does nothing when it is there already.

    Blocks; call it before the event loop runs, or from a worker thread. A SQLite file is made when
    it is missing, readable by its owner only (it holds addresses), its folder is not.

    Raises:
        ConfigurationError: The URL is wrong, or the file's folder does not exist.
    """
    _run(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> None:
    """Take the database at `url` back to `revision`, `base` for an empty one; later data goes.

    Raises:
        ConfigurationError: The URL is wrong.
    """
    _run(url, lambda config: command.downgrade(config, revision))


def _run(url: str, action: object) -> None:
    assert callable(action)
    parsed = async_url(url)
    with resources.as_file(resources.files("ahnotify.database") / "migrations") as scripts:
        config = Config()
        config.set_main_option("script_location", str(scripts).replace("%", "%%"))
        config.set_main_option("path_separator", "os")

        def within(connection: sa.Connection) -> None:
            config.attributes["connection"] = connection
            action(config)

        if parsed.get_backend_name() == "sqlite":
            _make_private_file(parsed)
            engine = sa.create_engine(parsed.set(drivername="sqlite"), poolclass=sa.NullPool)
            with engine.connect() as connection:
                within(connection)
            engine.dispose()
        else:
            anyio.run(_run_async, parsed, within)


async def _run_async(url: sa.URL, within: object) -> None:
    assert callable(within)
    engine = make_engine(url, poolclass=sa.NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(within)
    await engine.dispose()


def _make_private_file(url: sa.URL) -> None:
    path = Path(url.database or "")
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"the folder {path.parent} of the notification database does not exist; make it first"
        )
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
