"""What a setting is made of: its kinds of value, and how a field says what it allows.

A field made by `setting` carries its range, its choices and its documentation in its metadata; the
loader checks against them and `ah-server settings` and the reference page print them, so that the
three cannot disagree.
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from ah_server.settings._checks import is_host
from ahcollector.bus.base import SHARDS

_PORT_MAX = 65_535
_SHARDS_EXAMPLE = "0-31,40"
_SHARDS_CHARS_MAX = 400
_SHARD_RANGE = re.compile(r"(?P<first>[0-9]{1,3})(?:-(?P<last>[0-9]{1,3}))?")


@attrs.frozen
class Address:
    """Where to listen: a host name or address, and a port (0 takes a free one)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, example: str = "127.0.0.1:8420") -> "Address":
        """Reads `host:port` or `[v6]:port`; `example` stands in what is raised.

        Raises:
            ValueError: the text is neither.
        """
        expected = f"expected host:port, as in {example}"
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        elif ":" in host:
            port = example.rpartition(":")[2]
            raise ValueError(f"an IPv6 address stands in brackets, as in [::1]:{port}")
        if not colon or not is_host(host) or bracketed != (":" in host):
            raise ValueError(expected)
        if not port.isascii() or not port.isdigit() or len(port) > len(str(_PORT_MAX)):
            raise ValueError(f"{expected}, and a port from 0 to {_PORT_MAX}")
        if int(port) > _PORT_MAX:
            raise ValueError(f"port {port} is over {_PORT_MAX}")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def netloc(self) -> str:
        """The address as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.netloc


@attrs.frozen
class Shards:
    """Shards of the bus, by number: each once, rising."""

    numbers: tuple[int, ...]

    @classmethod
    def every(cls) -> "Shards":
        """All there are."""
        return cls(tuple(range(SHARDS)))

    @classmethod
    def parse(cls, text: str) -> "Shards":
        """Reads `all`, or numbers and ranges with commas between, as in `0-31,40`.

        Raises:
            ValueError: the text is neither.
        """
        if text.strip() == "all":
            return cls.every()
        found: set[int] = set()
        for piece in text[:_SHARDS_CHARS_MAX].split(","):
            ends = _SHARD_RANGE.fullmatch(piece.strip())
            if ends is None or len(text) > _SHARDS_CHARS_MAX:
                raise ValueError(f"expected all, or numbers and ranges as in {_SHARDS_EXAMPLE}")
            first = int(ends["first"])
            last = first if ends["last"] is None else int(ends["last"])
            if not first <= last < SHARDS:
                raise ValueError(
                    f"expected numbers from 0 to {SHARDS - 1}, the lower one first, as in"
                    f" {_SHARDS_EXAMPLE}"
                )
            found.update(range(first, last + 1))
        return cls(tuple(sorted(found)))

    def __str__(self) -> str:
        if len(self.numbers) == SHARDS:
            return "all"
        pieces: list[list[int]] = []
        for number in self.numbers:
            if pieces and pieces[-1][1] == number - 1:
                pieces[-1][1] = number
            else:
                pieces.append([number, number])
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pieces)


@attrs.frozen(repr=False)
class Secret:
    """A password or token that shows itself to no log: only `reveal` returns it."""

    _value: str

    def reveal(self) -> str:
        """The secret itself, for the one call that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __bool__(self) -> bool:
        return bool(self._value)


NO_SECRET = Secret("")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
"""Addresses that share a beginning; one address is the smallest."""


def setting(
    default: Any,
    doc: str,
    *,
    between: tuple[float, float] | None = None,
    one_of: Sequence[str] | None = None,
    check: Callable[[Any], None] | None = None,
) -> Any:
    """One setting.

    Args:
        default: Its value when nothing is set.
        doc: What it means, in one line.
        between: Least and greatest number allowed.
        one_of: The texts allowed.
        check: Raises ValueError, saying what was expected, for what is not allowed.
    """
    return attrs.field(
        default=default,
        metadata={"doc": doc, "between": between, "one_of": one_of, "check": check},
    )


def sections(
    model: type, doc: str, *, check_name: Callable[[object], None], entries_max: int
) -> Any:
    """Groups of settings of one kind, by names that whoever sets them chooses.

    Such a name has letters that no variable's name can have, so there is one variable for all of
    them: it holds the whole mapping as JSON.

    Args:
        model: What each of them holds.
        doc: What they are for, in one line.
        check_name: Raises ValueError, saying what was expected, for what is no name.
        entries_max: How many there may be.
    """
    return attrs.field(
        factory=lambda: MappingProxyType({}),
        metadata={
            "sections": model,
            "doc": doc,
            "check_name": check_name,
            "entries_max": entries_max,
        },
    )


def section(model: type) -> Any:
    """A group of settings of its own."""
    return attrs.field(factory=model, metadata={"section": model})
