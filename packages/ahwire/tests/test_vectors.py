"""The golden vectors: bytes that programs of other versions and languages have on disk and wire."""

import hashlib
from pathlib import Path

import pytest

from ahwire import remote_write_pb2
from ahwire.agent_pb2 import (
    AgentConfig,
    AgentStats,
    EnrollRequest,
    EnrollResponse,
    ErrorBody,
    Inventory,
    Label,
    MetricsAck,
    MetricsBatch,
    Point,
    RejectedSeries,
    RenewResponse,
    Series,
)
from ahwire.remote_write_pb2 import Request, WriteRequest

VECTORS = Path(__file__).parent / "vectors"

MESSAGES = {
    "metrics_batch": MetricsBatch(
        seq=1781518830000,
        sent_at_ms=1781518831000,
        collected_at_ms=1781518830000,
        series=[
            Series(
                name="cpu_usage",
                labels=[Label(name="core", value="0"), Label(name="zone", value="Đà Nẵng")],
                points=[Point(ts_ms=1781518830000, value=0.5), Point(ts_ms=-1, value=-0.0)],
            )
        ],
        stats=AgentStats(
            cpu_percent=0.25,
            rss_bytes=50_000_000,
            wal_bytes=1,
            wal_batches=2,
            dropped_samples_total=3,
            send_failures_total=4,
            clock_skew_seconds=-1.5,
            wal_dropped_batches_total=5,
            delivery_state="ok",
            interval_seconds=30,
        ),
    ),
    "metrics_ack": MetricsAck(
        server_time_ms=1781518832000,
        ack_seq=1781518830000,
        config_etag="e1",
        accepted_points=1,
        dropped_points=1,
        warnings=["w"],
        rejected=[RejectedSeries(index=0, code="too_old", points=1)],
        renew_token=True,
    ),
    "agent_config": AgentConfig(
        etag="e1",
        interval_seconds=30,
        catch_up_batches=2,
        disabled_collectors=["mounts"],
        labels={"env": "prod"},
        max_point_age_seconds=3600,
    ),
    "enroll_request": EnrollRequest(
        license="l",
        machine_id="m",
        hostname="h",
        os="linux",
        arch="x86_64",
        agent_version="0.1.0",
        labels={"env": "prod"},
    ),
    "enroll_response": EnrollResponse(
        agent_id="a",
        company_id="c",
        server_id="s",
        agent_token="t",
        collector_url="https://collector.example",
        config=AgentConfig(interval_seconds=30),
        token_expires_at_ms=1,
    ),
    "renew_response": RenewResponse(
        agent_token="t", previous_valid_until_ms=1, token_expires_at_ms=2
    ),
    "inventory": Inventory(
        collected_at_ms=1,
        hostname="h",
        os="linux",
        kernel="6.1",
        arch="x86_64",
        cpus=2,
        memory_bytes=1 << 33,
        facts={"k": "v"},
    ),
    "write_request": WriteRequest(
        timeseries=[
            remote_write_pb2.TimeSeries(
                labels=[
                    remote_write_pb2.Label(name="__name__", value="up"),
                    remote_write_pb2.Label(name="zone", value="Đà Nẵng"),
                ],
                samples=[
                    remote_write_pb2.Sample(value=1, timestamp=1781518830000),
                    remote_write_pb2.Sample(value=-0.0, timestamp=-1),
                ],
                exemplars=[remote_write_pb2.Exemplar(timestamp=5)],
                histograms=[remote_write_pb2.Histogram(timestamp=6)],
            )
        ],
        metadata=[
            remote_write_pb2.MetricMetadata(
                type=2, metric_family_name="up", help="h", unit="seconds"
            )
        ],
    ),
    "request": Request(
        symbols=["", "__name__", "up", "help"],
        timeseries=[
            remote_write_pb2.SymbolSeries(
                labels_refs=[1, 2],
                samples=[remote_write_pb2.Sample(value=1, timestamp=1781518830000)],
                histograms=[remote_write_pb2.Histogram(timestamp=6)],
                exemplars=[remote_write_pb2.Exemplar(timestamp=5)],
                metadata=remote_write_pb2.SymbolMetadata(type=2, help_ref=3, unit_ref=0),
                created_timestamp=7,
            )
        ],
    ),
    "error_body": ErrorBody(code="rate_limited", message="slow down"),
}


# Beginnings of their SHA-256. A vector is never changed: a line here is only ever added.
PINNED = {
    "agent_config.hex": "12ded661ec948823",
    "agent_page.json": "ea27f2ac1aff1544",
    "agent_record.json": "fd0b6d75abb8ab18",
    "agent_record_pending.json": "3a41f65bdf3feb77",
    "company_settings.json": "688cbe23d0b01a17",
    "company_settings_empty.json": "44136fa355b3678a",
    "enroll_grant.json": "0eeb3d855bc03916",
    "enroll_request.hex": "9bd5c62d6f3affa1",
    "enroll_response.hex": "0067c745c41846d0",
    "error_body.hex": "ae89212082dca086",
    "event.json": "0c973020c0541622",
    "event_group_down.json": "8d916cb6bc1c3678",
    "events_reply.json": "de8e6058533007c5",
    "events_request.json": "2c4029ffd1f013a3",
    "fenced.json": "cf3cc8c258b58f6d",
    "heartbeat.json": "7edda6d29c0cb7fa",
    "incident_event.json": "5fc6fd0700718899",
    "inventory.hex": "bec0f7f1dc2ac1da",
    "inventory_report.json": "5a75e877c380bdde",
    "metrics_ack.hex": "e200e26524011dd8",
    "metrics_batch.hex": "47ac44ba3bc134b1",
    "notification_digest.json": "955f3b24f08c6e11",
    "notification_instant.json": "dd62369b3bccd329",
    "renew_grant.json": "b0664dfad22ad180",
    "renew_request.json": "b9171daa13c67874",
    "renew_response.hex": "f4352e800c100c52",
    "request.hex": "ebea4a271d0f2727",
    "rule_changed.json": "f3611131ca0839af",
    "seen_report.json": "2e16649866c68149",
    "silence.json": "2e601275bd968005",
    "silence_whole_company.json": "15a7b94c3987d926",
    "silences.json": "7f6c5135a65c17fc",
    "threshold_rule.json": "d41cd2846422198a",
    "threshold_rule_least.json": "a970c1faea8029ba",
    "threshold_rules.json": "e64bd35766c104f4",
    "write_request.hex": "4ed20c2a128ede44",
}


def test_no_vector_was_ever_changed():
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(VECTORS.iterdir())
    }
    assert found == PINNED


def test_contract_encodes_to_its_vector_byte_for_byte(contract):
    name, value = contract
    assert value.to_json() == (VECTORS / f"{name}.json").read_bytes()


def test_vector_decodes_to_its_contract(contract):
    name, value = contract
    assert type(value).from_json((VECTORS / f"{name}.json").read_bytes()) == value


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_message_encodes_to_its_vector_and_back(name):
    golden = bytes.fromhex((VECTORS / f"{name}.hex").read_text())
    assert MESSAGES[name].SerializeToString(deterministic=True) == golden
    assert type(MESSAGES[name]).FromString(golden) == MESSAGES[name]


def test_every_vector_belongs_to_a_test(values):
    expected = {f"{name}.json" for name in values} | {f"{name}.hex" for name in MESSAGES}
    assert {path.name for path in VECTORS.iterdir()} == expected
