"""What the hub says of each company, remembered so that no answer to an agent waits for it."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict

import anyio
import attrs

from ahcollector.clock import AsyncClock
from ahcollector.errors import HubError
from ahcollector.hub.base import Hub
from ahcollector.registry._flight import SingleFlight
from ahwire.agent_pb2 import AgentConfig
from ahwire.hub import AgentSettings, CompanySettings

__all__ = ["CompanyConfig", "CompanySettingsCache", "agent_config"]

_log = logging.getLogger("ahcollector.registry")


@attrs.frozen(kw_only=True)
class CompanyConfig:
    """What a company's agents are told.

    Attributes:
        settings: As the hub gave them; None while it has not.
        config: The same for agents, with its etag inside. Not to be changed.
        etag: Hash of the config without it.
    """

    settings: CompanySettings | None
    config: AgentConfig
    etag: str


def agent_config(agent: AgentSettings) -> AgentConfig:
    """Return the message for agents; its etag is a hash of everything else in it."""
    return agent.to_proto(hashlib.sha256(agent.to_json()).hexdigest()[:16])


def _company_config(settings: CompanySettings | None) -> CompanyConfig:
    config = agent_config(settings.agent if settings is not None else AgentSettings())
    return CompanyConfig(settings=settings, config=config, etag=config.etag)


@attrs.frozen(kw_only=True)
class _Known:
    company: CompanyConfig
    hub_etag: str | None
    read_at: float


class CompanySettingsCache:
    """Settings of the companies whose agents are heard here.

    `current` answers at once with what is known, or with the default; `run` reads what is missing
    and what is old. When the hub is down the last word stays.

    Args:
        hub: Asked; None: everybody has the default.
        clock: Time.
        refresh_seconds: How old an answer may become.
        companies_max: How many companies are remembered; the ones asked for least lately go.
        wait_seconds: How long `get` waits for the first answer.
    """

    def __init__(
        self,
        *,
        hub: Hub | None,
        clock: AsyncClock,
        refresh_seconds: float = 60.0,
        companies_max: int = 10_000,
        wait_seconds: float = 2.0,
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._companies_max = companies_max
        self._wait_seconds = wait_seconds
        self._default = _company_config(None)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._flights: SingleFlight[str, None] = SingleFlight()

    def current(self, company_id: str) -> CompanyConfig:
        """Return what is known now, without waiting."""
        known = self._known.get(company_id)
        if known is None:
            known = self._remember(
                company_id, _Known(company=self._default, hub_etag=None, read_at=float("-inf"))
            )
        else:
            self._known.move_to_end(company_id)
        return known.company

    async def get(self, company_id: str) -> CompanyConfig:
        """Return what is known, after waiting a moment for the first answer of the hub."""
        self.current(company_id)
        if self._due(company_id, self._clock.monotonic()) and not self._answered(company_id):
            with anyio.move_on_after(self._wait_seconds):
                await self._refresh(company_id)
        return self.current(company_id)

    async def run(self, *, tick_seconds: float = 1.0) -> None:
        """Read what is missing or old, until cancelled."""
        while True:
            now = self._clock.monotonic()
            for company_id in [co for co in self._known if self._due(co, now)]:
                await self._refresh(company_id)
            await self._clock.sleep(tick_seconds)

    def _due(self, company_id: str, now: float) -> bool:
        known = self._known.get(company_id)
        return (
            self._hub is not None
            and known is not None
            and now - known.read_at >= self._refresh_seconds
        )

    def _answered(self, company_id: str) -> bool:
        known = self._known.get(company_id)
        return known is not None and known.company.settings is not None

    async def _refresh(self, company_id: str) -> None:
        await self._flights.do(company_id, lambda: self._ask(company_id))

    async def _ask(self, company_id: str) -> None:
        assert self._hub is not None
        known = self._known.get(company_id)
        if known is None:
            return
        now = self._clock.monotonic()
        try:
            reply = await self._hub.settings(company_id, etag=known.hub_etag)
        except HubError as error:
            # Asked again after the usual time; the last word holds until then.
            self._remember(company_id, attrs.evolve(known, read_at=now))
            _log.warning(
                "company settings could not be read, the last ones stay",
                extra={"company_id": company_id, "error": str(error)},
            )
            return
        company = known.company if reply.settings is None else _company_config(reply.settings)
        self._remember(company_id, _Known(company=company, hub_etag=reply.etag, read_at=now))

    def _remember(self, company_id: str, known: _Known) -> _Known:
        self._known[company_id] = known
        self._known.move_to_end(company_id)
        if len(self._known) > self._companies_max:
            self._known.popitem(last=False)
        return known
