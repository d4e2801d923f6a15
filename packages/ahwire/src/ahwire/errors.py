"""Every error that ahwire raises on purpose.

```
WireError
├── DecodeError               a contract's field is missing or wrong; also a ValueError
├── BadBodyError              a compressed body is broken, cut or has bytes behind its end
├── TooLargeError             a body or a batch is over a limit
└── UnsupportedEncodingError  a content coding that is not spoken, or whose extra is not installed
```

All of them are the fault of whoever made the bytes (or, for UnsupportedEncodingError, of the
installation): the same input fails again, so a retry without a change cannot help.
"""

__all__ = [
    "BadBodyError",
    "DecodeError",
    "TooLargeError",
    "UnsupportedEncodingError",
    "WireError",
]


class WireError(Exception):
    """Root of all errors of this package."""


class DecodeError(WireError, ValueError):
    """A value does not keep its contract, found while decoding it or while building it.

    Attributes:
        field: path of the field from the top of the document, such as `agents[3].version`; empty
            when the document itself is at fault.
        reason: what is wrong with it, and what would be right. Never holds a secret.
    """

    def __init__(self, *, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from positional arguments, which this one does not take.
        return (_rebuild_decode_error, (self.field, self.reason))


def _rebuild_decode_error(field: str, reason: str) -> DecodeError:
    return DecodeError(field=field, reason=reason)


class BadBodyError(WireError):
    """A body cannot be read: broken coding, cut before its end, or bytes behind it."""


class TooLargeError(WireError):
    """A body or a batch is over a limit; the message names the limit."""


class UnsupportedEncodingError(WireError):
    """A content coding that is not spoken here; the message names those that are."""
