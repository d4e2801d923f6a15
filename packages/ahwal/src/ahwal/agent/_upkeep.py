"""What an agent asks for beside the sending: configuration, a new token, and its inventory.

Law of this file: none of the three ever delays a batch, and none counts as a failed delivery. Each
is looked at after each step of delivery, and tried again no sooner than `EVERY_SECONDS` and a
backoff of its own after its last try. A token that has expired or was revoked is not used for them.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol

import anyio
from attrs import evolve

from ahwal._threads import in_thread
from ahwal.agent._credentials import Credentials, CredentialStore
from ahwal.agent._enrol import expiry
from ahwal.agent._inventory import InventoryReport
from ahwal.clock import AsyncClock
from ahwal.errors import CredentialsError, TokenError, TransportError
from ahwal.sender import DeliveryState
from ahwal.transport import ConfigReply
from ahwal.transport._answer import Answer
from ahwire import Backoff, Rng, agent_pb2

EVERY_SECONDS = 30.0
SAVE_EVERY_SECONDS = 60.0


class AgentTransport(Protocol):
    """What the agent asks of its client beside the sending of metrics; see `ahwal.Client`."""

    async def get_config(self, etag: str = "") -> ConfigReply:
        """Ask for the configuration."""
        ...

    async def renew(self) -> tuple[Answer, agent_pb2.RenewResponse | None]:
        """Ask for a new token."""
        ...

    async def post_inventory(self, inventory: agent_pb2.Inventory) -> Answer:
        """Post what kind of machine this is."""
        ...

    def set_token(self, token: str) -> None:
        """Use another token."""
        ...


class Tries:
    """When something may be tried again, in monotonic seconds."""

    def __init__(self, *, rng: Rng) -> None:
        self._backoff = Backoff(rng=rng)
        self._due = -math.inf
        self.failing = False

    def due(self, now: float) -> bool:
        """Whether it may be tried at `now`."""
        return now >= self._due

    def succeeded(self, now: float, *, again_in_seconds: float = EVERY_SECONDS) -> None:
        """Forget earlier failures."""
        self._backoff.reset()
        self.failing = False
        self._due = now + again_in_seconds

    def failed(self, now: float, retry_after_seconds: float | None = None) -> None:
        """Wait for a while, and longer each time."""
        self.failing = True
        self._due = now + max(EVERY_SECONDS, self._backoff.next(retry_after_seconds))


class UpkeepLoop:
    """Fetches configuration, renews the token and reports the inventory, each when it is due.

    Args:
        client: Carries the requests.
        clock: Wall and monotonic clock.
        rng: Jitter of the retries.
        credentials: The identity, with the token's life.
        store: Where a renewed token goes.
        inventory: What is reported.
        delivery_state: Says whether the token is of any use now.
        on_config: Given each new remote configuration; None when none is wanted.
        logger: The agent's logger.

    Attributes:
        credentials: The identity with the newest token.
    """

    def __init__(
        self,
        *,
        client: AgentTransport,
        clock: AsyncClock,
        rng: Rng,
        credentials: Credentials,
        store: CredentialStore,
        inventory: InventoryReport,
        delivery_state: Callable[[], DeliveryState],
        on_config: Callable[[agent_pb2.AgentConfig], None] | None,
        logger: logging.Logger,
    ) -> None:
        self._client = client
        self._clock = clock
        self.credentials = credentials
        self._store = store
        self._inventory = inventory
        self._delivery_state = delivery_state
        self._on_config = on_config
        self._log = logger
        self._wake = anyio.Event()
        self._etag_wanted = ""
        # The etag of the configuration in force, and the one that was last asked about.
        self._etag_held = self._etag_asked = ""
        self._renew_wanted = False
        self._config_tries = Tries(rng=rng)
        self._renew_tries = Tries(rng=rng)
        self._inventory_tries = Tries(rng=rng)
        # When a renewed token is to be stored that the disk refused; None when all are stored.
        self._save_at: float | None = None

    def use_client(self, client: AgentTransport) -> None:
        """Use another client from the next request on."""
        self._client = client

    def wake(self) -> None:
        """Look soon at what is due: a step of delivery has ended."""
        self._wake.set()

    def config_changed(self, etag: str) -> None:
        """Fetch the configuration soon."""
        self._etag_wanted = etag

    def renewal_wanted(self) -> None:
        """Renew the token soon."""
        self._renew_wanted = True

    async def run(self) -> None:
        """Do what is due after each `wake`, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            state = self._delivery_state()
            # A collector that cannot take metrics for a day may still renew; without it the token
            # would expire meanwhile.
            if state in (DeliveryState.OK, DeliveryState.BACKOFF):
                await self._supervised(self._renew)
            if state is DeliveryState.OK:
                await self._supervised(self._fetch_config)
                await self._supervised(self._report_inventory)
            await self._supervised(self._save_again)

    async def _supervised(self, duty: Callable[[], Awaitable[None]]) -> None:
        try:
            await duty()
        except Exception:  # noqa: BLE001 - see below
            # The one supervisor of this loop: a mistake of ours in one duty must not end the
            # others for the life of the host program.
            self._log.exception("upkeep failed")

    async def _fetch_config(self) -> None:
        now = self._clock.monotonic()
        etag = self._etag_wanted
        if self._on_config is None or etag in (self._etag_held, self._etag_asked):
            return
        if not self._config_tries.due(now):
            return
        try:
            reply = await self._client.get_config(self._etag_held)
        except TransportError as error:
            self._failed(
                self._config_tries,
                "the configuration could not be fetched",
                error,
                request_id=error.request_id,
            )
            return
        if reply.status == 200 and reply.config is not None:
            # The newest wins, even if it is no longer the one that the acknowledgement named.
            self._etag_held = reply.config.etag or etag
            self._on_config(reply.config)
        elif reply.status != 304:
            self._failed(
                self._config_tries,
                "the configuration could not be fetched",
                f"status {reply.status} {reply.code or ''}".rstrip(),
                request_id=reply.request_id,
                retry_after_seconds=reply.retry_after_seconds,
            )
            return
        self._etag_asked = etag
        self._config_tries.succeeded(self._clock.monotonic())

    async def _renew(self) -> None:
        half_life = self.credentials.renew_at()
        wanted = self._renew_wanted or (half_life is not None and self._clock.time() >= half_life)
        if not wanted or not self._renew_tries.due(self._clock.monotonic()):
            return
        try:
            answer, response = await self._client.renew()
            if response is None or not response.agent_token:
                self._refused(self._renew_tries, "the token could not be renewed", answer)
                return
            self._client.set_token(response.agent_token)
        except (TransportError, TokenError) as error:
            # The answer may be lost after the collector gave a new token: ours still is valid as
            # the previous one, and asks again.
            self._failed(
                self._renew_tries,
                "the token could not be renewed",
                error,
                request_id=getattr(error, "request_id", ""),
            )
            return
        self._renew_wanted = False
        self._renew_tries.succeeded(self._clock.monotonic())
        self.credentials = evolve(
            self.credentials,
            agent_token=response.agent_token,
            token_issued_at=datetime.fromtimestamp(self._clock.time(), UTC),
            token_expires_at=expiry(response.token_expires_at_ms),
        )
        await self._save()

    async def _save(self) -> None:
        try:
            # A stop in the middle must not leave the new token in memory only.
            with anyio.CancelScope(shield=True):
                await in_thread(self._store.save, self.credentials)
        except CredentialsError as error:
            # It is used from memory all the same: the old one, which the file still holds whole,
            # is valid for a while only.
            self._log.error("the renewed token is only in memory until it can be stored: %s", error)
            self._save_at = self._clock.monotonic() + SAVE_EVERY_SECONDS
        else:
            self._save_at = None
            self._log.info("the token was renewed")

    async def _save_again(self) -> None:
        if self._save_at is not None and self._clock.monotonic() >= self._save_at:
            await self._save()

    async def _report_inventory(self) -> None:
        now = self._clock.monotonic()
        if not self._inventory_tries.due(now):
            return
        report = await self._inventory.next(now)
        if report is not None:
            try:
                answer = await self._client.post_inventory(report)
            except TransportError as error:
                self._failed(
                    self._inventory_tries,
                    "the inventory could not be sent",
                    error,
                    request_id=error.request_id,
                )
                return
            if answer.status not in (200, 202):
                self._refused(self._inventory_tries, "the inventory could not be sent", answer)
                return
            self._inventory.sent(report, self._clock.monotonic())
        self._inventory_tries.succeeded(
            self._clock.monotonic(), again_in_seconds=self._inventory.check_every_seconds
        )

    def _refused(self, tries: Tries, what: str, answer: Answer) -> None:
        code, message = answer.error
        self._failed(
            tries,
            what,
            f"status {answer.status} {code or ''} {message}".rstrip(),
            request_id=answer.request_id,
            retry_after_seconds=answer.retry_after_seconds,
        )

    def _failed(
        self,
        tries: Tries,
        what: str,
        why: object,
        *,
        request_id: str,
        retry_after_seconds: float | None = None,
    ) -> None:
        self._log.log(
            logging.DEBUG if tries.failing else logging.WARNING,
            "%s: %s",
            what,
            why,
            extra={"request_id": request_id},
        )
        tries.failed(self._clock.monotonic(), retry_after_seconds)
