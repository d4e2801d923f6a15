"""From a path to an open directory, or to an error that names it."""

import os
from logging import Logger

from ahwal.errors import WALFormatError, WALOpenError
from ahwal.wal._assembly import Parts, assemble
from ahwal.wal._limits import Limits
from ahwal.wal._storage import PosixStorage, Storage
from ahwire import Clock


def open_parts(
    path: str | os.PathLike[str],
    storage: Storage | None,
    limits: Limits,
    clock: Clock,
    logger: Logger,
) -> Parts:
    """Open a directory; see `WAL.open`.

    Raises:
        WALLockedError: It is in use.
        WALFormatError: A newer version wrote it.
        WALOpenError: It cannot be used for another reason, which is the cause.
    """
    try:
        return assemble(storage or PosixStorage(path), limits, clock, logger)
    except WALFormatError as error:
        raise WALFormatError(f"{os.fspath(path)} {error}", found=error.found) from None
    except OSError as error:
        raise WALOpenError(
            f"{os.fspath(path)} cannot be used for the WAL ({error.strerror or error}): "
            "give it a directory this process may write to, with room"
        ) from error
