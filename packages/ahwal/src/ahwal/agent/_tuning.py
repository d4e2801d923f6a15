"""The settings that change while an agent runs: its own, and those from afar over them."""

import logging

from ahwal.agent import _remote
from ahwal.agent._collecting import CollectLoop
from ahwal.agent._config import AgentConfig
from ahwal.sender import Sender
from ahwire import agent_pb2


class Tuning:
    """Keeps the settings in force, and gives each change to the loops once they are there.

    Args:
        config: The agent's own settings.
        logger: Told of remote settings that were not taken.

    Attributes:
        effective: The settings in force.
    """

    def __init__(self, *, config: AgentConfig, logger: logging.Logger) -> None:
        self._config = config
        self._log = logger
        self._known_remote = agent_pb2.AgentConfig()
        self._sender: Sender | None = None
        self._collecting: CollectLoop | None = None
        self.effective = _remote.local(config)

    def bind(self, sender: Sender, collecting: CollectLoop) -> None:
        """Give changes to these from now on; they were made with the settings in force."""
        self._sender, self._collecting = sender, collecting
        self._apply()

    def take_own(self, config: AgentConfig) -> None:
        """Use another configuration of the agent's own."""
        self._config = config
        self._apply()

    def take_remote(self, remote: agent_pb2.AgentConfig) -> None:
        """Use another remote configuration, if the agent's own allows it."""
        self._known_remote = remote
        self._apply()
        self._log.info("a remote configuration was applied", extra={"etag": remote.etag[:64]})

    def _apply(self) -> None:
        if self._config.allow_remote_config:
            self.effective, refused = _remote.apply(self._config, self._known_remote)
            for problem in refused:
                self._log.warning("a remote setting was not taken: %s", problem)
        else:
            self.effective = _remote.local(self._config)
        if self._sender is not None:
            self._sender.set_interval(self.effective.interval_seconds)
            self._sender.set_max_point_age(self.effective.max_point_age_seconds)
            self._sender.catch_up_batches = self.effective.catch_up_batches
            self._sender.labels = dict(self.effective.labels)
        if self._collecting is not None:
            self._collecting.apply(self.effective)
