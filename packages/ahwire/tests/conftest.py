"""Values of every JSON contract."""

import json
from datetime import UTC, datetime

import pytest

from ahwire import hub, notification
from ahwire.errors import DecodeError

AT = datetime(2026, 6, 15, 10, 20, 30, tzinfo=UTC)
LATER = datetime(2026, 6, 16, 10, 20, 30, 123456, tzinfo=UTC)
UUID7 = "0190163d-8694-739b-aea5-966c26f8ad90"
UUID4 = "9b2c8f3e-5d1a-4c7b-8e6f-0a1b2c3d4e5f"
HASH = "0123456789abcdef" * 4


def _record() -> hub.AgentRecord:
    return hub.AgentRecord(
        agent_id="agent-1",
        company_id="acme",
        server_id="web:1",
        state=hub.AgentState.ACTIVE,
        token_hash=HASH,
        expires_at=LATER,
        prev_token_hash="f" * 64,
        prev_token_expires_at=AT,
        version=7,
    )


def _event() -> hub.Event:
    return hub.Event(
        event_id=UUID7,
        type=hub.EventType.ALERT_RESOLVED,
        seq=1781518830000,
        occurred_at=AT,
        company_id="acme",
        server_id="web:1",
        agent_id="agent-1",
        rule_id="cpu",
        rule_version=3,
        series_key='ah_cpu{core="0"}',
        severity=hub.EventSeverity.WARNING,
        value=0.5,
        threshold=0.9,
        duration_seconds=61,
        peak_value=0.97,
        reason="rule_changed",
        suppressed=True,
        suppress_reason="maintenance",
        group_key="acme/1",
        labels={"core": "0", "zóna": "Đà Nẵng"},
    )


def _group_event() -> hub.Event:
    return hub.Event(
        event_id=UUID7,
        type=hub.EventType.GROUP_DOWN,
        seq=5,
        occurred_at=AT,
        company_id="acme",
        suppressed=False,
        group_key="acme/1",
        labels={"members": ["web:1", "web:2"], "members_count": 2},
    )


def _grant() -> hub.EnrollGrant:
    return hub.EnrollGrant(
        agent_id="agent-1",
        company_id="acme",
        server_id="web:1",
        token_hash=HASH,
        agent_token="canary-token",
        expires_at=LATER,
        version=1,
        config=hub.AgentSettings(interval_seconds=30, labels={"env": "prod"}),
    )


def _settings() -> hub.CompanySettings:
    return hub.CompanySettings(
        group_down=hub.GroupDownSettings(enabled=True, min=5, ratio=0.3, window_seconds=60),
        down_min_seconds=90,
        agent=hub.AgentSettings(
            interval_seconds=30,
            catch_up_batches=2,
            disabled_collectors=("mounts",),
            labels={"env": "prod"},
            max_point_age_seconds=3600,
        ),
    )


def _incident() -> notification.IncidentEvent:
    return notification.IncidentEvent(
        event_id="incident-456",
        tenant_id="company-a",
        occurred_at=AT,
        severity=notification.Severity.HIGH,
        event_type="suspicious_login",
        ip_address="10.10.1.5",
        host="auth-node-01",
        payload={"geo": "RU", "failed_attempts": 7, "scores": [0.5, None, True], "x": {"y": "ж"}},
    )


def _instant() -> notification.NotificationMessage:
    return notification.NotificationMessage(
        notification_uuid=UUID4,
        tenant_id="company-a",
        incident=(_incident(),),
        rule_id="rule-123",
        recipient=notification.Recipient(
            recipient_type=notification.RecipientType.TEAM, recipient_id="soc-team"
        ),
        channel=notification.Channel(channel=notification.ChannelType.EMAIL),
        delivery_mode=notification.DeliveryMode.INSTANT,
        retry=notification.Retry(attempt=0, max_attempts=4, epoch=0),
    )


def _digest() -> notification.NotificationMessage:
    return notification.NotificationMessage(
        notification_uuid=UUID4,
        tenant_id="company-a",
        incident=(
            notification.EventRef(event_id="incident-456"),
            notification.EventRef(event_id="incident-457"),
        ),
        rule_id="rule-123",
        recipient=notification.Recipient(
            recipient_type=notification.RecipientType.USER, recipient_id="u1"
        ),
        channel=notification.Channel(channel=notification.ChannelType.TELEGRAM),
        delivery_mode=notification.DeliveryMode.DIGEST,
        digest=notification.Digest(
            period_start=AT,
            period_end=LATER,
            batch_key="rule-123:u1:telegram:2026-06-15T10:20:30Z",
            batch_uuid=UUID4,
            generation=1,
            schedule_mode=notification.ScheduleMode.INSTANT_OVERFLOW,
            events_count=2,
        ),
        retry=notification.Retry(
            attempt=1,
            max_attempts=4,
            epoch=2,
            next_delay="PT1M",
            not_before=LATER,
            last_error="provider_timeout",
        ),
    )


