"""The same notification rules in the words of rule-engine and json-logic, and by hand.

None has networks, so an event's address is given as a number (of IPv6 the first 64 bits, which is
all that the networks here look at) and a network is a range; json-logic gets `matches` as an
operation of its own, because it has no patterns. The tenant is asked first, so that a rule of
another tenant costs one comparison.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase, translate
from typing import Any

import json_logic
import rule_engine

from ahwire import IncidentEvent

Rule = dict[str, Any]
Matcher = Callable[[IncidentEvent], int]


def flat(event: IncidentEvent) -> dict[str, Any]:
    """An event as the peers see it."""
    address = ipaddress.ip_address(event.ip_address or "0.0.0.0")
    number = int(address)
    return {
        "tenant_id": event.tenant_id,
        "severity": event.severity.value,
        "event_type": event.event_type,
        "host": event.host,
        "v4": number if address.version == 4 else -1,
        "v6": number >> 64 if address.version == 6 else -1,
        "payload": event.payload,
    }


def span(text: str) -> tuple[str, int, int]:
    """The numbers of a network."""
    network = ipaddress.ip_network(text)
    low, high = int(network.network_address), int(network.broadcast_address)
    return ("v4", low, high) if network.version == 4 else ("v6", low >> 64, high >> 64)


def glob_pattern(glob: str) -> str:
    """A glob or the beginning of a type as a pattern."""
    return translate(glob).replace(r"\Z", "$").replace("(?s:", "(?:")


def by_rule_engine(rules: Sequence[Rule]) -> Matcher:
    """One expression a rule, compiled once."""
    context = rule_engine.Context(default_value=None, resolver=rule_engine.resolve_item)
    compiled = [rule_engine.Rule(_expression(rule), context=context) for rule in rules]

    def match(event: IncidentEvent) -> int:
        thing = flat(event)
        return sum(rule.matches(thing) for rule in compiled)

    return match


def _expression(rule: Rule) -> str:
    filters = rule["filters"]
    parts = [f"tenant_id == {json.dumps(rule['tenant_id'])}", json.dumps(rule["enabled"])]
    if "severity" in filters:
        parts.append(f"severity in {json.dumps(filters['severity'])}")
    for name in ("event_type", "host"):
        if name in filters:
            ways = [
                f"{name} =~ {json.dumps(glob_pattern(value))}"
                if {"*", "?"} & set(value)
                else f"{name} == {json.dumps(value)}"
                for value in filters[name]
            ]
            parts.append(f"({' or '.join(ways)})")
    if "ip_address" in filters:
        spans = [span(text) for text in filters["ip_address"]]
        ways = [f"({name} >= {low} and {name} <= {high})" for name, low, high in spans]
        parts.append(f"({' or '.join(ways)})")
    parts += [_predicate_expression(each) for each in rule.get("predicates", ())]
    return " and ".join(parts)


def _predicate_expression(predicate: Rule) -> str:
    if "not" in predicate:
        return f"(not {_predicate_expression(predicate['not'])})"
    if "any" in predicate:
        return f"({' or '.join(map(_predicate_expression, predicate['any']))})"
    field, value = f"payload.{predicate['field']}", json.dumps(predicate["value"])
    if predicate["op"] == "exists":
        return f'(payload["{predicate["field"]}"] != null)'
    if predicate["op"] == "starts_with":
        return f"{field} =~ {json.dumps(re.escape(predicate['value']) + '.*')}"
    sign = {"in": "in", "gte": ">=", "matches": "=~~"}[predicate["op"]]
    return f"({field} {sign} {value})"


def by_json_logic(rules: Sequence[Rule]) -> Matcher:
    """One document a rule."""
    json_logic.add_operation("matches", lambda text, pattern: bool(re.search(pattern, text)))
    documents = [{"and": _document(rule)} for rule in rules]

    def match(event: IncidentEvent) -> int:
        thing = flat(event)
        return sum(bool(json_logic.jsonLogic(document, thing)) for document in documents)

    return match


def _document(rule: Rule) -> list[Any]:
    filters = rule["filters"]
    parts: list[Any] = [{"==": [{"var": "tenant_id"}, rule["tenant_id"]]}, rule["enabled"]]
    if "severity" in filters:
        parts.append({"in": [{"var": "severity"}, filters["severity"]]})
    for name in ("event_type", "host"):
        if name in filters:
            ways = [
                {"matches": [{"var": name}, glob_pattern(value)]}
                if {"*", "?"} & set(value)
                else {"==": [{"var": name}, value]}
                for value in filters[name]
            ]
            parts.append({"or": ways})
    if "ip_address" in filters:
        spans = [span(text) for text in filters["ip_address"]]
        parts.append({"or": [{"<=": [low, {"var": name}, high]} for name, low, high in spans]})
    return parts + [_predicate_document(each) for each in rule.get("predicates", ())]


def _predicate_document(predicate: Rule) -> Any:
    if "not" in predicate:
        return {"!": [_predicate_document(predicate["not"])]}
    if "any" in predicate:
        return {"or": [_predicate_document(each) for each in predicate["any"]]}
    field, value = {"var": f"payload.{predicate['field']}"}, predicate["value"]
    if predicate["op"] == "exists":
        return {"!=": [field, None]}
    if predicate["op"] == "starts_with":
        return {"matches": [field, f"^{re.escape(value)}"]}
    return {{"in": "in", "gte": ">=", "matches": "matches"}[predicate["op"]]: [field, value]}


def by_scan(rules: Sequence[Rule]) -> Matcher:
    """What one writes first: a loop over the rules, whose networks and patterns are ready."""
    ready = [
        (
            rule,
            [ipaddress.ip_network(text) for text in rule["filters"].get("ip_address", ())],
            rule["filters"],
        )
        for rule in rules
    ]

    def match(event: IncidentEvent) -> int:
        address = ipaddress.ip_address(event.ip_address or "0.0.0.0")
        return sum(
            1
            for rule, networks, filters in ready
            if rule["tenant_id"] == event.tenant_id
            and rule["enabled"]
            and ("severity" not in filters or event.severity in filters["severity"])
            and all(
                any(fnmatchcase(getattr(event, name), value) for value in filters[name])
                for name in ("event_type", "host")
                if name in filters
            )
            and (not networks or any(address in network for network in networks))
            and all(_scan_predicate(each, event.payload) for each in rule.get("predicates", ()))
        )

    return match


def _scan_predicate(predicate: Rule, payload: Any) -> bool:
    if "not" in predicate:
        return not _scan_predicate(predicate["not"], payload)
    if "any" in predicate:
        return any(_scan_predicate(each, payload) for each in predicate["any"])
    found, value = payload, predicate["value"]
    for part in predicate["field"].split("."):
        if part not in found:
            return False
        found = found[part]
    match predicate["op"]:
        case "in":
            return found in value
        case "gte":
            return bool(found >= value)
        case "starts_with":
            return bool(found.startswith(value))
        case "matches":
            return re.search(value, found) is not None
        case _:
            return True
