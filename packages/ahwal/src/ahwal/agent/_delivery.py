"""The agent's second half: from the queue to the collector, beside collecting."""

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol

import anyio
from anyio import to_thread
from attrs import evolve

from ahwal.agent._credentials import Credentials, CredentialStore
from ahwal.agent._enrol import expiry
from ahwal.agent._waiting import wait_for
from ahwal.clock import AsyncClock
from ahwal.errors import CredentialsError, TokenError, TransportError
from ahwal.sender import DeliveryState, Sender
from ahwal.transport import ConfigReply
from ahwal.transport._answer import Answer
from ahwire import agent_pb2

CONFIG_EVERY_SECONDS = 30.0
RENEW_EVERY_SECONDS = 60.0


class AgentTransport(Protocol):
    """What the agent asks of its client beside the sending of metrics."""

    async def get_config(self, etag: str = "") -> ConfigReply:
        """Ask for the configuration; see `ahwal.Client`."""
        ...

    async def renew(self) -> tuple[Answer, agent_pb2.RenewResponse | None]:
        """Ask for a new token; see `ahwal.Client`."""
        ...

    def set_token(self, token: str) -> None:
        """Use another token; see `ahwal.Client`."""
        ...


class DeliveryLoop:
    """Ticks the sender; fetches configuration and renews the token when that is due.

    Args:
        sender: What it ticks.
        client: For configuration and renewal.
        clock: Wall and monotonic clock.
        credentials: The identity, with the token's life.
        store: Where a renewed token goes.
        on_config: Given each new remote configuration.
        on_revoked: Called when the agent was revoked.
        logger: The agent's logger.

    Attributes:
        credentials: The identity with the newest token.
    """

    def __init__(
        self,
        *,
        sender: Sender,
        client: AgentTransport,
        clock: AsyncClock,
        credentials: Credentials,
        store: CredentialStore,
        on_config: Callable[[agent_pb2.AgentConfig], None] | None,
        on_revoked: Callable[[], None],
        logger: logging.Logger,
    ) -> None:
        self._sender = sender
        self._client = client
        self._clock = clock
        self.credentials = credentials
        self._store = store
        self._on_config = on_config
        self._on_revoked = on_revoked
        self._log = logger
        self._wake = anyio.Event()
        self._stopping = False
        self._revoked = False
        self._etag_wanted = ""
        self._etag_applied = ""
        self._config_at = 0.0
        self._renew_wanted = False
        self._renew_at = 0.0

    def use_client(self, client: AgentTransport) -> None:
        """Use another client from the next request on."""
        self._client = client

    def wake(self) -> None:
        """Tick soon: there is something new in the queue."""
        self._wake.set()

    def stop(self) -> None:
        """Send what is queued and then return from `run`."""
        self._stopping = True
        self._wake.set()

    def config_changed(self, etag: str) -> None:
        """Fetch the configuration soon."""
        self._etag_wanted = etag

    def renewal_wanted(self) -> None:
        """Renew the token soon."""
        self._renew_wanted = True

    async def run(self) -> None:
        """Send until `stop`, then what is left, as far as the collector takes it."""
        while not self._stopping:
            await wait_for(self._clock, self._wake, self._pause_seconds())
            self._wake = anyio.Event()
            await self._supervised(self._step)
        await self._supervised(self._flush)

    async def _supervised(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception:  # noqa: BLE001 - see below
            # The one supervisor of this loop: a mistake of ours in one step must not end delivery
            # for the life of the host program. The queue still has the batch.
            self._log.exception("a delivery step failed")

    def _pause_seconds(self) -> float | None:
        """Return how long to wait for a new batch; None means for ever."""
        if self._sender.state in (DeliveryState.BACKOFF, DeliveryState.UNAUTHORIZED):
            return self._sender.due_in_seconds()
        return None

    async def _step(self) -> None:
        if self._revoked:
            return
        await self._sender.tick()
        state = self._sender.state
        if state is DeliveryState.AGENT_REVOKED:
            self._revoked = True
            self._on_revoked()
        elif state is DeliveryState.OK:
            await self._fetch_config()
            await self._renew()

    async def _flush(self) -> None:
        while self._sender.status().queued_batches:
            before = self._sender.status().requests
            await self._sender.tick()
            if (
                self._sender.status().requests == before
                or self._sender.state is not DeliveryState.OK
            ):
                return

    async def _fetch_config(self) -> None:
        now = self._clock.monotonic()
        if (
            self._on_config is None
            or self._etag_wanted == self._etag_applied
            or now < self._config_at
        ):
            return
        self._config_at = now + CONFIG_EVERY_SECONDS
        try:
            reply = await self._client.get_config(self._etag_applied)
        except TransportError as error:
            self._log.debug("the configuration could not be fetched: %s", error)
            return
        if reply.status == 304:
            self._etag_applied = self._etag_wanted
        elif reply.status == 200 and reply.config is not None:
            # The newest wins, even if it is no longer the one that the acknowledgement named.
            self._etag_applied = self._etag_wanted = reply.config.etag or self._etag_wanted
            self._on_config(reply.config)

    async def _renew(self) -> None:
        half_life = self.credentials.renew_at()
        due = self._renew_wanted or (half_life is not None and self._clock.time() >= half_life)
        now = self._clock.monotonic()
        if not due or now < self._renew_at:
            return
        self._renew_at = now + RENEW_EVERY_SECONDS
        try:
            answer, response = await self._client.renew()
            if response is None or not response.agent_token:
                code, message = answer.error
                self._log.warning(
                    "the token could not be renewed: status %d %s %s",
                    answer.status,
                    code or "",
                    message,
                    extra={"request_id": answer.request_id},
                )
                return
            self._client.set_token(response.agent_token)
        except (TransportError, TokenError) as error:
            self._log.warning("the token could not be renewed: %s", error)
            return
        self._renew_wanted = False
        self.credentials = evolve(
            self.credentials,
            agent_token=response.agent_token,
            token_issued_at=datetime.fromtimestamp(self._clock.time(), UTC),
            token_expires_at=expiry(response.token_expires_at_ms),
        )
        try:
            # A stop in the middle must not leave the new token in memory only.
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._store.save, self.credentials)
        except CredentialsError as error:
            self._log.error("the renewed token is only in memory: %s", error)
        else:
            self._log.info("the token was renewed")
