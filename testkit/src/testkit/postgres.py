"""A private PostgreSQL cluster."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from testkit.base import Service
from testkit.errors import KeeperError, StartError
from testkit.install import Program

__all__ = ["PostgresServer"]

_USER = "postgres"
_INITDB_TIMEOUT_SECONDS = 60.0
_SHARED_MEMORY_LINE = 6  # of postmaster.pid, counted from 0: "key id"


class PostgresServer(Service):
    """postgres with one superuser `postgres` that needs no password from loopback.

    PostgreSQL refuses to run as root; then it runs as the account `postgres` that its package made.
    """

    program: ClassVar[Program] = Program(
        name="PostgreSQL",
        executables=("postgres",),
        package="postgresql",
        folders=("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"),
    )
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": ends sessions, then checkpoints

    def __init__(
        self,
        *,
        fsync: bool = True,
        start_timeout_seconds: float = 60.0,
        stop_timeout_seconds: float = 20.0,
    ) -> None:
        """Leave `fsync` on where durability is what is tested."""
        super().__init__(
            start_timeout_seconds=start_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
        )
        self._fsync = fsync
        self._data = self.directory / "data"

    @property
    def url(self) -> str:
        """`postgresql://postgres@127.0.0.1:port/postgres`."""
        return f"postgresql://{_USER}@{self.host}:{self.port}/postgres"

    def _beside(self, name: str) -> str:
        """Return a program of the same version as the server."""
        return str(self.executable.resolve().parent / name)

    def _user(self) -> str | None:
        return _USER if os.geteuid() == 0 else None

    def _prepare(self) -> None:
        user = self._user()
        if user is not None:
            shutil.chown(self.directory, user, user)
        done = subprocess.run(
            [
                *(self._beside("initdb"), "-D", str(self._data), "-U", _USER),
                *("-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            ],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            env=self._environment(),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_INITDB_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            text = done.stdout.decode(errors="replace")
            raise StartError(f"initdb ended with exit code {done.returncode}:\n{text}")

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "on" if self._fsync else "off",
            # In the data directory rather than /dev/shm, where a kill would leave files behind.
            "dynamic_shared_memory_type": "mmap",
            "max_connections": "50",
            "shared_buffers": "32MB",
        }
        options = [word for item in settings.items() for word in ("-c", "=".join(item))]
        return [str(self.executable), "-D", str(self._data), *options]

    def _answers(self) -> bool:
        asked = subprocess.run(
            [self._beside("pg_isready"), "-q", "-h", self.host, "-p", str(self.port)],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return asked.returncode == 0

    def close(self) -> None:
        """Stop it, remove its directory and its shared memory, give the port back."""
        with contextlib.suppress(KeeperError):  # without its keeper it is gone already
            self.stop()
        self._remove_shared_memory(self._data / "postmaster.pid")
        super().close()

    def _remove_shared_memory(self, lock_file: Path) -> None:
        """Remove the System V segment that a killed server could not remove itself."""
        try:
            words = lock_file.read_text(encoding="ascii").splitlines()[_SHARED_MEMORY_LINE].split()
        except (FileNotFoundError, IndexError):
            return  # it ended in order, or never came so far
        subprocess.run(
            ["ipcrm", "-m", words[1]],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # gone already is as good
            check=False,
        )
