"""The queue on disk: nothing that `append` returned is lost, whatever happens to the process.

The files are described, byte for byte, in [The files of the WAL](wal-format.md), which is
`docs/reference/wal-format.md` in the repository. The file `format` holds the text `1`, the number
of their layout; where it is absent or empty the layout is 1, and a higher number is refused.
"""

from ahwal.queue import Entry, Stats
from ahwal.wal._recovery import RecoveryReport
from ahwal.wal._storage import File, Lock, PosixStorage, Storage
from ahwal.wal._wal import WAL

__all__ = ["WAL", "Entry", "File", "Lock", "PosixStorage", "RecoveryReport", "Stats", "Storage"]
