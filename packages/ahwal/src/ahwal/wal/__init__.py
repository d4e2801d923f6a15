"""The queue on disk: nothing that `append` returned is lost, whatever happens to the process.

The format of the files is described at the top of the modules that own them: `_record` (segments),
`_checkpoint`, `_journal`, `_quarantine`, `_lock`. The file `format` holds the text `1`, the number
of this layout; where it is absent or empty the layout is 1, and a higher number is refused.
"""

from ahwal.queue import Entry, Stats
from ahwal.wal._recovery import RecoveryReport
from ahwal.wal._storage import File, Lock, PosixStorage, Storage
from ahwal.wal._wal import WAL

__all__ = ["WAL", "Entry", "File", "Lock", "PosixStorage", "RecoveryReport", "Stats", "Storage"]
