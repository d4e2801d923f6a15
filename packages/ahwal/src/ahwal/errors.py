"""Every error this package raises.

An error names its cause and the way out, and its class says whether a retry can help::

    AhwalError
    ├── ConfigError                 a setting is wrong: change it, a retry cannot help
    ├── TokenError                  a token that no header can carry: enrol again
    ├── CredentialsError            the stored identity cannot be read or written
    │   ├── NotEnrolledError        there is none: enrol first
    │   └── AlreadyEnrolledError    there is one: force is needed to replace it
    ├── EnrolError                  enrolment did not succeed
    │   ├── EnrolRefusedError       the license is not accepted: another one is needed
    │   └── EnrolTemporaryError     nobody decided: try again later with the same license
    ├── AgentRevokedError           the collector revoked the agent: only enrolling again helps
    ├── TransportError              no whole answer came: the network's side, a retry can help
    ├── BusyError                   earlier calls hang: a retry can help when they come back
    └── QueueError                  the queue between collecting and sending
        ├── QueueClosedError        used after close: a mistake of the caller
        ├── EntryTooLargeError      one entry over the queue's limit: never fits, do not retry
        └── WALError                the queue on disk
            ├── WALOpenError        the directory cannot be used: retry when its cause is gone
            │   ├── WALLockedError  another process holds it
            │   └── WALFormatError  written by a newer version
            ├── WALClosedError      also a QueueClosedError; also raised in a forked child
            ├── WALWriteError       the disk refused: nothing was stored, a retry can help
            └── WALReadError        the disk refused to give an entry back: a retry can help
"""


class AhwalError(Exception):
    """The root of all errors of this package."""


class ConfigError(AhwalError):
    """Settings are wrong.

    Attributes:
        problems: One sentence for each of them: the setting, its value, what is valid.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class TokenError(AhwalError):
    """A token holds characters that no header can carry. The text never shows the token."""


class CredentialsError(AhwalError):
    """The file with the agent's identity cannot be read or written."""


class NotEnrolledError(CredentialsError):
    """The state directory holds no identity: `enroll`, or `ahagent enroll`, gives it one."""


class AlreadyEnrolledError(CredentialsError):
    """The state directory holds an identity, and nobody asked to replace it."""


class EnrolError(AhwalError):
    """Enrolment did not succeed. The text never shows the license.

    Attributes:
        code: The protocol's error code, None when the answer had none.
    """

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class EnrolRefusedError(EnrolError):
    """The collector refused the license or the machine."""


class EnrolTemporaryError(EnrolError):
    """The collector did not answer, or could not decide.

    Attributes:
        retry_after_seconds: When it asked to be tried again; None when it did not say.
    """

    def __init__(
        self, message: str, *, code: str | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds


class AgentRevokedError(AhwalError):
    """The collector revoked this agent; its data stays on disk."""


class TransportError(AhwalError):
    """No whole answer came: name look-up, connection, TLS, time limit, cut or oversized body.

    Attributes:
        request_id: The id under which the server may have logged the request.
    """

    def __init__(self, message: str, *, request_id: str = "") -> None:
        super().__init__(message)
        self.request_id = request_id


class BusyError(AhwalError):
    """Earlier blocking calls (name look-ups, a collector) hang, and no more are begun."""


class QueueError(AhwalError):
    """The queue could not do what was asked."""


class QueueClosedError(QueueError):
    """The queue was used after `close`, or in a process that it does not belong to."""


class EntryTooLargeError(QueueError):
    """An entry is larger than the queue can ever take.

    Attributes:
        size_bytes: The size of what was to be stored.
        size_bytes_max: The largest size that can be stored.
    """

    def __init__(self, message: str, *, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max


class WALError(QueueError):
    """The queue on disk failed."""


class WALOpenError(WALError):
    """The directory cannot be used as a WAL."""


class WALLockedError(WALOpenError):
    """Another process, or another object in this one, holds the directory.

    Attributes:
        pid: The holder's process id, None when it could not be read.
    """

    def __init__(self, message: str, *, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class WALFormatError(WALOpenError):
    """The directory has a format this version does not know. Nothing in it was touched.

    Attributes:
        found: What the `format` file says.
    """

    def __init__(self, message: str, *, found: str) -> None:
        super().__init__(message)
        self.found = found


class WALClosedError(WALError, QueueClosedError):
    """The WAL was used after `close`, or in a child process made by `fork`."""


class WALWriteError(WALError):
    """The disk refused a write or a sync. Nothing of the call is in the queue; it stays usable."""


class WALReadError(WALError):
    """The disk refused to read an entry, which stays in the queue.

    Attributes:
        entry_id: The id of the entry that could not be read.
    """

    def __init__(self, message: str, *, entry_id: int) -> None:
        super().__init__(message)
        self.entry_id = entry_id
