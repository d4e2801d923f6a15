"""What a forked child may do with the WAL of its parent: nothing."""

import os
import signal

from ahwal.errors import WALClosedError


def uses_of(wal, entry_id):
    """Every call that a child may try."""
    return [
        lambda: wal.append(b"y"),
        lambda: wal.append_many([b"y"]),
        wal.oldest,
        wal.newest,
        lambda: wal.peek(1, 1),
        lambda: wal.remove(entry_id),
        lambda: wal.replace(entry_id, [b"y"]),
        lambda: wal.quarantine(entry_id),
        wal.quarantined,
        lambda: wal.requeue(entry_id),
        wal.stats,
    ]


def assert_a_child_is_refused_every_use(wal, entry_id):
    """Fork, try each use and close; a child that hangs is ended after 10 s."""
    uses = uses_of(wal, entry_id)
    child = os.fork()
    if child == 0:
        code, refused = 255, 0
        try:
            signal.alarm(10)
            for use in uses:
                try:
                    use()
                except WALClosedError:
                    refused += 1
            wal.close()
            code = refused
        finally:
            # Whatever happens, the child must not go on with the tests.
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == len(uses)
