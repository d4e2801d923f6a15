"""The command `ahagent` (extra `ahwal[cli]`)."""

from ahwal.cli._exit import ExitCode
from ahwal.cli._main import main

__all__ = ["ExitCode", "main"]
