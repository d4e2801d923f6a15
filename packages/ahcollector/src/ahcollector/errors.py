"""Every error this package raises on purpose, in one tree.

::

    CollectorError
    ├── BusError
    │   ├── BusFull              no room now; the caller answers 503 and the agent keeps its batch
    │   └── BusClosed            the bus is shut; the process is stopping
    ├── StoreError
    │   ├── TemporaryStoreError  a retry can help: network, 3xx, 401, 403, 404, 408, 429, 5xx
    │   └── PermanentStoreError  a retry cannot help: the store refuses these samples, or this query
    ├── RegistryError            a registry could not be read or written
    ├── PresenceError            the presence store gave no answer: the detector counts as blind
    │   └── PresenceDamagedError it answers, and has what presence never wrote; the text says where
    ├── BudgetStoreError         the store of known series gave no answer: nothing is refused for it
    ├── DeadBatchesError         batches the store refused cannot be kept, or read
    ├── DeparturesError          it cannot be told, or kept, who was deleted; a retry can help
    ├── AlertStateError          what keeps the states of alerts gave no answer; nothing was lost
    │   └── FencedAlertStateError the states were taken over by another process: read them anew
    ├── OutboxError              the outbox could not make an event durable, or could not be read
    │   └── FencedOutboxError    the caller's fence is older than the newest: its lease is lost
    ├── RedisError               Redis gave no answer, or an error; each part turns it into its own
    │   └── RedisRefusedError    it answered with an error; ``code`` is Redis' own word for it
    ├── NatsError                NATS gave no answer; each part turns it into its own
    ├── RedisSettingsError       Redis loses state, or keeps none for this user: refused at start
    ├── SnapshotError            a snapshot file cannot be read or written
    ├── HubError                 an answer of the hub, or the lack of one
    │   ├── TemporaryHubError    a retry can help: network, 408, 429, 401, 403, 5xx, no code
    │   ├── PermanentHubError    a retry cannot help: any other 4xx with a code of the hub
    │   └── FencedHubError       412: another sender holds the lease; ``newest`` is the fence it has
    ├── HubUnavailableError      a token cannot be judged now; never turned into a 401
    └── RequestRefusedError      a request is answered with an error; it ends in the ASGI
                                 applications and reaches no caller

An error's text names the cause, the value and the way out, and never holds a token, a license or a
password.
"""

from __future__ import annotations

from ahwire.status import Code

__all__ = [
    "AlertStateError",
    "BudgetStoreError",
    "BusClosed",
    "BusError",
    "BusFull",
    "CollectorError",
    "DeadBatchesError",
    "DeparturesError",
    "FencedAlertStateError",
    "FencedHubError",
    "FencedOutboxError",
    "HubError",
    "HubUnavailableError",
    "NatsError",
    "OutboxError",
    "PermanentHubError",
    "PermanentStoreError",
    "PresenceDamagedError",
    "PresenceError",
    "RedisError",
    "RedisRefusedError",
    "RedisSettingsError",
    "RegistryError",
    "RequestRefusedError",
    "SnapshotError",
    "StoreError",
    "TemporaryHubError",
    "TemporaryStoreError",
]


class CollectorError(Exception):
    """Root of all errors of this package."""


class BusError(CollectorError):
    """A batch could not be put on the bus, or could not be taken from it."""


class BusFull(BusError):  # noqa: N818 - the protocol's documented name
    """The shard has no room now. Temporary: the same batch can be published again later."""


class BusClosed(BusError):  # noqa: N818 - the protocol's documented name
    """The bus was closed and takes nothing more in this process."""


class StoreError(CollectorError):
    """The time-series store did not do what it was asked."""


class TemporaryStoreError(StoreError):
    """A retry of the same call can help; the samples must be kept."""


class PermanentStoreError(StoreError):
    """A retry of the same call cannot help; samples belong into the dead letters."""


class RegistryError(CollectorError):
    """The registry could not be read or written. Temporary unless its text says otherwise."""


class BudgetStoreError(CollectorError):
    """The store of known series gave no answer, or could not keep what it was told."""


class PresenceError(CollectorError):
    """The presence store gave no answer. Nothing may be concluded about any agent from this."""


class PresenceDamagedError(PresenceError):
    """The presence store has what presence never wrote; no retry helps until it is repaired."""


