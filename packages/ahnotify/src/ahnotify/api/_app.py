"""The rules API: rules, contacts, and what became of notifications, as JSON over HTTP.

Everything is within the tenant of the caller's key; no route takes a tenant.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Iterator
from typing import Any, Final

import attrs
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ahnotify.api._http import (
    cursor_time,
    guarded,
    problem,
    read_cursor,
    read_limit,
    read_object,
    read_version,
    reply,
    write_cursor,
)
from ahnotify.api._warnings import rule_warnings
from ahnotify.broker.base import RULE_EVENTS, Broker, Message
from ahnotify.clock import SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.directory import ApiKeys, Contact, Directory, Principal, Role
from ahnotify.errors import InvalidError, NotFoundError
from ahnotify.history import History
from ahnotify.rules import RuleStore, StoredRule
from ahwire import Clock
from ahwire.notification import RuleChange, RuleChangedEvent

_COLLECTIONS: Final = ("/v1/rules", "/v1/contacts", "/v1/notifications", "/v1/dead-letters")
_PROBLEMS_MAX: Final = 20
_KEY_CHARS_MAX: Final = 64


def rules_app(
    *,
    database: Database,
    broker: Broker,
    clock: Clock | None = None,
    channels: Collection[str] | None = None,
) -> Starlette:
    """The API as an ASGI application.

    Keys are made by `ApiKeys.create`; viewers read, editors write. Changes carry `If-Match` with
    the ETag that was read, or `If-None-Match: *` to only ever create; without either the last one
    wins. After a rule's commit a RuleChangedEvent is published; should that fail, rule caches still
    see the change at their next reload. A rule that is taken but can tell nobody (a recipient
    without a contact, a channel without a provider, an event type that does not exist) is answered
    with `warnings`.

    Args:
        database: The notification database.
        broker: Where RuleChangedEvents go.
        clock: Time.
        channels: The channels that have a provider, as given to `Sending`; None when that is not
            known here: then no rule is warned about its channels.
    """
    api = _Api(database=database, broker=broker, clock=clock or SystemClock(), channels=channels)

    async def on_http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            text = f"there is nothing at this path; the collections are {', '.join(_COLLECTIONS)}"
            return problem(404, "http", text)
        return problem(error.status_code, "http", error.detail)

    return Starlette(
        routes=[
            Route("/v1/rules", api.viewer(api.list_rules), methods=["GET"]),
            Route("/v1/rules", api.editor(api.create_rule), methods=["POST"]),
            Route("/v1/rules/{rule_id}", api.viewer(api.get_rule), methods=["GET"]),
            Route("/v1/rules/{rule_id}", api.editor(api.put_rule), methods=["PUT"]),
            Route("/v1/rules/{rule_id}", api.editor(api.delete_rule), methods=["DELETE"]),
            Route("/v1/contacts", api.viewer(api.list_contacts), methods=["GET"]),
            Route("/v1/contacts", api.editor(api.create_contact), methods=["POST"]),
            Route("/v1/contacts/{contact_id}", api.viewer(api.get_contact), methods=["GET"]),
            Route("/v1/contacts/{contact_id}", api.editor(api.put_contact), methods=["PUT"]),
            Route("/v1/contacts/{contact_id}", api.editor(api.delete_contact), methods=["DELETE"]),
            Route("/v1/notifications", api.viewer(api.list_notifications), methods=["GET"]),
            Route("/v1/notifications/{uuid}", api.viewer(api.get_notification), methods=["GET"]),
            Route("/v1/dead-letters", api.viewer(api.list_dead_letters), methods=["GET"]),
        ],
        exception_handlers={HTTPException: on_http_error},
    )


class _Api:
    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        clock: Clock,
        channels: Collection[str] | None,
    ) -> None:
        self._channels = None if channels is None else frozenset(channels)
        self._broker = broker
        self._clock = clock
        self._keys = ApiKeys(database=database, clock=clock)
        self._rules = RuleStore(database=database, clock=clock)
        self._directory = Directory(database=database, clock=clock)
        self._history = History(database=database)

    def viewer(self, handler: Any) -> Any:
        return guarded(self._keys, handler, role=Role.VIEWER)

    def editor(self, handler: Any) -> Any:
        return guarded(self._keys, handler, role=Role.EDITOR)

    # Rules

    async def list_rules(self, request: Request, caller: Principal) -> Response:
        limit = read_limit(request)
        after = _text_cursor(request)
        rules = await self._rules.list_rules(caller.tenant_id, after=after, limit=limit + 1)
        shown = rules[:limit]
        more = write_cursor(shown[-1].rule.rule_id) if len(rules) > limit else None
        return reply({"rules": [_rule_json(each) for each in shown], "next_cursor": more})

    async def create_rule(self, request: Request, caller: Principal) -> Response:
        definition = await _read_fields(request)
        rule_id = definition.pop("rule_id", None)
        if rule_id is None:
            rule_id = secrets.token_hex(8)
        if not isinstance(rule_id, str):
            raise InvalidError([("rule_id", "is not a text")])
        return await self._store_rule(caller, rule_id, definition, expected_version=0)

    async def get_rule(self, request: Request, caller: Principal) -> Response:
        stored = await self._rules.get(caller.tenant_id, _path_text(request, "rule_id"))
        return reply(_rule_json(stored), version=stored.version)

    async def put_rule(self, request: Request, caller: Principal) -> Response:
        return await self._store_rule(
            caller,
            request.path_params["rule_id"],
            await _read_fields(request),
            expected_version=read_version(request),
        )

    async def _store_rule(
        self,
        caller: Principal,
        rule_id: str,
        definition: dict[str, Any],
        *,
        expected_version: int | None,
    ) -> Response:
        # What was answered may be sent back as it is; the version that counts is If-Match.
        definition.pop("version", None)
        definition.pop("warnings", None)
        stored = await self._rules.put(
            caller.tenant_id,
            rule_id,
            definition,
            actor=f"key:{caller.key_id}",
            expected_version=expected_version,
        )
        change = RuleChange.CREATED if stored.created else RuleChange.UPDATED
        if not stored.rule.enabled:
            change = RuleChange.DISABLED
        await self._announce(caller.tenant_id, rule_id, change)
        found = await rule_warnings(stored.rule, directory=self._directory, channels=self._channels)
        warnings = [{"field": field, "reason": reason} for field, reason in found]
        status = 201 if stored.created else 200
        body = _rule_json(stored) | {"warnings": warnings}
        return reply(body, status, version=stored.version)

    async def delete_rule(self, request: Request, caller: Principal) -> Response:
        rule_id = _path_text(request, "rule_id")
        await self._rules.delete(
            caller.tenant_id,
            rule_id,
            actor=f"key:{caller.key_id}",
            expected_version=read_version(request),
        )
        await self._announce(caller.tenant_id, rule_id, RuleChange.DELETED)
        return Response(status_code=204)

    async def _announce(self, tenant_id: str, rule_id: str, change: RuleChange) -> None:
        now = utc_now(self._clock)
        event = RuleChangedEvent(
            event_type=change, tenant_id=tenant_id, rule_id=rule_id, occurred_at=now
        )
        message = Message(
            topic=RULE_EVENTS,
            body=event.to_json(),
            message_id=secrets.token_hex(16),
            tenant_id=tenant_id,
        )
        await self._broker.publish([message])

    # Contacts

    async def list_contacts(self, request: Request, caller: Principal) -> Response:
        limit = read_limit(request)
        after = _text_cursor(request)
        found = await self._directory.list_contacts(caller.tenant_id, after=after, limit=limit + 1)
        shown = found[:limit]
        more = write_cursor(shown[-1].contact_id) if len(found) > limit else None
        return reply({"contacts": [_contact_json(each) for each in shown], "next_cursor": more})

    async def create_contact(self, request: Request, caller: Principal) -> Response:
        fields = _contact_fields(await _read_fields(request))
        contact = await self._directory.put_contact(caller.tenant_id, **fields)
        return reply(_contact_json(contact), 201, version=contact.version)

    async def get_contact(self, request: Request, caller: Principal) -> Response:
        contact = await self._directory.get_contact(
            caller.tenant_id, _path_text(request, "contact_id")
        )
        return reply(_contact_json(contact), version=contact.version)

    async def put_contact(self, request: Request, caller: Principal) -> Response:
        fields = _contact_fields(await _read_fields(request))
        contact_id = _path_text(request, "contact_id")
        await self._directory.get_contact(caller.tenant_id, contact_id)
        contact = await self._directory.put_contact(
            caller.tenant_id,
            **fields,
            contact_id=contact_id,
            expected_version=read_version(request),
        )
        return reply(_contact_json(contact), version=contact.version)

    async def delete_contact(self, request: Request, caller: Principal) -> Response:
        await self._directory.delete_contact(
            caller.tenant_id,
            _path_text(request, "contact_id"),
            expected_version=read_version(request),
        )
        return Response(status_code=204)

    # History

    async def list_notifications(self, request: Request, caller: Principal) -> Response:
        limit = read_limit(request)
        parts = read_cursor(request, 2)
        before = (cursor_time(parts[0]), _cursor_text(parts[1])) if parts else None
        found = await self._history.recent(caller.tenant_id, before=before, limit=limit + 1)
        shown = found[:limit]
        last = shown[-1] if shown else None
        more = (
            write_cursor(last.created_at, last.notification_uuid)
            if last and len(found) > limit
            else None
        )
        return reply({"notifications": shown, "next_cursor": more})

    async def get_notification(self, request: Request, caller: Principal) -> Response:
        return reply(await self._history.story(caller.tenant_id, _path_text(request, "uuid")))

    async def list_dead_letters(self, request: Request, caller: Principal) -> Response:
        letters = await self._history.dead_letters(caller.tenant_id, limit=read_limit(request))
        return reply({"dead_letters": letters})


def _text_cursor(request: Request) -> str:
    parts = read_cursor(request, 1)
    return _cursor_text(parts[0]) if parts else ""


def _cursor_text(part: object) -> str:
    if not isinstance(part, str) or not _is_whole(part):
        raise InvalidError([("cursor", "is not a cursor of this API")])
    return part


def _path_text(request: Request, name: str) -> str:
    text: str = request.path_params[name]
    # No id is so, and not every database can be asked for it.
    if not text.isprintable():
        raise NotFoundError(f"there is nothing with the id {text[:40]!a}")
    return text


async def _read_fields(request: Request) -> dict[str, Any]:
    """The body, once it is known that a database can keep and an answer can show all of it."""
    body = await read_object(request)
    problems = list(_unstorable(body))[:_PROBLEMS_MAX]
    if problems:
        raise InvalidError(problems)
    return body


def _unstorable(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    # A stack of its own: a body may be nested as deep as the parser went.
    waiting: list[tuple[str, Any]] = [("", body)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                inside = f"{path}.{_shown(key)}" if path else _shown(key)
                if not _is_whole(key):
                    yield inside, "is a name with half a character or a NUL in it"
                waiting.append((inside, inner))
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
        elif isinstance(value, str) and not _is_whole(value):
            yield path, "holds half a surrogate pair or a NUL; write whole characters"
        elif isinstance(value, float) and not math.isfinite(value):
            yield path, "is not a finite number"


def _is_whole(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _shown(key: str) -> str:
    return key[:_KEY_CHARS_MAX] if key.isprintable() else ascii(key[:_KEY_CHARS_MAX])[1:-1]


def _rule_json(stored: StoredRule) -> dict[str, Any]:
    return stored.rule.to_dict() | {"version": stored.version}


def _contact_json(contact: Contact) -> dict[str, Any]:
    fields = attrs.asdict(contact)
    recipient = fields.pop("recipient")
    del fields["tenant_id"]
    return {**fields, **recipient}


_CONTACT_TEXTS = ("recipient_type", "recipient_id", "channel", "address")
_CONTACT_FLAGS = {"enabled": True, "verified": False}


def _contact_fields(body: dict[str, Any]) -> dict[str, Any]:
    problems = [
        (name, "is not a text") for name in _CONTACT_TEXTS if not isinstance(body.get(name), str)
    ]
    problems += [
        (name, "is not true or false")
        for name, default in _CONTACT_FLAGS.items()
        if not isinstance(body.get(name, default), bool)
    ]
    problems += [
        (name, "is not a field of a contact")
        for name in body
        if name not in _CONTACT_TEXTS and name not in _CONTACT_FLAGS
    ]
    if problems:
        raise InvalidError(problems)
    fields: dict[str, Any] = {name: body[name] for name in _CONTACT_TEXTS}
    return fields | {name: body.get(name, default) for name, default in _CONTACT_FLAGS.items()}