def _rule() -> hub.ThresholdRule:
    return hub.ThresholdRule(
        rule_id="cpu-high",
        version=3,
        company_id="acme",
        servers=("web:*", "db:1"),
        matchers=(
            hub.LabelMatcher(label="core", op=hub.MatchOp.NRE, value="cpu[0-9]+|total"),
            hub.LabelMatcher(label="zone", op=hub.MatchOp.EQ, value=""),
        ),
        metric="ah_cpu_usage",
        agg=hub.Aggregation.AVG,
        agg_seconds=300,
        op=hub.ThresholdOp.GTE,
        threshold=0.9,
        resolve_threshold=0.8,
        for_seconds=60,
        keep_firing_seconds=120,
        severity=hub.EventSeverity.CRITICAL,
        reminder_seconds=3600,
        no_data=hub.NoData.ALERT,
        no_data_after_seconds=300,
        labels={"team": "Đội A"},
        enabled=False,
    )


def _least_rule() -> hub.ThresholdRule:
    return hub.ThresholdRule(
        rule_id="r",
        version=0,
        metric="m",
        op=hub.ThresholdOp.LT,
        threshold=1,
        severity=hub.EventSeverity.INFO,
    )


def _silence() -> hub.Silence:
    return hub.Silence(
        silence_id="night-work",
        company_id="acme",
        matchers=(
            hub.LabelMatcher(label="server_id", op=hub.MatchOp.RE, value="web:.*"),
            hub.LabelMatcher(label="severity", op=hub.MatchOp.NE, value="critical"),
        ),
        starts_at=AT,
        ends_at=LATER,
        recurrence=hub.Recurrence(
            weekdays=(hub.Weekday.SAT, hub.Weekday.SUN),
            from_="22:30",
            to="06:00",
            timezone="Asia/Ho_Chi_Minh",
        ),
        reason="bảo trì",
        created_by="ops",
    )


def _whole_silence() -> hub.Silence:
    return hub.Silence(silence_id="s", company_id="c", matchers=(), starts_at=AT, all=True)


VALUES = {
    "threshold_rule": _rule(),
    "threshold_rule_least": _least_rule(),
    "threshold_rules": hub.ThresholdRules(rules=(_rule(), _least_rule())),
    "silence": _silence(),
    "silence_whole_company": _whole_silence(),
    "silences": hub.Silences(silences=(_silence(), _whole_silence())),
    "fenced": hub.Fenced(newest=1781518830000),
    "renew_request": hub.RenewRequest(agent_id="agent-1"),
    "inventory_report": hub.InventoryReport(
        agent_id="agent-1", inventory={"hostname": "h", "cpus": 2, "facts": {"k": "v"}}
    ),
    "agent_record": _record(),
    "agent_record_pending": hub.AgentRecord(
        agent_id="a",
        company_id="c",
        server_id="s",
        state=hub.AgentState.PENDING,
        version=0,
    ),
    "event": _event(),
    "event_group_down": _group_event(),
    "events_request": hub.EventsRequest(events=(_event(), _group_event())),
    "events_reply": hub.EventsReply(
        accepted=(UUID7,),
        rejected=(hub.RejectedEvent(event_id=UUID7, reason="unknown company"),),
    ),
    "agent_page": hub.AgentPage(agents=(_record(),), more=True, next_since="c:1"),
    "enroll_grant": _grant(),
    "renew_grant": hub.RenewGrant(
        token_hash=HASH, agent_token="canary-token", prev_token_expires_at=LATER, version=8
    ),
    "seen_report": hub.SeenReport(seen=(hub.Seen(agent_id="agent-1", last_seen_at=AT),)),
    "heartbeat": hub.Heartbeat(
        collector_id="col-1",
        version="0.1.0",
        at=AT,
        agents=3,
        agents_down=1,
        companies={"acme": 2, "b": 1},
        batches_per_second=0.1,
        samples_per_second=12,
        outbox_depth=0,
    ),
    "company_settings": _settings(),
    "company_settings_empty": hub.CompanySettings(),
    "incident_event": _incident(),
    "notification_instant": _instant(),
    "notification_digest": _digest(),
    "rule_changed": notification.RuleChangedEvent(
        event_type=notification.RuleChange.UPDATED,
        tenant_id="company-a",
        rule_id="rule-123",
        occurred_at=AT,
    ),
}


@pytest.fixture(params=sorted(VALUES))
def contract(request: pytest.FixtureRequest) -> tuple[str, hub.AgentRecord]:
    """(name, value) of each JSON contract in turn; the name is that of its golden vector."""
    return request.param, VALUES[request.param]


@pytest.fixture
def values() -> dict[str, object]:
    return dict(VALUES)


DROP = "<dropped>"  # given to `changed`, takes the field away


@pytest.fixture
def changed():
    """Gives a value's document with one place set to something else, or dropped."""

    def change(value, path, new):
        document = json.loads(value.to_json())
        place = document
        for step in path[:-1]:
            place = place[step]
        if new == DROP:
            del place[path[-1]]
        else:
            place[path[-1]] = new
        return json.dumps(document).encode()

    return change


@pytest.fixture
def refusal():
    """Gives the DecodeError with which a contract refuses bytes."""

    def refuse(kind, data):
        with pytest.raises(DecodeError) as caught:
            kind.from_json(data)
        return caught.value

    return refuse
