"""A matcher that reads a rule as it is written, and rules and events at random to ask both about.

It shares nothing with ahrules: no index, no compiling, the JSON values as they came. A predicate is
True, False or None, where None waits for the answer to a lookup.
"""

import fnmatch
import ipaddress
import re
from datetime import UTC, datetime

from ahwire import IncidentEvent
from ahwire.notification import Severity


def read_address(text):
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def read_network(text):
    network = ipaddress.ip_network(text)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < 96:
        return network
    return ipaddress.ip_network(f"{mapped}/{network.prefixlen - 96}")


def in_networks(text, networks):
    address = read_address(text) if isinstance(text, str) else None
    found = [read_network(each) for each in networks]
    return address is not None and any(address in network for network in found)


def filters(mapping, event):
    wanted = mapping.get("filters", {})
    if "severity" in wanted and event.severity not in wanted["severity"]:
        return False
    if "event_type" in wanted and not any(
        event.event_type.startswith(w[:-1]) if w.endswith("*") else event.event_type == w
        for w in wanted["event_type"]
    ):
        return False
    if "host" in wanted and not any(
        event.host is not None and fnmatch.fnmatchcase(event.host, w) for w in wanted["host"]
    ):
        return False
    return "ip_address" not in wanted or in_networks(event.ip_address, wanted["ip_address"])


def same_type(left, right):
    for types in (bool, str, (int, float)):
        if isinstance(left, types) or isinstance(right, types):
            both = isinstance(left, types) and isinstance(right, types)
            return both and isinstance(left, bool) == isinstance(right, bool)
    return False


def condition(predicate, payload):
    op, value, found = predicate["op"], predicate["value"], payload
    for part in predicate["field"].split("."):
        if not isinstance(found, dict) or part not in found:
            return op == "exists" and value is False
        found = found[part]
    if op == "exists":
        return value
    if op == "cidr":
        return in_networks(found, [value] if isinstance(value, str) else value)
    if op in ("in", "not_in"):
        alike = [each for each in value if same_type(found, each)]
        return bool(alike) and (found in alike) == (op == "in")
    if op == "contains" and isinstance(found, list):
        return any(same_type(value, each) and value == each for each in found)
    if not same_type(found, value):
        return False
    if op in ("contains", "starts_with", "matches"):
        if not isinstance(found, str):
            return False
        if op == "contains":
            return value in found
        return found.startswith(value) if op == "starts_with" else bool(re.search(value, found))
    return {
        "eq": found == value,
        "ne": found != value,
        "gt": found > value,
        "gte": found >= value,
        "lt": found < value,
        "lte": found <= value,
    }[op]


def predicate_verdict(predicate, payload, answers):
    """True, False, or None while it waits for an answer."""
    if "not" in predicate:
        inner = predicate_verdict(predicate["not"], payload, answers)
        return None if inner is None else not inner
    if "all" in predicate:
        return meet([predicate_verdict(each, payload, answers) for each in predicate["all"]])
    if "any" in predicate:
        inner = [predicate_verdict(each, payload, answers) for each in predicate["any"]]
        return True if True in inner else None if None in inner else False
    if "lookup" in predicate:
        return answers.get(predicate["lookup"])
    return condition(predicate, payload)


def meet(verdicts):
    return False if False in verdicts else None if None in verdicts else True


def verdict(rule, event, answers):
    """What a rule says to an event, as far as the answers tell."""
    if rule["tenant_id"] != event.tenant_id or not rule.get("enabled", True):
        return False
    if not filters(rule, event):
        return False
    predicates = rule.get("predicates", ())
    return meet([predicate_verdict(each, event.payload, answers) for each in predicates])


