"""Sets of rules as numbers: bit n of a mask is the rule at position n of a tenant's index.

A posting is one set: a mask, or, where that takes less memory, a tuple of a few positions. Both are
immutable, and a table of postings is never changed once it is in an index: `changed` returns a new
one that shares every posting without a change.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)

Posting: TypeAlias = int | tuple[int, ...]

# A tuple takes 40 bytes and 8 a position, a mask an eighth of a byte a rule of the tenant.
_MASK_ONLY_SIZE_MAX: Final = 2_048
_SIZE_A_POSITION: Final = 64
_POSITIONS_MAX: Final = 32
FEW: Final = 24
"""With more rules in it, a mask is taken apart quicker byte by byte than bit by bit."""

_BITS_OF_BYTE: Final = tuple(
    tuple(n for n in range(7, -1, -1) if byte >> n & 1) for byte in range(256)
)


def as_mask(posting: Posting) -> int:
    """Return a posting as a mask."""
    if isinstance(posting, int):
        return posting
    mask = 0
    for position in posting:
        mask |= 1 << position
    return mask


def positions(mask: int) -> Iterator[int]:
    """Yield the positions in a mask, the highest first, in time linear in its length."""
    whole = mask.to_bytes(mask.bit_length() // 8 + 1, "little")
    for index in range(len(whole) - 1, -1, -1):
        for bit in _BITS_OF_BYTE[whole[index]]:
            yield index * 8 + bit


def changed(
    table: Mapping[K, Posting],
    added: Mapping[K, list[int]],
    removed: Mapping[K, list[int]],
    size: int,
) -> dict[K, Posting]:
    """Return a table with changed postings; those that become empty are left out.

    Args:
        table: The postings so far.
        added: Positions to put in, by key.
        removed: Positions to take out, by key; this is done first.
        size: How many positions the index has.
    """
    result = dict(table)
    for key, found in removed.items():
        posting = _without(result[key], found)
        if posting:
            result[key] = posting
        else:
            del result[key]
    for key, found in added.items():
        result[key] = _with(result.get(key, ()), found, size)
    return result


def _without(posting: Posting, found: list[int]) -> Posting:
    if isinstance(posting, int):
        return posting & ~_mask_of(found)
    return tuple(position for position in posting if position not in found)


def _with(posting: Posting, found: list[int], size: int) -> Posting:
    if isinstance(posting, int):
        return posting | _mask_of(found)
    if posting:
        found = [*posting, *found]
    if size > _MASK_ONLY_SIZE_MAX and len(found) <= min(_POSITIONS_MAX, size // _SIZE_A_POSITION):
        return tuple(found)
    return _mask_of(found)


def _mask_of(found: list[int]) -> int:
    if len(found) == 1:
        return 1 << found[0]
    bits = bytearray(max(found) // 8 + 1)
    for position in found:
        bits[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(bits, "little")
