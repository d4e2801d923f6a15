"""`ah-server demo`."""

import argparse
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskStatus

from ah_server.demo import AgentFiles, DemoFolders, Voice, check, default_folder, show
from ah_server.errors import ServerError, StateDirectoryError
from ah_server.parts import one_error


def add_commands(commands: Any, without: argparse.ArgumentParser) -> None:
    """Adds the command of this module."""
    demo = commands.add_parser(
        "demo",
        parents=[without],
        help="run the main job on this machine's real metrics",
        description=(
            "Starts the server with everything embedded, and an agent that sends this machine's"
            " metrics to it. With --check it also kills the agent and proves what follows."
        ),
        epilog="example: ah-server demo --check",
    )
    demo.add_argument("--check", action="store_true", help="prove every step, exit 0 or 1")
    demo.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="where the state is kept between runs (--check: a temporary one)",
    )
    demo.add_argument("--reset", action="store_true", help="forget the state of earlier runs")
    demo.set_defaults(command=_demo)


async def _demo(options: argparse.Namespace) -> int:
    voice = Voice(clock=time)
    with one_error():
        async with anyio.create_task_group() as group:
            await group.start(_cancel_on_signal, group.cancel_scope, voice)
            if options.check:
                await _check(options.state_dir, voice)
            else:
                await _show(options, voice)
            group.cancel_scope.cancel()
            return 0
    # Ctrl-C is how the demo ends, but a check that did not end proves nothing.
    return 130 if options.check else 0


async def _show(options: argparse.Namespace, voice: Voice) -> None:
    folders = DemoFolders(root=options.state_dir or default_folder(os.environ))
    _make_usable(folders.root)
    if options.reset and folders.root.exists():
        _forget(folders)
        voice.step(f"state of earlier runs in {folders.root} was removed")
    await show(folders, voice)


async def _check(state_dir: Path | None, voice: Voice) -> None:
    if state_dir is not None:
        _make_usable(state_dir)
        _refuse_if_used(state_dir)
        await _checked(DemoFolders(root=state_dir), voice)
        return
    root = Path(tempfile.mkdtemp(prefix="ah-demo-"))
    await _checked(DemoFolders(root=root), voice)
    # After a failure the folder stays, for whoever looks for the reason.
    shutil.rmtree(root)


def _make_usable(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (root / "probe").touch()
        (root / "probe").unlink()
    except OSError as error:
        raise StateDirectoryError(
            f"the demo's folder {root} cannot be used ({error.strerror}); name another with"
            " --state-dir"
        ) from error


async def _checked(folders: DemoFolders, voice: Voice) -> None:
    try:
        await check(folders, voice)
    except ServerError:
        voice.step(
            f"what it left is kept in {folders.root}: the agent's log is"
            f" {AgentFiles(folder=folders.agent).log}"
        )
        raise


def _refuse_if_used(state_dir: Path) -> None:
    if any(state_dir.iterdir()):
        raise StateDirectoryError(
            f"--state-dir {state_dir} is not empty: the check counts from nothing; name another"
        )


def _forget(folders: DemoFolders) -> None:
    """Removes what the demo made, and nothing else that may stand beside it."""
    for folder in (folders.server, folders.agent, folders.mail):
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)


async def _cancel_on_signal(
    scope: anyio.CancelScope, voice: Voice, *, task_status: TaskStatus[None]
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            voice.step("stopping: agent first, then the server's parts in reverse order")
            scope.cancel()
            return
