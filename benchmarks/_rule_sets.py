"""Rules and events as tenants have them: what is matched in the benchmarks."""

import json
import random
from collections.abc import Sequence
from typing import Any

from ahwire import IncidentEvent

SEVERITIES = ("low", "middle", "high")
TYPES = tuple(
    f"{area}_{what}"
    for area in ("agent", "alert", "login", "audit", "disk", "network", "backup", "license")
    for what in ("opened", "resolved", "failed", "down", "up", "denied", "changed", "slow",
                 "expired", "blocked", "added", "removed", "retried", "late", "flapping")
)  # fmt: skip
COUNTRIES = ("RU", "KR", "DE", "US", "CN", "BR", "IN", "FR", "GB", "JP", "NL", "PL")
PREFIX_BITS = (32, 32, 32, 32, 28, 27, 26, 24, 24, 24, 22, 20, 16, 12)
RULES_A_TENANT = 600

Rule = dict[str, Any]


class Tenants:
    """Tenants of uneven size (the share of the k-th is as 1 / (k + 2)), each with its own hosts."""

    def __init__(self, rules: int) -> None:
        """Make so many tenants that `rules` rules are some hundred a tenant."""
        count = max(4, rules // RULES_A_TENANT)
        self.names = [f"tenant-{number}" for number in range(count)]
        self.weights = [1 / (number + 2) for number in range(count)]
        total = sum(self.weights)
        self.hosts = {
            name: [
                f"{kind}-{number}.{name}"
                for number in range(1 + int(rules * weight / total / 8))
                for kind in ("web", "db", "auth", "mail")
            ]
            for name, weight in zip(self.names, self.weights, strict=True)
        }

    def choose(self, rng: random.Random) -> str:
        """One tenant, the large ones more often: they have more rules and more events."""
        return rng.choices(self.names, self.weights)[0]


def _network(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return f"2001:db8:{rng.randrange(4096):x}::/48"
    bits = rng.choice(PREFIX_BITS)
    number = (rng.choice((10, 172, 185, 192)) << 24 | rng.getrandbits(24)) >> (32 - bits)
    number <<= 32 - bits
    address = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
    return address if bits == 32 else f"{address}/{bits}"


def _condition(rng: random.Random) -> Rule:
    kind = rng.random()
    if kind < 0.35:
        return {"field": "geo", "op": "in", "value": rng.sample(COUNTRIES, rng.randint(1, 3))}
    if kind < 0.6:
        return {"field": "score", "op": "gte", "value": rng.choice((50, 70, 90))}
    if kind < 0.75:
        return {"field": "login.user", "op": "starts_with", "value": rng.choice(("adm", "svc-"))}
    if kind < 0.85:
        return {"not": {"field": "reason", "op": "in", "value": ["removed", "maintenance"]}}
    if kind < 0.95:
        pattern = rng.choice((r"^(root|admin)$", r"^svc-\d+$", r"(?i)^test"))
        return {"field": "login.user", "op": "matches", "value": pattern}
    return {"any": [_condition(rng), {"field": "vip", "op": "exists", "value": True}]}


def _filters(rng: random.Random, hosts: Sequence[str]) -> Rule:
    """Nine rules of ten are about certain hosts or networks; the others about a type anywhere."""
    filters: Rule = {}
    kind = rng.random()
    if kind < 0.6:
        # A third of these name a group of hosts by a glob.
        names = rng.sample(hosts, min(len(hosts), rng.randint(1, 3)))
        filters["host"] = [names[0].split(".")[0][:-1] + "?.*"] if rng.random() < 0.33 else names
    if 0.5 < kind < 0.9:
        filters["ip_address"] = [_network(rng) for _ in range(rng.randint(1, 3))]
    if kind >= 0.9 or rng.random() < 0.75:
        filters["event_type"] = rng.sample(TYPES, rng.randint(1, 3))
        if kind < 0.9 and rng.random() < 0.15:
            filters["event_type"] = [rng.choice(TYPES).split("_")[0] + "_*"]
    if rng.random() < 0.6:
        filters["severity"] = rng.sample(SEVERITIES, rng.randint(1, 2))
    return filters


def make_rules(count: int, tenants: Tenants) -> list[Rule]:
    """Rules as JSON values: 60 % with hosts, 40 % with networks, 30 % with predicates.

    Args:
        count: How many.
        tenants: Whose they are.
    """
    rng = random.Random(count)
    rules = []
    for number in range(count):
        tenant_id = tenants.choose(rng)
        rule: Rule = {
            "rule_id": f"rule-{number:06d}",
            "tenant_id": tenant_id,
            "name": f"Rule number {number}",
            "enabled": rng.random() < 0.97,
            "filters": _filters(rng, tenants.hosts[tenant_id]),
            "recipients": [{"recipient_type": "team", "recipient_id": f"team-{number % 7}"}],
            "channels": ["email"],
            "schedule": {"mode": "instant"},
            "timezone": "Europe/Berlin",
        }
        if rng.random() < 0.3:
            rule["predicates"] = [_condition(rng) for _ in range(rng.randint(1, 2))]
        rules.append(rule)
    return rules


def make_events(count: int, tenants: Tenants) -> list[IncidentEvent]:
    """Events of the same tenants, hosts and types; every address is another one.

    Args:
        count: How many.
        tenants: To whom they happened.
    """
    rng = random.Random(-count)
    events = []
    for number in range(count):
        tenant_id = tenants.choose(rng)
        v6 = rng.random() < 0.1
        address = (
            f"2001:db8:{rng.randrange(4096):x}::{rng.randrange(65536):x}"
            if v6
            else ".".join(map(str, (rng.choice((10, 172, 185, 192)), *rng.randbytes(3))))
        )
        document = {
            "event_id": f"0190b6f2-0000-7000-8000-{number:012d}",
            "tenant_id": tenant_id,
            "occurred_at": "2026-06-15T10:20:00Z",
            "severity": rng.choice(SEVERITIES),
            "event_type": rng.choice(TYPES),
            "ip_address": address,
            "host": rng.choice(tenants.hosts[tenant_id]),
            "payload": {
                "geo": rng.choice(COUNTRIES),
                "score": rng.randrange(100),
                "reason": rng.choice(("threshold", "removed", "never_reported")),
                "login": {"user": rng.choice(("root", "admin", "svc-17", "kim")), "method": "key"},
            },
        }
        events.append(IncidentEvent.from_json(json.dumps(document).encode()))
    return events
