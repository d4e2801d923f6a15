"""The development hub's file, for commands that work on it whether the server runs or not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ah_server.errors import SettingsError, StateDirectoryError
from ah_server.hub import HubDatabase, open_database
from ah_server.settings import ServerSettings


@asynccontextmanager
async def hub_database(settings: ServerSettings) -> AsyncIterator[HubDatabase]:
    """The opened file.

    Raises:
        SettingsError: another hub is set.
        StateDirectoryError: the file is not there, or cannot be opened.
    """
    if settings.hub.base_url:
        raise SettingsError(
            [f"hub.base_url: the hub is {settings.hub.base_url}; use its own tools"]
        )
    path = settings.state_dir / "hub" / "hub.sqlite"
    if not path.exists():
        way_out = "start the server once with this state_dir"
        inner = settings.state_dir / "server"
        if (inner / "hub" / "hub.sqlite").exists():
            # The directory that a demo names has the server's within.
            way_out = f"this is a demo's directory; set state_dir to {inner}"
        raise StateDirectoryError(f"{path} is not there: {way_out}")
    database = await open_database(path)
    try:
        yield database
    finally:
        await database.aclose()
