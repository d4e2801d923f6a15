"""Keeps secrets out of what the HTTP libraries write to their own logs.

At DEBUG they log headers: httpcore those of the answers, which may repeat what was sent, and hpack
each header block that it codes, in a form that anyone can decode. Their loggers get one filter,
which acts only on records made by requests of this package; levels and handlers, and what other
users of the same libraries log, stay as the host set them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ahwal.transport._token import Secret

# A filter acts on the records of its own logger and not of that logger's children.
_LOGGERS = (
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "hpack",
    "hpack.hpack",
    "hpack.huffman",
    "hpack.table",
)
_secrets: ContextVar[tuple[Secret, ...]] = ContextVar("ahwal_secrets_of_the_request", default=())


class _Masking(logging.Filter):
    """Masks the secrets of the request that is under way in the current task."""

    def filter(self, record: logging.LogRecord) -> bool:
        secrets = _secrets.get()
        if not secrets:
            return True
        if record.name.startswith("hpack"):
            # Coded headers cannot be masked, so these records are not made at all.
            return False
        text = record.getMessage()
        for secret in secrets:
            text = secret.masked_in(text)
        record.msg, record.args = text, ()
        return True


_MASKING = _Masking()


@contextmanager
def masked_logs(*secrets: Secret | None) -> Iterator[None]:
    """Mask these secrets in whatever the HTTP libraries log inside the block, in this task."""
    for name in _LOGGERS:
        # Again before each request: the host may have set up its logging meanwhile.
        logging.getLogger(name).addFilter(_MASKING)
    known = tuple(secret for secret in secrets if secret is not None)
    before = _secrets.set(known)
    try:
        yield
    finally:
        _secrets.reset(before)
