"""What makes a valid rule tell nobody: said when it is stored, for it is no fault of form.

Recipients, contacts and providers can be made later, and event types are any publisher's, so such a
rule is taken; but nobody would hear of it before an incident went untold.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ahnotify.directory import Directory, RecipientKey
from ahnotify.errors import DatabaseUnavailableError
from ahrules import NotificationRule
from ahwire import EventType

#: As the server's bridge writes them: `agent_down` for `agent.down`.
_KNOWN_TYPES: Final = tuple(kind.value.replace(".", "_") for kind in EventType)
_FAMILIES: Final = tuple(sorted({name.partition("_")[0] + "_" for name in _KNOWN_TYPES}))

Warnings = list[tuple[str, str]]


async def rule_warnings(
    rule: NotificationRule, *, directory: Directory, channels: Collection[str] | None
) -> Warnings:
    """`(field path, reason with the way out)` of what makes `rule` tell less than it says.

    Args:
        rule: A rule that was stored.
        directory: Who can be told.
        channels: Those that have a provider; None: not known here, so nothing is said of them.
    """
    found = _type_warnings(rule) + _channel_warnings(rule, channels)
    try:
        return found + await _recipient_warnings(rule, directory)
    except DatabaseUnavailableError as error:
        # The rule is stored already, so the answer is still that it is.
        return [*found, ("recipients", f"could not be checked: {error}")]


def _type_warnings(rule: NotificationRule) -> Warnings:
    found = []
    for index, pattern in enumerate(rule.filters.event_type or ()):
        if _is_known(pattern):
            continue
        usual = pattern.strip().lower().replace(".", "_").replace("-", "_")
        if _is_known(usual):
            reason = f"this server has no events of type {pattern!r}; write {usual!r}"
        elif usual.startswith(_FAMILIES):
            known = ", ".join(_KNOWN_TYPES)
            reason = f"this server has no events of type {pattern!r}; known are {known}"
        else:
            # Any publisher may have types of its own.
            continue
        found.append((f"filters.event_type[{index}]", reason))
    return found


def _is_known(pattern: str) -> bool:
    if pattern.endswith("*"):
        return any(name.startswith(pattern[:-1]) for name in _KNOWN_TYPES)
    return pattern in _KNOWN_TYPES


def _channel_warnings(rule: NotificationRule, channels: Collection[str] | None) -> Warnings:
    if channels is None:
        return []
    there = ", ".join(sorted(channels)) or "none at all"
    found = []
    for index, channel in enumerate(rule.channels):
        if channel not in channels:
            reason = (
                f"nothing is sent by {str(channel)!r}: this server has no provider of it (it has: "
                f"{there}); have it configured, or choose another channel"
            )
            found.append((f"channels[{index}]", reason))
    return found


async def _recipient_warnings(rule: NotificationRule, directory: Directory) -> Warnings:
    snapshot = await directory.tenant_snapshot(rule.tenant_id)
    found = []
    for index, recipient in enumerate(rule.recipients):
        key = RecipientKey(str(recipient.recipient_type), recipient.recipient_id)
        deaf = [str(each) for each in rule.channels if not snapshot.find(rule.tenant_id, key, each)]
        if not deaf:
            continue
        who = f"{key.recipient_type} {key.recipient_id!r}"
        if not await directory.knows(rule.tenant_id, key):
            reason = f"there is no {who}; make a contact of theirs with POST /v1/contacts"
        else:
            reason = (
                f"{who} has no enabled and verified contact for {', '.join(deaf)}; add one with "
                "POST /v1/contacts, or verify the one that is there"
            )
        found.append((f"recipients[{index}]", reason))
    return found
