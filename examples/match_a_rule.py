"""Which rule matches an incident, why another does not, and which digest it falls in."""

from datetime import UTC, datetime

from ahrules import Schedule, bucket, compile_rules, explain
from ahwire import IncidentEvent
from ahwire.notification import Severity


def main() -> None:
    """Matches one incident against two rules."""
    tell = {
        "recipients": [{"recipient_type": "user", "recipient_id": "ann"}],
        "channels": ["email"],
    }
    rules = compile_rules(
        [
            {
                "rule_id": "silence",
                "tenant_id": "acme",
                "filters": {"event_type": ["agent_*"]},
                **tell,
            },
            {
                "rule_id": "office",
                "tenant_id": "acme",
                "filters": {"ip_address": ["10.0.0.0/8"]},
                **tell,
            },
        ]
    )
    incident = IncidentEvent(
        event_id="e-1",
        tenant_id="acme",
        occurred_at=datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        severity=Severity.HIGH,
        event_type="agent_down",
        host="web1",
        payload={},
    )
    print("matched:", [match.rule_id for match in rules.match(incident)])
    for rule in rules.rules.values():
        for condition in explain(rule, incident).failed:
            print(f"{rule.rule_id} did not match: {condition}")
    hourly = bucket(incident.occurred_at, Schedule(1, "hours", "Europe/Berlin"))
    print("hourly digest:", hourly.start.isoformat(), "to", hourly.end.isoformat())


if __name__ == "__main__":
    main()
