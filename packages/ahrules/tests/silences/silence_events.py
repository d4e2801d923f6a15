"""Events and silences of one company, by the minute."""

from datetime import UTC, datetime, timedelta

from ahwire.hub import Event, EventSeverity, EventType, LabelMatcher, MatchOp, Silence

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(minutes):
    return START + minutes * MINUTE


def event(kind="alert.opened", minute=0, server="web1", number=1, **values):
    given = {
        "event_id": f"0190b6f2-0000-7000-8000-{number:012x}",
        "type": EventType(kind),
        "seq": number,
        "occurred_at": at(minute),
        "company_id": "c1",
        "server_id": server,
        "rule_id": "cpu",
        "series_key": "cpu{}",
        "severity": EventSeverity.WARNING,
        "suppressed": False,
    }
    return Event(**(given | values))


def silence(start, end, server="web1", silence_id="s"):
    return Silence(
        silence_id=silence_id,
        company_id="c1",
        matchers=(LabelMatcher(label="server_id", op=MatchOp.EQ, value=server),),
        starts_at=at(start),
        ends_at=None if end is None else at(end),
    )
