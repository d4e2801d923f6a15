"""The directory a server keeps everything in: owner-only, held by one process at a time.

`lock` names the holder's process id; the lock itself is the operating system's and ends with the
process. `admin.token` and `hub.token` are made at the first start when the settings name none: one
line of printable ASCII without spaces, 16 characters at least, for the owner only.
"""

import fcntl
import logging
import os
import re
import secrets
import stat
from pathlib import Path

from ah_server.errors import StateDirectoryError
from ah_server.settings import Secret

_SECRET_BYTES_MAX = 4096
_SECRET = re.compile(rb"[!-~]{16,}")
_FOR_OTHERS = 0o077

_log = logging.getLogger("ah_server.state")


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
            os.ftruncate(lock_fd, 0)
            os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(lock_fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock_fd)
            raise StateDirectoryError(
                f"state_dir {path} is in use by process {holder}; stop it, or set another state_dir"
            ) from error
        except OSError as error:
            os.close(lock_fd)
            raise StateDirectoryError(
                f"state_dir {path} cannot be locked ({error.strerror}); make room there, or set"
                " state_dir to a directory on a local disk"
            ) from error
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

    A file that others may read is made the owner's only, with a warning.

    Raises:
        StateDirectoryError: it cannot be read or used, or is missing and not to be made.
    """
    path = state_dir / name
    try:
        if make and not path.exists():
            _write_whole(path, secrets.token_urlsafe(32) + "\n")
        text = _read_private(path).strip()
    except FileNotFoundError as error:
        raise StateDirectoryError(
            f"{path} is not there yet: start the server once with this state_dir, or set the token"
        ) from error
    except OSError as error:
        raise StateDirectoryError(
            f"{path} cannot be read or made ({error.strerror}); let this user read it, or remove"
            f" it, or set {name} in the settings"
        ) from error
    if not text:
        raise StateDirectoryError(f"{path} is empty: remove it, and a new one is made at the start")
    # What the file holds stays out of the sentence: it is a secret, though a broken one.
    if len(text) >= _SECRET_BYTES_MAX or _SECRET.fullmatch(text) is None:
        raise StateDirectoryError(
            f"{path} is not one line of 16 to {_SECRET_BYTES_MAX - 1} printable ASCII characters"
            f" without spaces: remove it, and a new one is made at the start, or set {name} in the"
            " settings"
        )
    return Secret(text.decode("ascii"))


def _read_private(path: Path) -> bytes:
    """The first bytes of a plain file, which afterwards only its owner may read."""
    # Non-blocking: what lies there may be a pipe that nobody writes to.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(0, "it is not a plain file")
        if mode & _FOR_OTHERS:
            _make_private(path, fd)
        return os.read(fd, _SECRET_BYTES_MAX + 1)
    finally:
        os.close(fd)


def _make_private(path: Path, fd: int) -> None:
    try:
        os.fchmod(fd, 0o600)
    except OSError:
        _log.warning("%s can be read by others, and its mode cannot be changed: chmod 600 it", path)
    else:
        _log.warning(
            "%s could be read by others and is now its owner's only; if somebody may have read it,"
            " remove it, and a new one is made at the next start",
            path,
        )


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
