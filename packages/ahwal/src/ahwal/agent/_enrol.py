"""Enrolment: a one-time license becomes an identity and a token."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ahwal import transport
from ahwal._threads import in_thread
from ahwal.agent._config import AgentConfig
from ahwal.agent._credentials import Credentials, CredentialStore
from ahwal.agent._machine import enroll_request, make_machine_id
from ahwal.errors import (
    AlreadyEnrolledError,
    ConfigError,
    EnrolError,
    EnrolRefusedError,
    EnrolTemporaryError,
    NotEnrolledError,
    TokenError,
    TransportError,
)
from ahwal.transport._answer import Answer
from ahwal.transport._token import Secret, check_token
from ahwal.transport._url import without_credentials
from ahwire.agent_pb2 import EnrollResponse
from ahwire.names import is_id
from ahwire.status import Code

LICENSE_CHARS_MAX = 64 << 10
# 9999-12-31, the last day that a datetime can hold.
_LAST_MS = 253_402_214_400_000
# Only an answer with one of these codes is a decision about the license; a proxy has none.
_WAYS_OUT: Mapping[str, str] = {
    Code.LICENSE_INVALID: "check that the license is whole and of this collector, or get a new one",
    Code.ALREADY_ENROLLED: "free the machine at the collector's side, or use a license for it",
    Code.TOKEN_USED: "each license works once: get a new one",
    Code.BINDING_FAILED: "it was made for another machine: get one for this machine",
    Code.BAD_REQUEST: "the two do not understand each other: compare their versions",
    Code.UPGRADE_REQUIRED: "install a newer version of ahwal",
}


async def enroll(
    config: AgentConfig,
    license_text: str,
    *,
    force: bool = False,
    wall_clock: Callable[[], float] = time.time,
) -> Credentials:
    """Exchange a license for an identity, and store it in the state directory.

    Args:
        config: Needs `collector_url`.
        license_text: The license; never logged and never in an error's text.
        force: Enrol although there is an identity, which is replaced when the new one was given.
        wall_clock: Unix seconds.

    Returns:
        What was stored.

    Raises:
        ConfigError: No collector address, or the license is empty.
        AlreadyEnrolledError: There is an identity and `force` was not asked for.
        CredentialsError: The identity cannot be read or stored.
        EnrolRefusedError: The collector refused; another license is needed.
        EnrolTemporaryError: Nobody decided; the same license can be tried again.
    """
    if config.collector_url is None:
        raise ConfigError("collector_url is not set; enrolment needs the collector's address")
    # From here on no variable shows it, in case a traceback shows variables.
    secret = Secret(license_text.strip())
    del license_text
    if not 0 < len(secret.reveal()) <= LICENSE_CHARS_MAX:
        raise ConfigError(f"the license is empty or over {LICENSE_CHARS_MAX} characters")
    store = CredentialStore(state_dir=config.state_dir)
    if not force and await in_thread(_is_enrolled, store):
        raise AlreadyEnrolledError(
            f"{store.path} exists: this agent is enrolled and can run; to replace its identity use "
            "`ahagent enroll --force`, in Python enroll(..., force=True)"
        )
    address = without_credentials(config.collector_url)
    machine = await in_thread(make_machine_id, config.state_dir)
    labels = dict(config.labels)
    async with make_client(config, config.collector_url, None) as client:
        try:
            answer, response = await client.enroll(
                enroll_request(secret.reveal(), machine=machine, labels=labels)
            )
        except TransportError as error:
            raise EnrolTemporaryError(
                f"the collector did not answer: {error}; "
                f"is {address} the address of the ingest door?"
            ) from error
    now = datetime.fromtimestamp(wall_clock(), UTC)
    refusal = _refusal(answer, response, address)
    if response is None or refusal is not None:
        del response  # It may hold a token all the same.
        raise refusal or EnrolTemporaryError("the collector's answer was empty")
    credentials = _credentials(response, machine, config.collector_url, now)
    del response
    await in_thread(store.save, credentials)
    return credentials


def make_client(
    config: AgentConfig, collector_url: str, credentials: Credentials | None
) -> "transport.Client":
    """Build the client that the configuration describes; without credentials, one without a token.

    Raises:
        ConfigError: An address or a file in it is wrong.
        TokenError: The token cannot be sent.
    """
    return transport.Client(
        collector_url=collector_url,
        token=None if credentials is None else Secret(credentials.agent_token),
        send_timeout_seconds=config.send_timeout_seconds,
        ca_file=config.ca_file,
        proxy_url=config.proxy_url,
        insecure_skip_verify=config.insecure_skip_verify,
        client_cert=config.client_cert,
        client_key=config.client_key,
        allow_plain_http=config.allow_plain_http,
        http2=config.http2,
    )


def expiry(unix_ms: int) -> datetime | None:
    """Return when a token expires; None for 0, which means never."""
    return None if unix_ms <= 0 else datetime.fromtimestamp(min(unix_ms, _LAST_MS) / 1000, UTC)


def _is_enrolled(store: CredentialStore) -> bool:
    try:
        store.load()
    except NotEnrolledError:
        return False
    return True


def _refusal(answer: Answer, response: EnrollResponse | None, address: str) -> EnrolError | None:
    # Returned, not raised: this frame holds the answer with its token.
    if answer.status == 200:
        problem = "the answer was not the collector's; something is on the way"
        if response is not None:
            problem = _missing(response)
        return EnrolTemporaryError(problem) if problem else None
    code, message = answer.error
    text = (
        f"status {answer.status}"
        + (f" {code}" if code else "")
        + (f" ({message})" if message else "")
    )
    what_to_do = _WAYS_OUT.get(code or "")
    if what_to_do is not None:
        return EnrolRefusedError(
            f"the collector refused to enrol this machine: {text}; {what_to_do}", code=code
        )
    # What has no code of ours comes from another program, and `not_found` from another door.
    elsewhere = code in (None, Code.NOT_FOUND)
    way_out = f"is {address} the address of the ingest door?" if elsewhere else "try again later"
    return EnrolTemporaryError(
        f"the collector could not enrol this machine now: {text}; {way_out}",
        code=code,
        retry_after_seconds=answer.retry_after_seconds,
    )


def _missing(response: EnrollResponse) -> str:
    ids = ("agent_id", "company_id", "server_id")
    missing = [name for name in (*ids, "agent_token") if not getattr(response, name)]
    if missing:
        return f"the collector's answer lacks {', '.join(missing)}"
    for name in ids:
        if not is_id(getattr(response, name)):
            return f"the collector's answer has no valid {name}"
    try:
        check_token(Secret(response.agent_token))
    except TokenError as error:
        return f"the collector's answer is damaged: {error}"
    return ""


def _credentials(
    response: EnrollResponse, machine: str, collector_url: str, now: datetime
) -> Credentials:
    return Credentials(
        agent_id=response.agent_id,
        company_id=response.company_id,
        server_id=response.server_id,
        agent_token=response.agent_token,
        token_issued_at=now,
        token_expires_at=expiry(response.token_expires_at_ms),
        machine_id=machine,
        collector_url=response.collector_url or collector_url,
        enrolled_at=now,
    )
