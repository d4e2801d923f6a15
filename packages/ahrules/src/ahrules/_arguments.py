"""Wrong arguments, refused before anything is changed; each error names the way out."""

from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import NoReturn


def refuse(name: str, value: object, way_out: str) -> NoReturn:
    """Raise the TypeError of an argument that is of the wrong kind; its value is not shown."""
    kind = "None" if value is None else f"a {type(value).__name__}"
    raise TypeError(f"{name} is {kind}; {way_out}")


def expect(name: str, value: object, kind: type | tuple[type, ...], way_out: str) -> None:
    """Let a value of the kind pass.

    Raises:
        TypeError: It is of another kind.
    """
    if not isinstance(value, kind):
        refuse(name, value, way_out)


def expect_no_single(name: str, value: object, kind: type) -> None:
    """Refuse one thing, or the mapping of one, where a list of them is meant.

    Raises:
        TypeError: It is one.
    """
    if isinstance(value, kind | Mapping | str):
        refuse(name, value, f"give a list: [{name.removesuffix('s')}]")


def unix_seconds(name: str, value: object) -> float:
    """Return a time as a finite float.

    Raises:
        TypeError: It is no number; a datetime is none.
        ValueError: It is NaN, infinite, or an integer that no double holds.
    """
    try:
        seconds = _number(value)
    except TypeError:
        way_out = "give Unix seconds"
        if isinstance(value, datetime):
            way_out += ", such as when.timestamp()"
        refuse(name, value, way_out)
    except OverflowError:
        raise ValueError(f"{name} is an integer that no double holds; give Unix seconds") from None
    if not isfinite(seconds):
        raise ValueError(f"{name} is {seconds}; give Unix seconds")
    return seconds


def _number(value: object) -> float:
    # Unlike `float`, `isfinite` takes no text for a number.
    isfinite(value)  # type: ignore[arg-type]  # whether it is a number is what is asked
    return float(value)  # type: ignore[arg-type]  # as above
