"""A new token for an agent that shows its old one."""

from __future__ import annotations

import hashlib
import logging

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.enroll.proxy import unavailable
from ahcollector.errors import (
    HubError,
    PermanentHubError,
    RequestRefusedError,
)
from ahcollector.hub.base import RenewalHub
from ahcollector.presence.base import AgentRef
from ahcollector.registry.directory import NOT_FOLLOWED, Directory
from ahwire import AgentRecord
from ahwire.agent_pb2 import RenewResponse
from ahwire.hub import AgentState
from ahwire.status import Code

__all__ = ["Renewal"]

_log = logging.getLogger("ahcollector.enroll")

_TOO_MANY = 429
_UNKNOWN = frozenset({404, 410})


class Renewal:
    """Gets new tokens from the hub; the token that was shown stays good for the hub's overlap.

    The shown token, be it the newest or the one before, becomes the previous one: whoever lost the
    answer of a renewal can renew again with what it has, as often as it must. The token that got
    lost is forgotten.

    Args:
        hub: Who makes tokens.
        directory: Takes the new state of the agent.
        clock: What fails for one fails for many, and is told once a minute.
    """

    def __init__(
        self, *, hub: RenewalHub, directory: Directory, clock: AsyncClock | None = None
    ) -> None:
        self._hub = hub
        self._directory = directory
        self._clock = clock if clock is not None else SystemClock()
        self._failing = Trouble(_log, "renewal failed at the hub", "the hub renews tokens again")
        self._keeping = Trouble(
            _log,
            "renewed token could not be kept, it will be looked up",
            "renewed tokens are kept again",
        )

    async def renew(self, agent: AgentRef, *, shown_hash: str, request_id: str) -> RenewResponse:
        """Renew the token of an agent whose token (by hash) was found valid.

        Raises:
            RequestRefusedError: The answer to the agent; its old token stays as it is.
        """
        try:
            grant = await self._hub.renew(agent.agent_id, request_id=request_id)
        except HubError as error:
            self._failing.goes_on(
                self._clock.monotonic(),
                {"request_id": request_id, "agent_id": agent.agent_id, "error": str(error)},
            )
            raise _refusal(error) from error
        self._failing.is_over()
        if hashlib.sha256(grant.agent_token.encode()).hexdigest() != grant.token_hash:
            raise unavailable("the hub's answer is incomplete")
        record = AgentRecord(
            agent_id=agent.agent_id,
            company_id=agent.company_id,
            server_id=agent.server_id,
            state=AgentState.ACTIVE,
            token_hash=grant.token_hash,
            expires_at=grant.expires_at,
            prev_token_hash=shown_hash,
            prev_token_expires_at=grant.prev_token_expires_at,
            version=grant.version,
        )
        try:
            put = await self._directory.put(record, renewal=True)
        except NOT_FOLLOWED as error:
            # As with an enrolment: the token is told now or never.
            self._keeping.goes_on(
                self._clock.monotonic(),
                {"request_id": request_id, "agent_id": agent.agent_id, "error": str(error)},
            )
        else:
            self._keeping.is_over()
            if not put.applied:
                # Revoked, or renewed again, while the hub was asked; its next request will tell.
                _log.warning(
                    "renewed token is older than what is known, it will be looked up",
                    extra={"request_id": request_id, "agent_id": agent.agent_id},
                )
        return RenewResponse(
            agent_token=grant.agent_token,
            previous_valid_until_ms=round(grant.prev_token_expires_at.timestamp() * 1000),
            token_expires_at_ms=(
                0 if grant.expires_at is None else round(grant.expires_at.timestamp() * 1000)
            ),
        )


def _refusal(error: HubError) -> RequestRefusedError:
    if error.status == _TOO_MANY:
        return RequestRefusedError(
            Code.RATE_LIMITED, "the hub makes no more tokens now", retry_after_seconds=60.0
        )
    if isinstance(error, PermanentHubError) and error.status in _UNKNOWN:
        return RequestRefusedError(Code.NOT_FOUND, "the hub does not know this agent any more")
    return unavailable("the hub cannot renew tokens now")
