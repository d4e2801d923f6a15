"""Tables that the zones write: decisions, digests, deliveries, dead letters, incidents, jobs.

States and who moves them (an arrow that is not drawn is never taken):

    notification_batches  collecting -scheduling-> queued -sending-> sent | failed
    digest_batches        queued -sending-> sent | failed
    delivery_targets      pending -> sent | failed | retry | unknown
                          retry, unknown -> (claimed) pending
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from ahnotify.database._control_tables import metadata
from ahnotify.database._types import RowId, UtcDateTime

notification_decisions: Final = sa.Table(
    "notification_decisions",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("event_id", sa.Text, primary_key=True),
    sa.Column("rule_id", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, primary_key=True),
    sa.Column("recipient_type", sa.Text, primary_key=True),
    sa.Column("recipient_id", sa.Text, primary_key=True),
    sa.Column("notification_uuid", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("period_start", UtcDateTime),
    sa.Column("period_end", UtcDateTime),
    # The NotificationMessage of an instant decision, as it is published.
    sa.Column("message", sa.LargeBinary),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("published_at", UtcDateTime),
    # Set when its first attempt ended: then it no longer counts against the tenant's share.
    sa.Column("settled_at", UtcDateTime),
    sa.UniqueConstraint("tenant_id", "notification_uuid"),
    sa.CheckConstraint("mode IN ('instant', 'digest', 'instant_overflow')", name="mode"),
    sa.Index(
        "ix_notification_decisions_unpublished",
        "tenant_id",
        "created_at",
        sqlite_where=sa.text("mode = 'instant' AND published_at IS NULL"),
        postgresql_where=sa.text("mode = 'instant' AND published_at IS NULL"),
    ),
    sa.Index(
        "ix_notification_decisions_outstanding",
        "tenant_id",
        sqlite_where=sa.text("published_at IS NOT NULL AND settled_at IS NULL"),
        postgresql_where=sa.text("published_at IS NOT NULL AND settled_at IS NULL"),
    ),
)

notification_batches: Final = sa.Table(
    "notification_batches",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("group_id", sa.Text, nullable=False),
    sa.Column("batch_uuid", sa.Text),
    sa.Column("generation", sa.Integer),
    sa.Column("notification_uuid", sa.Text, nullable=False),
    sa.Column("rule_id", sa.Text, nullable=False),
    sa.Column("recipient_type", sa.Text, nullable=False),
    sa.Column("recipient_id", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("schedule_mode", sa.Text, nullable=False),
    sa.Column("period_start", UtcDateTime, nullable=False),
    sa.Column("period_end", UtcDateTime, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("event_type", sa.Text, nullable=False),
    sa.Column("occurred_at", UtcDateTime, nullable=False),
    sa.Column("severity", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("queued_at", UtcDateTime),
    sa.Column("sent_at", UtcDateTime),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint(
        "tenant_id",
        "event_id",
        "rule_id",
        "recipient_type",
        "recipient_id",
        "channel",
        "period_start",
        "period_end",
        name="uq_notification_batches_event",
    ),
    sa.CheckConstraint("status IN ('collecting', 'queued', 'sent', 'failed')", name="status"),
    sa.CheckConstraint("schedule_mode IN ('digest', 'instant_overflow')", name="schedule_mode"),
    sa.Index(
        "ix_notification_batches_collecting",
        "tenant_id",
        "group_id",
        sqlite_where=sa.text("status = 'collecting'"),
        postgresql_where=sa.text("status = 'collecting'"),
    ),
    sa.Index("ix_notification_batches_batch", "tenant_id", "batch_uuid", "occurred_at", "id"),
)

#: One row a group: what schedulers lock. `collecting_since` is null when no row waits.
digest_groups: Final = sa.Table(
    "digest_groups",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("group_id", sa.Text, primary_key=True),
    sa.Column("rule_id", sa.Text, nullable=False),
    sa.Column("recipient_type", sa.Text, nullable=False),
    sa.Column("recipient_id", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("schedule_mode", sa.Text, nullable=False),
    sa.Column("period_start", UtcDateTime, nullable=False),
    sa.Column("period_end", UtcDateTime, nullable=False),
    sa.Column("next_generation", sa.Integer, nullable=False),
    sa.Column("collecting_since", UtcDateTime),
    sa.Column("last_row_at", UtcDateTime),
    sa.Index(
        "ix_digest_groups_collecting",
        "period_end",
        sqlite_where=sa.text("collecting_since IS NOT NULL"),
        postgresql_where=sa.text("collecting_since IS NOT NULL"),
    ),
)

digest_batches: Final = sa.Table(
    "digest_batches",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("batch_uuid", sa.Text, primary_key=True),
    sa.Column("group_id", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("events_count", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("queued_at", UtcDateTime, nullable=False),
    sa.Column("published_at", UtcDateTime),
    sa.Column("finished_at", UtcDateTime),
    sa.UniqueConstraint("tenant_id", "group_id", "generation"),
    sa.CheckConstraint("status IN ('queued', 'sent', 'failed')", name="status"),
    sa.Index(
        "ix_digest_batches_unpublished",
        "queued_at",
        sqlite_where=sa.text("published_at IS NULL"),
        postgresql_where=sa.text("published_at IS NULL"),
    ),
)

#: One row a contact of one notification, frozen at the first attempt.
#: `finished_at` set means final: no attempt follows, whatever arrives.
delivery_targets: Final = sa.Table(
    "delivery_targets",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("notification_uuid", sa.Text, primary_key=True),
    sa.Column("target_id", sa.Text, primary_key=True),
    sa.Column("contact_id", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", UtcDateTime),
    # `tries` counts calls, `attempt` those that count against the limit (being told to wait does
    # not).
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("unknown_count", sa.Integer, nullable=False),
    sa.Column("provider_message_id", sa.Text),
    sa.Column("error_code", sa.Text),
    sa.Column("next_attempt_at", UtcDateTime),
    # The message to publish again should the broker lose the retry.
    sa.Column("message", sa.LargeBinary),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.CheckConstraint(
        "status IN ('pending', 'sent', 'retry', 'failed', 'unknown')", name="status"
    ),
    sa.Index(
        "ix_delivery_targets_waiting",
        "next_attempt_at",
        sqlite_where=sa.text("next_attempt_at IS NOT NULL"),
        postgresql_where=sa.text("next_attempt_at IS NOT NULL"),
    ),
)

delivery_attempts: Final = sa.Table(
    "delivery_attempts",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("notification_uuid", sa.Text, nullable=False),
    sa.Column("target_id", sa.Text, nullable=False),
    sa.Column("try_number", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("provider_message_id", sa.Text),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.UniqueConstraint("tenant_id", "notification_uuid", "target_id", "try_number"),
    sa.CheckConstraint(
        "status IN ('started', 'sent', 'retry', 'failed', 'unknown')", name="status"
    ),
)

delivery_results: Final = sa.Table(
    "delivery_results",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("delivery_message_id", sa.Text, primary_key=True),
    sa.Column("notification_uuid", sa.Text, nullable=False),
    sa.Column("batch_uuid", sa.Text),
    # The one event of an instant message; null for digests, so that the constraint skips them.
    sa.Column("event_id", sa.Text),
    sa.Column("rule_id", sa.Text, nullable=False),
    sa.Column("events_count", sa.Integer, nullable=False),
    sa.Column("event_ids", sa.JSON, nullable=False),
    sa.Column("recipient_type", sa.Text, nullable=False),
    sa.Column("recipient_id", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("provider_message_id", sa.Text),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.UniqueConstraint(
        "tenant_id",
        "notification_uuid",
        "rule_id",
        "channel",
        "recipient_type",
        "recipient_id",
        name="uq_delivery_results_notification",
    ),
    sa.UniqueConstraint(
        "tenant_id",
        "event_id",
        "rule_id",
        "channel",
        "recipient_type",
        "recipient_id",
        name="uq_delivery_results_event",
    ),
    sa.CheckConstraint(
        "status IN ('pending', 'sent', 'retry', 'failed', 'unknown')", name="status"
    ),
    sa.Index("ix_delivery_results_created", "tenant_id", "created_at"),
)

#: `tenant_id` is empty for what could not be decoded: it belongs to the operator.
dead_letters: Final = sa.Table(
    "dead_letters",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("letter_id", sa.Text, primary_key=True),
    sa.Column("source_queue", sa.Text, nullable=False),
    sa.Column("message_id", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("message", sa.LargeBinary, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Index("ix_dead_letters_created", "tenant_id", "created_at"),
)

security_incidents: Final = sa.Table(
    "security_incidents",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("event_id", sa.Text, primary_key=True),
    sa.Column("occurred_at", UtcDateTime, nullable=False),
    sa.Column("severity", sa.Text, nullable=False),
    sa.Column("event_type", sa.Text, nullable=False),
    sa.Column("ip_address", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

#: The embedded broker's queues; see `ahnotify.broker.sql`.
broker_jobs: Final = sa.Table(
    "broker_jobs",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("message_id", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("headers", sa.JSON, nullable=False),
    sa.Column("visible_at", UtcDateTime, nullable=False),
    sa.Column("receipt", sa.Text),
    sa.Column("delivery_count", sa.Integer, nullable=False),
    sa.Column("published_at", UtcDateTime, nullable=False),
    sa.Index("ix_broker_jobs_ready", "queue", "visible_at", "id"),
)
