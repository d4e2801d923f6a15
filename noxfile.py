"""Every gate and test run of the workspace: `nox -l` lists them, `make test` runs the default ones.

Sessions run in the workspace's own .venv. Only `alone` and `proto` make environments of their
own, since what they show is that something works without the workspace.
"""

import functools
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
UV = str(BIN / "uv")
REPORTS = ROOT / ".nox" / "reports"
DIST = ROOT / "dist"

# Distribution name → folder, in the order in which they build on each other.
PACKAGES = {
    "ahwire": "packages/ahwire",
    "ahrules": "packages/ahrules",
    "ahwal": "packages/ahwal",
    "ahcollector": "packages/ahcollector",
    "ahnotify": "packages/ahnotify",
    "ah-reference-server": "reference-server",
}
IMPORT_NAMES = {name: name.replace("-", "_") for name in PACKAGES} | {
    "ah-reference-server": "ah_server"
}
SOURCES = [f"{folder}/src" for folder in PACKAGES.values()] + ["testkit/src"]
COVERAGE_PERCENT = {"ahwire": 100, "ahrules": 100}
COVERAGE_PERCENT_ELSE = 95

# What the tests of a package alone may use beside its own dependencies.
TEST_REQUIREMENTS = ["aiosmtpd>=1.4.5", "anyio>=4.4", "cryptography>=42", "hypercorn>=0.17"]
TEST_REQUIREMENTS += ["hypothesis>=6.100", "pytest>=8.2", "pytest-xdist>=3.6", "trio>=0.25"]
TEST_REQUIREMENTS += ["openapi-spec-validator>=0.7"]

# Idle workers take tests from busy ones. Up to four: more would make real timeouts tight.
ON_ALL_CORES = ("-n", str(max(2, min(4, os.cpu_count() or 1))), "--dist", "worksteal")

nox.options.default_venv_backend = "none"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = [
    "lint",
    "types",
    "imports",
    "project",
    "units",
    "services",
    "faults",
    "alone",
    "end_to_end",
    "docs",
    "summary",
]

Gate = Callable[[nox.Session], None]
_outcomes: list[tuple[str, str, float]] = []  # name, outcome, seconds: what `summary` prints


def gate(function: Gate) -> Gate:
    """Note the outcome and the time of a session for the summary."""

    @functools.wraps(function)
    def timed(session: nox.Session) -> None:
        started = time.monotonic()
        outcome = "FAILED"
        try:
            function(session)
            outcome = "ok"
        except BaseException as error:
            if type(error).__name__ == "_SessionSkip":  # how nox carries session.skip()
                outcome = f"skipped: {error}"
            raise
        finally:
            _outcomes.append((session.name, outcome, time.monotonic() - started))

    return timed


def tool(session: nox.Session, name: str, *arguments: str, **environ: str) -> None:
    """Run a program of the workspace's environment."""
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    session.run(str(BIN / name), *arguments, env={"PATH": path, **environ})


def report(name: str) -> str:
    """Return the option that makes pytest write the counts which the summary adds up."""
    return f"--junitxml={REPORTS / f'{name}.xml'}"


def has_python(folder: str, pattern: str = "*.py") -> bool:
    """Tell whether a folder holds any file of the pattern."""
    return any((ROOT / folder).rglob(pattern))


@nox.session
@gate
def lint(session: nox.Session) -> None:
    """Ruff: format and rules."""
    shutil.rmtree(REPORTS, ignore_errors=True)  # the first session of a run: forget the last run
    tool(session, "ruff", "format", "--check", ".")
    tool(session, "ruff", "check", ".")


@nox.session
@gate
def types(session: nox.Session) -> None:
    """Mypy, strict, over everything that is not a test."""
    scripts = [folder for folder in ("examples", "benchmarks") if has_python(folder)]
    tool(session, "mypy", *SOURCES, "noxfile.py", *scripts)


@nox.session
@gate
def imports(session: nox.Session) -> None:
    """Import contracts: layers, pure packages, one adapter a vendor, no cycles."""
    tool(session, "lint-imports", "--no-logo")


@nox.session
@gate
def project(session: nox.Session) -> None:
    """Shape of the tree, versions, generated code, documentation examples."""
    tool(session, "pytest", "-q", report("project"), "tests/project", *session.posargs)


@nox.session
@gate
def units(session: nox.Session) -> None:
    """Unit, property and contract tests that need no service."""
    # One package that cannot be collected must not hide the others.
    options = (
        "-m",
        "not service and not nightly",
        "--continue-on-collection-errors",
        *ON_ALL_CORES,
    )
    folders = ("packages", "reference-server/tests")
    tool(session, "pytest", "-q", *options, report("units"), *folders, *session.posargs)


