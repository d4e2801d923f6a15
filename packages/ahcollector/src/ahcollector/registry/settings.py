"""What the hub says of each company, remembered so that no answer to an agent waits for it."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

import anyio
import attrs

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import HubError, RegistryError
from ahcollector.hub.base import SettingsHub
from ahcollector.presence.base import WatchRule
from ahcollector.registry._flight import SingleFlight
from ahwire.agent_pb2 import AgentConfig
from ahwire.hub import AgentSettings, CompanySettings, GroupDownSettings

__all__ = [
    "CompanyConfig",
    "CompanyDefaults",
    "CompanySettingsCache",
    "CompanySettingsStore",
    "KeptSettings",
    "agent_config",
]

_log = logging.getLogger("ahcollector.registry")

_DOWN_MIN_SECONDS_MAX: Final = 31 * 86_400.0


@attrs.frozen(kw_only=True)
class CompanyDefaults:
    """What the configuration sets for one company, where its hub says nothing.

    Attributes:
        interval_seconds: How often an agent sends that names no interval; None: as all companies.
        down_min_seconds: No agent is down after less silence; None: as all companies.
        group_down: When its agents are a group; None: as all companies.
    """

    interval_seconds: float | None = None
    down_min_seconds: float | None = None
    group_down: GroupDownSettings | None = None


_DEFAULTS: Final = CompanyDefaults()
_NOTHING: Final[Mapping[str, CompanyDefaults]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class CompanyConfig:
    """What a company's agents are told, and how they are watched.

    Attributes:
        settings: As the hub gave them; None while it has not.
        config: The same for agents, with its etag inside. Not to be changed.
        etag: Hash of the config without it.
        watch: What gives the deadlines of its agents: the hub's word, else what is configured for
            the company. Not firm while the hub was not heard.
        group_down: When its agents are a group, by the same order; None: nobody says.
    """

    settings: CompanySettings | None
    config: AgentConfig
    etag: str
    watch: WatchRule = attrs.field(factory=lambda: WatchRule(is_firm=False))
    group_down: GroupDownSettings | None = None


def agent_config(agent: AgentSettings) -> AgentConfig:
    """Return the message for agents; its etag is a hash of everything else in it."""
    return agent.to_proto(hashlib.sha256(agent.to_json()).hexdigest()[:16])


def _company_config(
    settings: CompanySettings | None, defaults: CompanyDefaults, *, is_firm: bool
) -> CompanyConfig:
    agent = settings.agent if settings is not None else AgentSettings()
    config = agent_config(agent)
    group_down = None if settings is None else settings.group_down
    return CompanyConfig(
        settings=settings,
        config=config,
        etag=config.etag,
        watch=WatchRule(
            interval_seconds=_first(agent.interval_seconds, defaults.interval_seconds),
            down_min_seconds=_down_min(settings, defaults),
            is_firm=is_firm,
        ),
        group_down=defaults.group_down if group_down is None else group_down,
    )


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else float(one)


def _down_min(settings: CompanySettings | None, defaults: CompanyDefaults) -> float | None:
    told = None if settings is None else settings.down_min_seconds
    # The contract has no bound on it, and no deadline is to lie beyond every clock.
    return defaults.down_min_seconds if told is None else min(told, _DOWN_MIN_SECONDS_MAX)


@attrs.frozen(kw_only=True)
class KeptSettings:
    """The hub's word of a company, as it outlives a process.

    Attributes:
        settings: What the hub said.
        etag: The hub's etag of it; None when it gave none.
    """

    settings: CompanySettings
    etag: str | None


class CompanySettingsStore(Protocol):
    """Keeps the hub's last word of each company for other processes, and for the next start.

    Both methods may raise `RegistryError`, and both may be repeated.
    """

    async def load(self, company_id: str) -> KeptSettings | None:
        """Return what was kept last; None when there is nothing, or nothing readable."""
        ...

    async def save(self, company_id: str, kept: KeptSettings) -> None:
        """Keep what the hub said last, in the place of what was kept before."""
        ...


@attrs.frozen(kw_only=True)
class _Known:
    company: CompanyConfig
    hub_etag: str | None = None
    read_at: float = float("-inf")
    saved_at: float | None = None


class CompanySettingsCache:
    """Settings of the companies whose agents are heard here.

    `current` answers at once with what is known, or with the default; `run` reads what is missing
    and what is old. When the hub is down the last word stays; with a store, also the last word that
    another process had, or that was there before a restart.

    Args:
        hub: Asked; None: everybody has the default.
        clock: Time.
        refresh_seconds: How old an answer may become.
        companies_max: How many companies are remembered; the ones asked for least lately go.
        wait_seconds: How long `get` waits for the first answer.
        store: Where the last word outlives this process; None: nowhere.
        configured: What is set for single companies where the hub says nothing.
        save_again_seconds: A word that stays the same is kept again so often, because a store may
            drop what nobody keeps any more.
    """

    def __init__(
        self,
        *,
        hub: SettingsHub | None,
        clock: AsyncClock,
        refresh_seconds: float = 60.0,
        companies_max: int = 10_000,
        wait_seconds: float = 2.0,
        store: CompanySettingsStore | None = None,
        configured: Mapping[str, CompanyDefaults] = _NOTHING,
        save_again_seconds: float = 86_400.0,
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._companies_max = companies_max
        self._wait_seconds = wait_seconds
        self._store = store
        self._save_again_seconds = save_again_seconds
        self._trouble = Trouble(
            _log, "company settings cannot be shared", "company settings are shared again"
        )
        self._reading = Trouble(
            _log,
            "company settings could not be read, the last ones stay",
            "company settings are read again",
        )
        self._configured = configured
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._flights: SingleFlight[str, None] = SingleFlight()

    def current(self, company_id: str) -> CompanyConfig:
        """Return what is known now, without waiting."""
        known = self._known.get(company_id)
        if known is None:
            known = self._remember(company_id, _Known(company=self._config(company_id, None)))
        else:
            self._known.move_to_end(company_id)
        return known.company

    def _config(self, company_id: str, settings: CompanySettings | None) -> CompanyConfig:
        defaults = self._configured.get(company_id, _DEFAULTS)
        # Where there is no hub nobody else has a word.
        return _company_config(
            settings, defaults, is_firm=settings is not None or self._hub is None
        )

    def watch_rule(self, company_id: str) -> WatchRule:
        """Return what gives the deadlines of a company's agents, without waiting."""
        return self.current(company_id).watch

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
        if known.company.settings is None and self._store is not None:
            known = await self._recall(self._store, company_id, known)
        now = self._clock.monotonic()
        try:
            reply = await self._hub.settings(company_id, etag=known.hub_etag)
        except HubError as error:
            # Asked again after the usual time; the last word holds until then.
            self._remember(company_id, attrs.evolve(known, read_at=now))
            self._reading.goes_on(now, {"company_id": company_id, "error": str(error)})
            return
        self._reading.is_over()
        is_new = reply.settings is not None and reply.settings != known.company.settings
        company = known.company
        if reply.settings is not None:
            company = self._config(company_id, reply.settings)
        known = attrs.evolve(known, company=company, hub_etag=reply.etag, read_at=now)
        self._remember(company_id, known)
        if self._store is not None and (is_new or self._is_to_be_saved(known, now)):
            await self._save(self._store, company_id, known, now)

    def _is_to_be_saved(self, known: _Known, now: float) -> bool:
        return known.saved_at is None or now - known.saved_at >= self._save_again_seconds

    async def _recall(self, store: CompanySettingsStore, company_id: str, known: _Known) -> _Known:
        """Remember what the store has, so that it holds while the hub is waited for."""
        try:
            kept = await store.load(company_id)
        except RegistryError as error:
            self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
            return known
        if kept is None:
            return known
        known = attrs.evolve(
            known, company=self._config(company_id, kept.settings), hub_etag=kept.etag
        )
        self._remember(company_id, known)
        return known

    async def _save(
        self, store: CompanySettingsStore, company_id: str, known: _Known, now: float
    ) -> None:
        if known.company.settings is None:
            return
        try:
            await store.save(
                company_id, KeptSettings(settings=known.company.settings, etag=known.hub_etag)
            )
        except RegistryError as error:
            self._trouble.goes_on(now, {"error": str(error)})
        else:
            self._trouble.is_over()
            self._remember(company_id, attrs.evolve(known, saved_at=now))

    def _remember(self, company_id: str, known: _Known) -> _Known:
        self._known[company_id] = known
        self._known.move_to_end(company_id)
        if len(self._known) > self._companies_max:
            self._known.popitem(last=False)
        return known
