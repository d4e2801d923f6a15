"""Enrolment: a license goes to the hub, an identity comes back and is known here at once."""

from __future__ import annotations

import hashlib
import logging

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import (
    HubError,
    PermanentHubError,
    RequestRefusedError,
)
from ahcollector.hub.base import EnrollHub
from ahcollector.metrics import INGEST_ENROLL, Metrics, NullMetrics
from ahcollector.registry.directory import NOT_FOLLOWED, Directory
from ahcollector.registry.settings import agent_config
from ahwire import AgentRecord
from ahwire.agent_pb2 import EnrollRequest, EnrollResponse
from ahwire.hub import AgentState, EnrollGrant
from ahwire.status import Code

__all__ = ["EnrollProxy", "enroll_refusal"]

_log = logging.getLogger("ahcollector.enroll")

_BUSY_RETRY_SECONDS = 60.0
_UNAVAILABLE_RETRY_SECONDS = 30.0
_TOO_MANY = 429
_CONFLICT = 409
_UNPROCESSABLE = 422


def enroll_refusal(error: HubError) -> RequestRefusedError:
    """Return what an agent is answered when the hub refused its enrolment, or gave no answer."""
    if error.status == _TOO_MANY:
        return RequestRefusedError(
            Code.RATE_LIMITED,
            "the hub takes no more enrolments now",
            retry_after_seconds=_BUSY_RETRY_SECONDS,
        )
    if not isinstance(error, PermanentHubError):
        return unavailable("the hub cannot be asked now")
    if error.status == _CONFLICT:
        if error.code == Code.TOKEN_USED:
            return RequestRefusedError(Code.TOKEN_USED, "this license was used: get a new one")
        return RequestRefusedError(
            Code.ALREADY_ENROLLED, "this machine is enrolled: revoke its agent first"
        )
    if error.status == _UNPROCESSABLE:
        return RequestRefusedError(
            Code.BINDING_FAILED, "this license is bound to another machine: get one for this"
        )
    return RequestRefusedError(
        Code.LICENSE_INVALID, f"license refused: {error.code or error.status}; get a new one"
    )


def unavailable(message: str) -> RequestRefusedError:
    """Return the answer of a door that needs the hub and has not got it."""
    return RequestRefusedError(
        Code.UNAVAILABLE, message, retry_after_seconds=_UNAVAILABLE_RETRY_SECONDS
    )


class EnrollProxy:
    """Passes licenses on and takes identities in.

    A license is never stored and never logged; a token is answered once and never stored.

    Args:
        hub: Who exchanges licenses.
        directory: Takes the new identity.
        public_url: What the agent is told to send to; empty: where it enrolled.
        metrics: Counts results.
        clock: What fails for one fails for many, and is told once a minute.
    """

    def __init__(
        self,
        *,
        hub: EnrollHub,
        directory: Directory,
        public_url: str = "",
        metrics: Metrics | None = None,
        clock: AsyncClock | None = None,
    ) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._failing = Trouble(_log, "enrolment failed at the hub", "the hub enrols agents again")
        self._keeping = Trouble(
            _log,
            "new agent could not be kept, it will be looked up",
            "new agents are kept again",
        )
        self._hub = hub
        self._directory = directory
        self._public_url = public_url
        self._metrics = metrics if metrics is not None else NullMetrics()

    async def enroll(
        self, request: EnrollRequest, *, client_ip: str, request_id: str
    ) -> EnrollResponse:
        """Enrol one agent.

        Raises:
            RequestRefusedError: The answer to the agent.
        """
        if not request.license:
            raise self._refused(RequestRefusedError(Code.LICENSE_INVALID, "there is no license"))
        try:
            grant = await self._hub.enroll(request, client_ip=client_ip, request_id=request_id)
        except HubError as error:
            self._failing.goes_on(
                self._clock.monotonic(), {"request_id": request_id, "error": str(error)}
            )
            raise self._refused(enroll_refusal(error)) from error
        self._failing.is_over()
        if hashlib.sha256(grant.agent_token.encode()).hexdigest() != grant.token_hash:
            _log.error(
                "hub granted a token that is not the one it hashed",
                extra={"request_id": request_id, "agent_id": grant.agent_id},
            )
            raise self._refused(unavailable("the hub's answer is incomplete"))
        await self._take(grant, request_id)
        self._metrics.inc(INGEST_ENROLL, result="ok")
        expires_ms = 0 if grant.expires_at is None else round(grant.expires_at.timestamp() * 1000)
        return EnrollResponse(
            agent_id=grant.agent_id,
            company_id=grant.company_id,
            server_id=grant.server_id,
            agent_token=grant.agent_token,
            collector_url=self._public_url,
            config=agent_config(grant.config),
            token_expires_at_ms=expires_ms,
        )

    async def _take(self, grant: EnrollGrant, request_id: str) -> None:
        record = AgentRecord(
            agent_id=grant.agent_id,
            company_id=grant.company_id,
            server_id=grant.server_id,
            state=AgentState.ACTIVE,
            token_hash=grant.token_hash,
            expires_at=grant.expires_at,
            version=grant.version,
        )
        try:
            put = await self._directory.put(record)
        except NOT_FOLLOWED as error:
            # The token must reach its agent now or never; the hub tells us of it when it is used.
            self._keeping.goes_on(
                self._clock.monotonic(),
                {"request_id": request_id, "agent_id": grant.agent_id, "error": str(error)},
            )
            return
        self._keeping.is_over()
        if not put.applied:
            # Of a revoked agent the hub owes a higher version or another id; 0 revives nobody.
            _log.error(
                "hub enrolled an agent under a version that does not count any more",
                extra={
                    "request_id": request_id,
                    "agent_id": grant.agent_id,
                    "version": grant.version,
                    "known_version": put.after.newest_version,
                },
            )
        else:
            _log.info(
                "agent enrolled",
                extra={
                    "request_id": request_id,
                    "agent_id": grant.agent_id,
                    "company_id": grant.company_id,
                },
            )

    def _refused(self, refusal: RequestRefusedError) -> RequestRefusedError:
        self._metrics.inc(INGEST_ENROLL, result=refusal.code)
        return refusal