class DeadBatchesError(CollectorError):
    """What keeps the batches that the store refused cannot be read or written; a retry can help."""


class DeparturesError(CollectorError):
    """What remembers who was deleted cannot be read or written; a retry can help."""


class AlertStateError(CollectorError):
    """What keeps rules, silences and the states of alerts gave no answer, or could not keep it."""


class FencedAlertStateError(AlertStateError):
    """Another process has taken the states over since they were read here; nothing was kept."""


class OutboxError(CollectorError):
    """The outbox could not make events durable, or could not be read."""


class FencedOutboxError(OutboxError):
    """The caller's fencing token is older than the newest: it lost the lease and must stop.

    So it is with one that no lease can give: negative, or `ahwire.limits.MAX_FENCE` and above.

    Attributes:
        fence: The token that was refused.
        newest: The newest token that the outbox has seen.
    """

    def __init__(self, *, fence: int, newest: int) -> None:
        fault = f"is older than {newest}" if fence < newest else "is none that a lease can give"
        super().__init__(f"fence {fence} {fault}: the lease is lost, take it anew before acting")
        self.fence = fence
        self.newest = newest


class RedisError(CollectorError):
    """Redis gave no answer, or one that is an error.

    A write may or may not have been done; it was done at most once. The parts that keep state in
    Redis raise their own error from it.
    """


class RedisRefusedError(RedisError):
    """Redis answered with an error: the command was not done; of a script or pipeline some may be.

    Attributes:
        code: Redis' own word for the error (``NOPERM``, ``READONLY``, ``WRONGTYPE`` …), also of a
            command in a script; ``ERR`` when it gave none.
        is_of_server: Whether Redis cannot do it now, or not for this user (full, a replica, without
            a disk …): no key is at fault, and the text says what to do there.
    """

    def __init__(self, message: str, *, code: str, is_of_server: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_of_server = is_of_server


class NatsError(CollectorError):
    """NATS gave no answer. What was asked for was done at most once; nobody knows whether it was.

    Attributes:
        is_nobody: Whether NATS itself answered: nobody there listens to that subject.
        is_refusal: Whether it is there, and does not let this user do that.
    """

    def __init__(self, message: str, *, is_nobody: bool = False, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_nobody = is_nobody
        self.is_refusal = is_refusal


class RedisSettingsError(CollectorError):
    """This Redis loses state, or keeps none for this user; the text says what to change there."""


class SnapshotError(CollectorError):
    """A snapshot file cannot be read or written; the text names the file and what to do."""


class HubError(CollectorError):
    """The hub answered with an error, or did not answer.

    Attributes:
        status: HTTP status of the answer; None when there was no readable answer.
        code: The hub's own word for the error (``license_unknown`` …), when it sent one.
    """

    def __init__(self, message: str, *, status: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class TemporaryHubError(HubError):
    """A retry can help: network error, 408, 429, 401, 403, 5xx, or an answer that makes no sense.

    A 4xx without the hub's error code is one that makes no sense: a proxy may have said it.

    Attributes:
        retry_after_seconds: How long the hub asked to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after_seconds = retry_after_seconds


class PermanentHubError(HubError):
    """A retry of the same request cannot help (4xx with a code, not 401, 403, 408, 412, 429)."""


class FencedHubError(HubError):
    """412: the hub has seen a newer fence. Nothing was taken; the lease is lost.

    Attributes:
        newest: The newest fence that the hub knows, or None when it did not tell.
        is_senseless: Whether it told something that no fence can be above. The hub is at fault,
            and its counter must be set back there; nobody can send until then.
    """

    def __init__(self, message: str, *, newest: int | None, is_senseless: bool = False) -> None:
        super().__init__(message, status=412, code="fenced")
        self.newest = newest
        self.is_senseless = is_senseless


class HubUnavailableError(CollectorError):
    """A token unknown here cannot be judged now: the hub is down, or look-ups are limited.

    Attributes:
        retry_after_seconds: What the agent is told to wait.
    """

    def __init__(self, message: str, *, retry_after_seconds: float = 30.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RequestRefusedError(CollectorError):
    """A request is answered with an error.

    Attributes:
        code: What the answer's ``X-AH-Code`` says; its HTTP status follows from it.
        retry_after_seconds: What ``Retry-After`` says; None: no such header.
    """

    def __init__(
        self, code: Code, message: str, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_seconds = retry_after_seconds
