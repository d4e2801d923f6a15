"""`ahagent run`: the agent with the host's collectors, signals, and reloading."""

import argparse
import importlib
import logging
import signal
from typing import Any

import anyio
from anyio import to_thread

from ahwal.agent import Agent, AgentConfig
from ahwal.cli._exit import ExitCode
from ahwal.cli._ledger import Ledger
from ahwal.cli._log import configure_logging
from ahwal.errors import ConfigError

_log = logging.getLogger("ahwal.cli")


def run(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Run until a signal, or until the agent ends by itself."""
    configure_logging(config)
    ledger = None if options.ledger is None else Ledger(options.ledger)
    try:
        host = _host()
        agent = Agent(
            config,
            host.collectors(),
            read_inventory=host.inventory,
            on_appended=None if ledger is None else ledger.record,
        )
        anyio.run(_run, agent, options)
    finally:
        if ledger is not None:
            ledger.close()
    return ExitCode.OK


def _host() -> Any:
    try:
        return importlib.import_module("ahwal.host")
    except ModuleNotFoundError as error:
        raise ConfigError(str(error)) from error


async def _run(agent: Agent, options: argparse.Namespace) -> None:
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_signals, agent, options)
        try:
            await agent.run()
        except Exception as error:  # noqa: BLE001 - raised again below, unwrapped
            failure = error
        group.cancel_scope.cancel()
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