HOSTS = ["web-1", "web-12", "db-1.eu", "db-2.us", "WEB-1", "mail", "a[b", "grün-1", "x" * 250]
GLOBS = [
    "web-*",
    "*-1",
    "*.eu",
    "d?-?.*",
    "[wd]*",
    "[!w]*",
    "*",
    "*b-*1*",
    "a[[]b",
    "web-1?",
    "*ü*",
]
TYPES = ["login", "login_failed", "login_failed_twice", "agent_down", "x", "*odd"]
WANTED_TYPES = ["login", "login_failed", "login*", "login_*", "agent_down", "a*", "*", "gone"]
NETWORKS = [
    "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.0/24", "0.0.0.0/0", "::/0", "::1",
    "2001:db8::/32",
    "2001:db8:1::/48", "::ffff:10.0.0.0/104", "::ffff:192.168.7.7", "192.168.0.0/255.255.0.0",
    "192.168.7.7/32", "2001:db8::1/128", "::ffff:0:0/96", "fe80::/10",
]  # fmt: skip
ADDRESSES = [
    "10.1.2.3", "10.1.2.4", "10.200.0.1", "::ffff:10.1.2.3", "192.168.7.7", "2001:db8::1",
    "2001:DB8:1::2", "::1", "0.0.0.0", "255.255.255.255", "fe80::1", "::ffff:c0a8:707",
]  # fmt: skip
BROKEN = ["10.1.2.3/8", "010.1.2.3", True, "2001:db8::1/32", "::ffff:10.1.2.3/104", "10.1.2"]
VALUES = ["RU", "", "admin", "2026-06-15", 0, 1, 2.5, -1, 2**53 + 1, True, False]
ODD = [None, [], ["RU", 1, None], {}, {"a": {"b": 1}}, 10**80, 1e308, "a" * 5_000, "10.1.2.3"]
FIELDS = ["geo", "n", "a", "a.b", "a.b.c", "gone", "gone.b", "geo.x"]


def some(rng, values, count_max=3):
    return rng.sample(values, rng.randint(1, count_max))


def random_condition(rng):
    op = rng.choice(
        ["eq", "ne", "in", "not_in", "gt", "gte", "lt", "lte", "contains", "starts_with", "matches",
         "exists", "cidr"]
    )  # fmt: skip
    value = rng.choice(VALUES)
    if op in ("in", "not_in"):
        value = some(rng, VALUES, 4)
    elif op in ("gt", "gte", "lt", "lte"):
        value = rng.choice([each for each in VALUES if not isinstance(each, bool)])
    elif op in ("starts_with", "matches"):
        value = rng.choice(["R", "adm", "^a.*n$", "U$", "(?i)ADMIN", "^$", "^(a+)+$"])
    elif op == "exists":
        value = rng.random() < 0.5
    elif op == "cidr":
        value = rng.choice([rng.choice(NETWORKS), some(rng, NETWORKS)])
    return {"field": rng.choice([*FIELDS, "addr"]), "op": op, "value": value}


def random_predicate(rng, depth):
    kind = rng.choice(["not", "all", "any"]) if depth and rng.random() < 0.6 else "leaf"
    if kind == "leaf":
        return (
            {"lookup": rng.choice(["l1", "l2"])} if rng.random() < 0.15 else random_condition(rng)
        )
    if kind == "not":
        return {"not": random_predicate(rng, depth - 1)}
    return {kind: [random_predicate(rng, depth - 1) for _ in range(rng.randint(1, 2))]}


def random_rule(rng, rule_id):
    """A rule, and whether it is well formed: one of fifty is not."""
    filters = {}
    if rng.random() < 0.4:
        filters["severity"] = some(rng, ["low", "middle", "high"], 2)
    if rng.random() < 0.6:
        filters["event_type"] = some(rng, WANTED_TYPES)
    if rng.random() < 0.5:
        filters["host"] = some(rng, [*HOSTS[:6], *GLOBS])
    if rng.random() < 0.5:
        filters["ip_address"] = some(rng, NETWORKS)
    is_good = rng.random() < 0.98
    if not is_good:
        filters["ip_address"] = [*filters.get("ip_address", ()), rng.choice(BROKEN)]
    rule = {"rule_id": rule_id, "tenant_id": rng.choice(["t1", "t1", "t2"]), "filters": filters}
    if rng.random() < 0.1:
        rule["enabled"] = False
    if rng.random() < 0.5:
        depth = rng.choice([0, 1, 2, 8])
        rule["predicates"] = [random_predicate(rng, depth) for _ in range(rng.randint(1, 2))]
    return rule, is_good


def random_event(rng):
    fields = {name: rng.choice([*VALUES, *ODD]) for name in ("geo", "n", "a") if rng.random() < 0.7}
    if rng.random() < 0.5:
        fields["addr"] = rng.choice([*ADDRESSES, "nothing", 7])
    return IncidentEvent(
        event_id="e",
        tenant_id=rng.choice(["t1", "t1", "t2", "t3"]),
        occurred_at=datetime(2026, 6, 15, tzinfo=UTC),
        severity=rng.choice(list(Severity)),
        event_type=rng.choice([*TYPES, "login_ok", "login_"]),
        ip_address=rng.choice([*ADDRESSES, None]),
        host=rng.choice([*HOSTS, "web-", "-1", None]) if rng.random() < 0.9 else "y" * 200 + "-1",
        payload=fields,
    )
