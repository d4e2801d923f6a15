"""The directory a server keeps everything in: owner-only, held by one process at a time.

`lock` names the holder's process id; the lock itself is the operating system's and ends with the
process. `admin.token` and `hub.token` are made at the first start when the settings name none.
"""

import fcntl
import os
import secrets
from pathlib import Path

from ah_server.errors import StateDirectoryError
from ah_server.settings import Secret


class StateDirectory:
    """An opened state directory; `close` lets another process have it."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path) -> "StateDirectory":
        """Makes the directory when it is missing and takes its lock.

        Raises:
            StateDirectoryError: it cannot be made or written, or another process holds it.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateDirectoryError(
                f"state_dir {path} cannot be used ({error.strerror}); set state_dir, or"
                " AHC_STATE_DIR, to a directory that this user may write"
            ) from error
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock_fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock_fd)
            raise StateDirectoryError(
                f"state_dir {path} is in use by process {holder}; stop it, or set another state_dir"
            ) from error
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
        return cls(path, lock_fd)

    def close(self) -> None:
        """Gives the lock back."""
        os.close(self._lock_fd)

    def secret(self, name: str, configured: Secret) -> Secret:
        """The configured secret, else the one in the file `name`, which is made when missing.

        Raises:
            StateDirectoryError: the file cannot be read or made.
        """
        return configured or stored_secret(self.path, name, make=True)


def stored_secret(state_dir: Path, name: str, *, make: bool = False) -> Secret:
    """The secret a server keeps under its state directory.

    Raises:
        StateDirectoryError: it cannot be read, or is missing and not to be made.
    """
    path = state_dir / name
    try:
        if make and not path.exists():
            _write_whole(path, secrets.token_urlsafe(32) + "\n")
        text = path.read_text("ascii").strip()
    except FileNotFoundError as error:
        raise StateDirectoryError(
            f"{path} is not there yet: start the server once with this state_dir, or set the token"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise StateDirectoryError(f"{path} cannot be read or made ({error})") from error
    if not text:
        raise StateDirectoryError(f"{path} is empty: remove it, and a new one is made at the start")
    return Secret(text)


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
