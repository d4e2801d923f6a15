"""Ids, metric and label names, and the label names that nobody outside may set.

Normalised names match `[a-zA-Z_][a-zA-Z0-9_]*`: every other character becomes one `_`, and a name
that would begin with a digit gets a `_` before it. Reserved names are compared after that and
without case, so `Company-ID` is as reserved as `company_id`.
"""

import re

__all__ = [
    "RESERVED_LABELS",
    "is_id",
    "is_reserved_label",
    "metric_name",
    "normalise_name",
]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_METRIC_PREFIX = "ah_"

RESERVED_LABELS = frozenset(
    {"company_id", "server_id", "agent_id", "vm_account_id", "vm_project_id"}
)


def is_id(text: str) -> bool:
    """Whether the text may be a company, server or agent id.

    One has 1 to 128 characters: ASCII letters and digits first, then also `_`, `.`, `:` and `-`.
    """
    return _ID.fullmatch(text) is not None


def normalise_name(text: str) -> str:
    """The name in the form that stores keep; the empty name stays empty. Idempotent."""
    if text.isascii() and text.isidentifier():
        return text  # nearly all are: a name of Python's in ASCII is one of ours
    name = _NOT_IN_NAMES.sub("_", text)
    return f"_{name}" if name[:1].isdigit() else name


def metric_name(text: str) -> str:
    """The name under which a metric is stored: normalised, with one `ah_` before it.

    Idempotent. The empty name stays empty: it is no name, and a caller refuses it.
    """
    name = normalise_name(text)
    if not name or name.startswith(_METRIC_PREFIX):
        return name
    return _METRIC_PREFIX + name


def is_reserved_label(name: str) -> bool:
    """Whether a label of this name is taken out of everything that an agent sends.

    True for the tenant's labels and the store's own in any case and spelling that normalises to
    them, for everything beginning `__`, and for the empty name.
    """
    return is_reserved_name(normalise_name(name))


def is_reserved_name(normalised: str) -> bool:
    """As `is_reserved_label`, for a name that is normalised already."""
    normalised = normalised.lower()
    return not normalised or normalised.startswith("__") or normalised in RESERVED_LABELS
