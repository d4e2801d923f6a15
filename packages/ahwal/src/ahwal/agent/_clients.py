"""The client in use, and those it replaced, which may still have a request under way."""

from ahwal import transport
from ahwal.agent._config import AgentConfig
from ahwal.agent._credentials import Credentials
from ahwal.agent._enrol import make_client
from ahwal.clock import AsyncClock
from ahwal.errors import ConfigError

# The longest valid `send_timeout`, and a little: no request of an old client outlives it.
OLD_CLIENT_SECONDS = 65.0


class Clients:
    """Makes clients from configurations and keeps those that are replaced until nothing needs them.

    Args:
        config: The first configuration.
        credentials: The identity at the start.
        clock: Measures how long an old client is kept.
        given: A client to begin with; default: one as configured.

    Attributes:
        current: The client in use.

    Raises:
        ConfigError: No collector address, or an address or a file is wrong.
    """

    def __init__(
        self,
        *,
        config: AgentConfig,
        credentials: Credentials,
        clock: AsyncClock,
        given: "transport.Client | None",
    ) -> None:
        self._clock = clock
        self._enrolled_url = credentials.collector_url
        self._old: list[tuple[float, transport.Client]] = []
        self.current = given or self.make(config, credentials)

    def make(self, config: AgentConfig, credentials: Credentials) -> "transport.Client":
        """Return a client as configured, without using it yet.

        Raises:
            ConfigError: No collector address, or an address or a file is wrong.
        """
        url = config.collector_url or self._enrolled_url
        if not url:
            raise ConfigError("collector_url is not set, and enrolment gave none; set it")
        return make_client(config, url, credentials)

    def use(self, client: "transport.Client") -> None:
        """Put another client in the place of the current one, whose request may still end."""
        self._old.append((self._clock.monotonic(), self.current))
        self.current = client

    async def close_old(self) -> None:
        """Close the clients whose last request must have ended by now.

        Called at each change; the one replaced last stays until the next change or the end.
        """
        now = self._clock.monotonic()
        for since, client in list(self._old):
            if now - since > OLD_CLIENT_SECONDS:
                self._old.remove((since, client))
                await client.aclose()

    async def aclose(self) -> None:
        """Close all of them."""
        for _, client in self._old:
            await client.aclose()
        self._old.clear()
        await self.current.aclose()
