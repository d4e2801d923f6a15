"""Threshold rules and silences as the hub serves them to collectors: two lists, replaced whole."""

import json
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

import anyio.to_thread
from sqlalchemy import insert, select, update

from ah_server.hub._database import HubDatabase
from ah_server.hub._tables import alerting_lists
from ahcollector.alerts import rules_in_force, silences_in_force
from ahcollector.hub import RESPONSE_BYTES_MAX
from ahrules import unknown_fields
from ahwire.errors import DecodeError
from ahwire.hub import Silence, ThresholdRule

ListName = Literal["rules", "silences"]
Kind = TypeVar("Kind", ThresholdRule, Silence)

_FAULTS_MAX = 20


class RefusedListError(Exception):
    """A list cannot be used; the first faults are named by their fields."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class AlertingLists:
    """Reads and replaces the lists; one that was never given is empty."""

    def __init__(self, *, database: HubDatabase) -> None:
        self._database = database

    async def get(self, name: ListName) -> bytes:
        """The list as collectors read it: `{"rules": […]}` or `{"silences": […]}`."""
        query = select(alerting_lists.c.body).where(alerting_lists.c.name == name)
        async with self._database.begin() as connection:
            body = await connection.scalar(query)
        return _answer(name, "[]" if body is None else body)

    async def items(self, name: ListName) -> list[dict[str, Any]]:
        """The list's items, in their order."""
        found: list[dict[str, Any]] = json.loads(await self.get(name))[name]
        return found

    async def put(self, name: ListName, document: Any) -> int:
        """Replaces a list, and returns how many there are now.

        Args:
            name: which one.
            document: `{"rules": […]}` or `{"silences": […]}`, from JSON.

        Raises:
            RefusedListError: it is none, or one of the items cannot be used, or all together are
                more than collectors read; the list is as before.
        """
        # Thousands of patterns take seconds, in which others must have their turns.
        count, body = await anyio.to_thread.run_sync(_checked, name, document)
        mine = alerting_lists.c.name == name
        async with self._database.begin() as connection:
            changed = await connection.execute(update(alerting_lists).where(mine).values(body=body))
            if changed.rowcount == 0:
                await connection.execute(insert(alerting_lists).values(name=name, body=body))
        return count


def _checked(name: ListName, document: Any) -> tuple[int, str]:
    """How many items there are, and their text as it is kept; RefusedListError."""
    items = document.get(name) if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise RefusedListError([f'{name}: expected an object like {{"{name}": […]}}'])
    faults = list(_rule_faults(items) if name == "rules" else _silence_faults(items))
    if faults:
        more = [f"and {len(faults) - _FAULTS_MAX} more"] if len(faults) > _FAULTS_MAX else []
        raise RefusedListError(faults[:_FAULTS_MAX] + more)
    body = json.dumps(items, ensure_ascii=False, separators=(",", ":"))
    size = len(_answer(name, body))
    if size > RESPONSE_BYTES_MAX:
        fault = (
            f"{name}: the {len(items):,} have {size:,} bytes as collectors read them, and "
            f"collectors read at most {RESPONSE_BYTES_MAX:,}, so none would have them; give "
            "fewer, let one stand for many (globs, patterns), or shorten labels and texts"
        )
        raise RefusedListError([fault])
    return len(items), body


def _answer(name: ListName, body: str) -> bytes:
    return f'{{"{name}":{body}}}'.encode()


def _rule_faults(items: list[Any]) -> Iterator[str]:
    rules, faults = _read("rules", items, ThresholdRule)
    yield from faults
    for error in rules_in_force(rules).refused:
        yield f"rule {error.rule_id!r}: " + "; ".join(str(one) for one in error.errors)


def _silence_faults(items: list[Any]) -> Iterator[str]:
    silences, faults = _read("silences", items, Silence)
    yield from faults
    yield from map(str, silences_in_force(silences).refused)


def _read(name: str, items: list[Any], kind: type[Kind]) -> tuple[list[Kind], list[str]]:
    """The items that keep the contract, and what is wrong with the others."""
    good: list[Kind] = []
    faults: list[str] = []
    for place, item in enumerate(items):
        try:
            good.append(kind.from_json(json.dumps(item).encode()))
        except DecodeError as error:
            faults.append(f"{name}[{place}]: {error}")
        else:
            # Collectors pass over what they do not know; here it is a person's slip.
            faults += [f"{name}[{place}].{fault}" for fault in unknown_fields(item, kind)]
    return good, faults
