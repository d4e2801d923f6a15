"""Only the queue on disk: what append returned from is still there after a restart."""

import tempfile
from pathlib import Path

from ahwal import WAL


def main() -> None:
    """Appends, forgets one, opens again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue"
        with WAL.open(path) as queue:
            first, second = queue.append_many([b"first", b"second"])
            queue.remove(first)
        with WAL.open(path) as queue:
            entry = queue.oldest()
            assert entry is not None
            assert entry.id == second
            print(f"{entry.data.decode()} is still there, {queue.stats().batches} batch in all")


if __name__ == "__main__":
    main()
