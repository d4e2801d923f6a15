"""`ahagent run`: the agent with the host's collectors, signals, and a status file.

`<state_dir>/status.json` is replaced each cycle: one JSON object with `pid`, `running`, `at` (Unix
seconds) and the figures of `AgentStatus`. It holds no secret.
"""

import argparse
import importlib
import json
import logging
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from ahwal.agent import Agent, AgentConfig, AgentState
from ahwal.cli._exit import ExitCode
from ahwal.cli._ledger import Ledger
from ahwal.cli._log import configure_logging
from ahwal.errors import ConfigError

STATUS_FILE_NAME = "status.json"
STATUS_EVERY_SECONDS = 10.0
_log = logging.getLogger("ahwal.cli")


def run(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Run until a signal, or until the agent ends by itself."""
    configure_logging(config)
    if config.insecure_skip_verify:
        _log.warning("insecure_skip_verify is on: the collector's certificate is not checked")
    ledger = None if options.ledger is None else Ledger(options.ledger)
    try:
        agent = Agent(
            config,
            _host_collectors(),
            on_appended=None if ledger is None else ledger.record,
        )
        anyio.run(_run, agent, config, options)
    finally:
        if ledger is not None:
            ledger.close()
    return ExitCode.OK


def _host_collectors() -> Any:
    try:
        return importlib.import_module("ahwal.host").collectors()
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is missing; install ahwal[host]") from error


async def _run(agent: Agent, config: AgentConfig, options: argparse.Namespace) -> None:
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_signals, agent, options)
        group.start_soon(_write_status, agent, config)
        try:
            await agent.run()
        except Exception as error:  # noqa: BLE001 - raised again below, unwrapped
            failure = error
        group.cancel_scope.cancel()
    await to_thread.run_sync(_save_status, agent, config)
    if failure is not None:
        raise failure


async def _signals(agent: Agent, options: argparse.Namespace) -> None:
    wanted = [signal.SIGTERM, signal.SIGINT]
    # Windows has neither of the other two.
    wanted += [getattr(signal, name) for name in ("SIGHUP", "SIGUSR1") if hasattr(signal, name)]
    with anyio.open_signal_receiver(*wanted) as signals:
        async for number in signals:
            if number in (signal.SIGTERM, signal.SIGINT):
                _log.info("stopping on %s", number.name)
                agent.stop()
            elif number.name == "SIGHUP":
                await _reload(agent, options)
            else:
                _log_status(agent)


async def _reload(agent: Agent, options: argparse.Namespace) -> None:
    main = importlib.import_module("ahwal.cli._main")
    try:
        config = await to_thread.run_sync(main.read_config, options)
        await agent.reload(config)
    except ConfigError as error:
        _log.error("the configuration was not reloaded: %s", error)
    else:
        _log.info("the configuration was reloaded")


def _log_status(agent: Agent) -> None:
    status = agent.status()
    _log.info(
        "%s version=%s uptime=%.0fs collector=%s interval=%gs",
        status.line(),
        status.version,
        status.uptime_seconds,
        status.collector_url,
        status.interval_seconds,
    )


async def _write_status(agent: Agent, config: AgentConfig) -> None:
    while True:
        await to_thread.run_sync(_save_status, agent, config)
        await anyio.sleep(min(STATUS_EVERY_SECONDS, agent.status().interval_seconds))


def _save_status(agent: Agent, config: AgentConfig) -> None:
    status = agent.status()
    document = {
        "pid": os.getpid(),
        "running": status.state not in (AgentState.STOPPED, AgentState.FAILED),
        "at": time.time(),
        "state": str(status.state),
        "error": status.error,
        "line": status.line(),
        "storage": status.storage,
        "version": status.version,
        "collector_url": status.collector_url,
        "interval_seconds": status.interval_seconds,
        "uptime_seconds": round(status.uptime_seconds, 1),
        "cycles": status.cycles,
    }
    if status.sender is not None:
        sender = status.sender
        document["sender"] = {
            "state": str(sender.state),
            "queued_batches": sender.queued_batches,
            "queue_bytes": sender.queue_bytes,
            "upgrade_required": sender.upgrade_required,
            "produced": sender.produced,
            "inherited": sender.inherited,
            "delivered": sender.delivered,
            "dropped": {str(reason): count for reason, count in sender.dropped.items()},
            "queued": sender.queued,
            "requests": sender.requests,
            "send_failures": sender.send_failures,
            "clock_skew_seconds": sender.clock_skew_seconds,
            "last_success_unix_seconds": sender.last_success_unix_seconds,
            "last_error": sender.last_error,
        }
    path = Path(config.state_dir) / STATUS_FILE_NAME
    temporary = path.with_name(f"{STATUS_FILE_NAME}.tmp")
    # A status that cannot be written must not stop an agent whose disk is full.
    with suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream, indent=2)
        temporary.replace(path)
