"""The command line `ah-server`."""

from ah_server.cli._main import EXIT_CODES, main

__all__ = ["EXIT_CODES", "main"]
