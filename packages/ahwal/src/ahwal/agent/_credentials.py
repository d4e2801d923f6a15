"""The agent's identity and token: `<state_dir>/credentials.json`.

The file is one JSON object in UTF-8: `agent_id`, `company_id`, `server_id`, `agent_token`,
`token_issued_at`, `token_expires_at` (null: never), `machine_id`, `collector_url`, `enrolled_at`.
Times are RFC 3339 in UTC. Unknown fields are ignored. It has mode 0600 and is only ever replaced
whole: a temporary file is written, synced and renamed, and the directory is synced.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from attrs import field, frozen

from ahwal.agent._files import fixed_path, read_small
from ahwal.errors import CredentialsError, NotEnrolledError

FILE_NAME = "credentials.json"
FILE_BYTES_MAX = 64 << 10


@frozen(kw_only=True)
class Credentials:
    """Who the agent is. The token is not in the repr.

    Attributes:
        agent_id: Given at enrolment, as the next two.
        company_id: Whose agent it is.
        server_id: The server that it watches.
        agent_token: Secret.
        token_issued_at: When this token was given.
        token_expires_at: None when it does not expire.
        machine_id: Of the machine that was enrolled; empty when it could not be read.
        collector_url: Where enrolment said to send to.
        enrolled_at: When that was.
    """

    agent_id: str
    company_id: str
    server_id: str
    agent_token: str = field(repr=False)
    token_issued_at: datetime
    token_expires_at: datetime | None = None
    machine_id: str = ""
    collector_url: str = ""
    enrolled_at: datetime

    def renew_at(self) -> float | None:
        """Return when half of the token's life is over, Unix seconds; None when it never ends."""
        if self.token_expires_at is None:
            return None
        issued = self.token_issued_at.timestamp()
        return issued + (self.token_expires_at.timestamp() - issued) / 2


class CredentialStore:
    """Reads and replaces the file.

    Args:
        state_dir: The directory that holds it; made with mode 0700 when it is missing.
    """

    def __init__(self, *, state_dir: str) -> None:
        self._directory = Path(fixed_path(state_dir))
        self.path = self._directory / FILE_NAME

    def load(self) -> Credentials:
        """Return what was stored.

        Raises:
            NotEnrolledError: There is no file.
            CredentialsError: It cannot be read, or is not what it should be.
        """
        try:
            data = read_small(self.path, FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            raise NotEnrolledError(
                f"{self.path} does not exist: this agent is not enrolled; "
                "run `ahagent enroll`, or call ahwal.enroll(config, license)"
            ) from None
        except OSError as error:
            raise CredentialsError(
                f"{self.path} cannot be read ({error.strerror}); check its owner and rights"
            ) from error
        try:
            return _from_json(json.loads(data[: FILE_BYTES_MAX + 1]))
        except (
            ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError
        ) as error:  # fmt: skip
            damage = type(error).__name__
        # Neither the error's own text nor a variable of this frame is to quote the token.
        del data
        raise CredentialsError(
            f"{self.path} is damaged ({damage}); enrol again with `ahagent enroll --force`"
        )

    def save(self, credentials: Credentials) -> None:
        """Replace the file; when this returns, the new one survives a power cut.

        Raises:
            CredentialsError: It cannot be written; the old file is as it was.
        """
        temporary = self.path.with_name(f"{FILE_NAME}.tmp")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_to_json(credentials))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self.path)
            _sync_directory(self._directory)
        except OSError as error:
            raise CredentialsError(
                f"{self.path} cannot be written ({error.strerror}); check rights and free space"
            ) from error


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open a directory to sync it.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_json(credentials: Credentials) -> bytes:
    expires = credentials.token_expires_at
    document = {
        "agent_id": credentials.agent_id,
        "company_id": credentials.company_id,
        "server_id": credentials.server_id,
        "agent_token": credentials.agent_token,
        "token_issued_at": _time_text(credentials.token_issued_at),
        "token_expires_at": None if expires is None else _time_text(expires),
        "machine_id": credentials.machine_id,
        "collector_url": credentials.collector_url,
        "enrolled_at": _time_text(credentials.enrolled_at),
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def _from_json(document: dict[str, object]) -> Credentials:
    def text(name: str, default: str | None = None) -> str:
        value = document[name] if default is None else document.get(name, default)
        if not isinstance(value, str) or (default is None and not value):
            raise TypeError(name)
        return value

    expires = document.get("token_expires_at")
    return Credentials(
        agent_id=text("agent_id"),
        company_id=text("company_id"),
        server_id=text("server_id"),
        agent_token=text("agent_token"),
        token_issued_at=_time(text("token_issued_at")),
        token_expires_at=None if expires is None else _time(str(expires)),
        machine_id=text("machine_id", ""),
        collector_url=text("collector_url", ""),
        enrolled_at=_time(text("enrolled_at")),
    )


def _time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without zone")
    return moment.astimezone(UTC)