@nox.session
@gate
def services(session: nox.Session) -> None:
    """Tests against real services, after installing what is missing where that is allowed."""
    # Exit code 1 says that something is missing; then the tests skip loudly, or fail in CI.
    session.run(str(BIN / "python"), "-m", "testkit", success_codes=[0, 1])
    tool(session, "pytest", "-q", report("testkit"), "testkit/tests", *session.posargs)
    # Much of these tests is waiting for a service; each worker has services of its own.
    marked = ("-m", "service and not nightly", *ON_ALL_CORES)
    folders = ("packages", "reference-server/tests")
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    session.run(
        *(str(BIN / "pytest"), "-q", *marked, report("services"), *folders, *session.posargs),
        env={"PATH": path},
        success_codes=[0, 5],  # 5: no package has such a test yet
    )


@nox.session
@gate
def faults(session: nox.Session) -> None:
    """Kills, full disks, lost replies, across processes."""
    if not has_python("tests/faults", "test_*.py"):
        session.skip("tests/faults has no test yet")
    marked = ("-m", "not nightly", *ON_ALL_CORES)
    tool(session, "pytest", "-q", *marked, report("faults"), "tests/faults", *session.posargs)


def declaration(folder: str) -> dict[str, Any]:
    """Return the [project] table of the package in a folder."""
    text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)["project"]
    return table


def all_extras(folder: str) -> str:
    """Return all extras of the package in a folder, in brackets."""
    optional = declaration(folder).get("optional-dependencies", {})
    return f"[{','.join(optional)}]" if optional else ""


def requirements(name: str, *, extras: bool) -> Iterator[Requirement]:
    """Yield what one of our packages declares."""
    table = declaration(PACKAGES[name])
    lines = list(table["dependencies"])
    if extras:
        lines += [
            line for group in table.get("optional-dependencies", {}).values() for line in group
        ]
    yield from map(Requirement, lines)


def declared_of_ours(name: str, *, extras: bool) -> set[str]:
    """Return which of our packages come with this one, itself included."""
    found = {name}
    for requirement in requirements(name, extras=extras):
        if requirement.name in PACKAGES:
            found |= declared_of_ours(requirement.name, extras=bool(requirement.extras))
    return found


def build_wheels(session: nox.Session) -> dict[str, Path]:
    """Build the wheels of all six into dist/ and return them by name."""
    shutil.rmtree(DIST, ignore_errors=True)
    for folder in PACKAGES.values():
        with session.chdir(ROOT / folder):
            session.run(
                *(str(BIN / "python"), "-m", "hatchling", "build", "-t", "wheel", "-d", str(DIST)),
                silent=True,
            )
    return {name: next(DIST.glob(f"{name.replace('-', '_')}-*.whl")).resolve() for name in PACKAGES}


def install_alone(
    session: nox.Session, name: str, wheels: dict[str, Path], *, extras: bool
) -> Path:
    """Install one wheel and what it declares, look at the result, return the interpreter."""
    home = ROOT / ".nox" / "alone" / name
    python = home / "bin" / "python"
    wanted, more = name, list[str]()
    if extras:
        wanted, more = name + all_extras(PACKAGES[name]), TEST_REQUIREMENTS
    else:
        session.run(UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(home))
    # Constraints with a file as the source: our names can come from dist/ and nowhere else.
    ours = home / "ours.txt"
    lines = [f"{other} @ {wheel.as_uri()}" for other, wheel in wheels.items()]
    ours.write_text("\n".join(lines) + "\n", encoding="utf-8")
    session.run(
        *(UV, "pip", "install", "--quiet", "--python", str(python), "--find-links", str(DIST)),
        *("--constraint", "constraints.txt", "--constraint", str(ours)),
        *(f"{wanted} @ {wheels[name].as_uri()}", *more),
    )
    expected = {IMPORT_NAMES[other] for other in declared_of_ours(name, extras=extras)}
    names = (IMPORT_NAMES[name], " ".join(IMPORT_NAMES.values()), " ".join(sorted(expected)))
    session.run(str(python), "-I", "-W", "error", "tests/project/look_alone.py", *names)
    return python


@nox.session
@gate
def alone(session: nox.Session) -> None:
    """Each package from its wheel, with what it declares and nothing else; its own tests."""
    wheels = build_wheels(session)
    failed = []
    ready: dict[str, Path] = {}
    for name in session.posargs or PACKAGES:
        try:
            install_alone(session, name, wheels, extras=False)
            ready[name] = install_alone(session, name, wheels, extras=True)
        except CommandFailed:  # look at the others all the same
            failed.append(name)
    # Much of a test run is waiting, so the machine's cores are shared by several.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        runs = {name: pool.submit(run_alone, name, python) for name, python in ready.items()}
        for name, run in runs.items():
            done = run.result()
            print(f"\n{name}: {' '.join(done.args)}\n{done.stdout}", flush=True)
            failed += [name] if done.returncode else []
    if failed:
        session.error(f"not on their own feet: {', '.join(failed)}")


