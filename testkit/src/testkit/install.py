"""Finds the programs of the services, and installs missing ones where that is allowed.

Installing means apt-get, as root, on a machine that has it, unless `AH_APT=0`. Debian's packages
start their daemons when they are installed; a daemon that nobody asked for would take ports and
memory, so a policy-rc.d that forbids it stands in its place meanwhile. It names the process that
put it there and forbids nothing once that process is gone, so that even a kill in the middle
leaves a machine that works.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from testkit.errors import MissingProgramError

__all__ = ["Installer", "Program", "find", "locate", "no_daemons"]

_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT = """\
#!/bin/sh
# Forbids package scripts to start daemons while testkit (process {pid}) installs test services.
# testkit puts the former state back; without that process this file forbids nothing.
if kill -0 {pid} 2>/dev/null; then exit 101; fi
if [ -x "{saved}" ]; then exec "{saved}" "$@"; fi
exit 0
"""


@attrs.frozen(kw_only=True)
class Program:
    """An executable, the Debian package that has it, and where else it may be.

    Attributes:
        name: What people call it.
        executables: Names of the file, the first that is found counts.
        package: The Debian package.
        folders: Glob patterns of folders outside PATH; a higher version number in them wins.
        wrappers: Real names of files that are not the program but a wrapper to be passed over.
    """

    name: str
    executables: tuple[str, ...]
    package: str
    folders: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()


def _numbers(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", str(path))]


def find(program: Program, *, path: str | None = None) -> Path | None:
    """Return where the program is, or None.

    Links are not followed: redis-server is a link to a program that looks at the name it is
    called by.

    Args:
        program: What to look for.
        path: Folders to search first, as in PATH, which is the default.
    """
    searched = os.environ.get("PATH", "") if path is None else path
    beyond: list[Path] = []
    for pattern in program.folders:
        beyond += sorted(Path("/").glob(pattern.lstrip("/")), key=_numbers, reverse=True)
    places = [*(part for part in searched.split(os.pathsep) if part), *map(str, beyond)]
    for place in places:
        for name in program.executables:
            found = shutil.which(name, path=place)
            if found is not None and Path(found).resolve().name not in program.wrappers:
                return Path(found)
    return None


def locate(program: Program) -> Path:
    """Return where the program is.

    Raises:
        MissingProgramError: It is not on this machine.
    """
    found = find(program)
    if found is None:
        raise MissingProgramError(_missing_text(program))
    return found


def _missing_text(program: Program, why: str = "") -> str:
    return (
        f"{program.name} is not on this machine: no {' or '.join(program.executables)} in PATH"
        + "".join(f" or {pattern}" for pattern in program.folders)
        + f"; install it (Debian: apt-get install {program.package})"
        + (f"; not installed for you: {why}" if why else "")
    )


@contextlib.contextmanager
def no_daemons(policy: Path = _POLICY) -> Iterator[None]:
    """Forbid package scripts to start daemons; put the former state back afterwards."""
    saved = policy.with_name(policy.name + ".testkit-saved")
    if policy.exists() and not saved.exists():
        policy.rename(saved)
    policy.write_text(_POLICY_TEXT.format(pid=os.getpid(), saved=saved), encoding="ascii")
    policy.chmod(0o755)
    try:
        yield
    finally:
        if saved.exists():
            saved.replace(policy)
        else:
            policy.unlink()


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / "testkit-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")


class Installer:
    """Gets missing programs with apt-get, at most one try each."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        say: Callable[[str], None] = _to_stderr,
        run: Callable[..., "subprocess.CompletedProcess[str]"] = subprocess.run,
    ) -> None:
        """Take the environment to obey, where to tell what is done, and how to run a command."""
        self._environ = dict(os.environ if environ is None else environ)
        self._say = say
        self._run = run
        self._tried: dict[str, str] = {}

    def require(self, programs: Sequence[Program]) -> None:
        """Return when every program is on the machine, installing what is missing in one go.

        Raises:
            MissingProgramError: Some are missing; the text names each and why it was not installed.
        """
        missing = [program for program in programs if self._find(program) is None]
        new = [program for program in missing if program.name not in self._tried]
        if new:
            reason = self._forbidden() or self._install([program.package for program in new])
            self._tried |= dict.fromkeys((program.name for program in new), reason)
        still = [program for program in missing if self._find(program) is None]
        if still:
            raise MissingProgramError(
                "\n".join(_missing_text(program, self._tried[program.name]) for program in still)
            )

    def _find(self, program: Program) -> Path | None:
        return find(program, path=self._environ.get("PATH", ""))

    def _forbidden(self) -> str:
        """Return why nothing may be installed, or an empty text."""
        if self._environ.get("AH_APT", "1") == "0":
            return "AH_APT=0 forbids it"
        if os.geteuid() != 0:
            return "only root can install packages"
        if shutil.which("apt-get", path=self._environ.get("PATH", "")) is None:
            return "this machine has no apt-get"
        return ""

    def _install(self, packages: Sequence[str]) -> str:
        """Install with apt-get; return why it failed, or an empty text."""
        self._say(f"testkit: installing with apt: {' '.join(packages)} (AH_APT=0 forbids this)")
        apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
        steps = (
            [*apt, "update"],
            [*apt, "install", "-y", "--no-install-recommends", *packages],
        )
        environ = self._environ | {"DEBIAN_FRONTEND": "noninteractive"}
        with _one_at_a_time(), no_daemons():
            for step in steps:
                done = self._run(
                    step,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                )
                if done.returncode != 0:
                    lines = done.stdout.strip().splitlines() or ["it said nothing"]
                    return f"{' '.join(step)} ended with {done.returncode}: {lines[-1]}"
        return ""