def run_alone(name: str, python: Path) -> "subprocess.CompletedProcess[str]":
    """Run the tests of one package with its own interpreter and return what they print."""
    return subprocess.run(
        [
            *(str(python.parent / "pytest"), "-q", "-p", "no:cacheprovider"),
            *("-m", "not service and not nightly", report(f"alone-{name}"), *ON_ALL_CORES),
            f"{PACKAGES[name]}/tests",
        ],
        # The environment's own commands (ahagent, ah-server) are the ones to be found.
        env=os.environ | {"PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@nox.session
@gate
def end_to_end(session: nox.Session) -> None:
    """The whole path with real processes."""
    if not has_python("tests/end_to_end", "test_*.py"):
        session.skip("tests/end_to_end has no test yet")
    marked = ("-m", "not nightly")
    folder = "tests/end_to_end"
    tool(session, "pytest", "-q", *marked, report("end_to_end"), folder, *session.posargs)


@nox.session
@gate
def docs(session: nox.Session) -> None:
    """The documentation, built strictly and offline."""
    tool(
        session,
        "mkdocs",
        "build",
        "--strict",  # not --quiet: it hides the warnings that strict counts
        "--site-dir",
        str(ROOT / "site"),
        NO_MKDOCS_2_WARNING="1",
    )


@nox.session
def summary(session: nox.Session) -> None:
    """What ran, how long it took, and how many tests passed."""
    print("\nGate          Seconds  Outcome")
    for name, outcome, seconds in _outcomes:
        print(f"{name:12} {seconds:8.1f}  {outcome}")
    print(f"{'together':12} {sum(seconds for _, _, seconds in _outcomes):8.1f}\n")
    session.run(str(BIN / "python"), "tests/project/count_tests.py", str(REPORTS), silent=False)


# Not part of `make test`.


@nox.session
def proto(session: nox.Session) -> None:
    """Regenerate the message modules (_pb2.py, .pyi) of ahwire in a throw-away environment."""
    session.run(str(BIN / "python"), "tests/project/protogen.py", "packages/ahwire/src")


@nox.session
def lock(session: nox.Session) -> None:
    """Write constraints.txt: one version of everything, for every platform, naming no host."""
    folders = [*PACKAGES.values(), "testkit"]
    names = [*PACKAGES, "testkit"]
    wanted = [f"./{folder}" + all_extras(folder) for folder in folders]
    listed = Path(session.create_tmp()) / "workspace.in"
    listed.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    session.run(
        *(UV, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
        *("--no-emit-index-url", "--no-annotate", "--no-header", "--upgrade"),
        *(f"--no-emit-package={name}" for name in names),
        *("--group", "dev", "--group", "services", "--group", "bench", "--group", "fuzz"),
        *(str(listed), "-o", "constraints.txt"),
        silent=True,
    )


@nox.session
def nightly(session: nox.Session) -> None:
    """Everything that is too long for `make test`, and every property with many more examples."""
    fuzz = ("-c", "constraints.txt", "--group", "fuzz")
    session.run(UV, "pip", "install", "--quiet", "--python", str(BIN / "python"), *fuzz)
    # The WAL's part writes its own page of the docs.
    wal = "packages/ahwal/tests/wal"
    tool(session, "python", f"{wal}/wal_report.py", *session.posargs)
    folders = ("packages", "reference-server/tests", "tests", f"--ignore={wal}")
    # A single property may take longer than the limit after which `make test` calls it hung.
    profile = ("--hypothesis-profile=nightly", "-o", "faulthandler_timeout=3600")
    tool(session, "pytest", "-q", *profile, report("nightly"), *folders, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks, or those named after `--`, and write their figures into the docs."""
    peers = ("-c", "constraints.txt", "--group", "bench")
    session.run(UV, "pip", "install", "--quiet", "--python", str(BIN / "python"), *peers)
    session.run(str(BIN / "python"), "benchmarks/gather.py", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage of each package; judged only when every service was there."""
    all_there = session.run(str(BIN / "python"), "-m", "testkit", success_codes=[0, 1], silent=True)
    tool(session, "coverage", "erase")
    marked = ("-m", "not nightly")
    tool(session, "coverage", "run", "-m", "pytest", "-q", *marked, *session.posargs)
    tool(session, "coverage", "combine", "--quiet")
    for name, folder in PACKAGES.items():
        percent = COVERAGE_PERCENT.get(name, COVERAGE_PERCENT_ELSE)
        judged = [] if "MISSING" in str(all_there) else [f"--fail-under={percent}"]
        session.log(f"{name}: at least {percent} %")
        tool(session, "coverage", "report", f"--include={folder}/*", "--skip-covered", *judged)
