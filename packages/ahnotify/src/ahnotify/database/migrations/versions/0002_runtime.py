"""The tables that the zones write: decisions, digests, deliveries, dead letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from ahnotify.database import UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TABLES = (
    "dead_letters",
    "delivery_attempts",
    "delivery_results",
    "delivery_targets",
    "digest_batches",
    "digest_groups",
    "notification_batches",
    "notification_decisions",
)


def upgrade() -> None:
    """Make every table, those that others point to first."""
    _create_dead_letters()
    _create_delivery_attempts()
    _create_delivery_results()
    _create_delivery_targets()
    _create_digest_batches()
    _create_digest_groups()
    _create_notification_batches()
    _create_notification_decisions()


def downgrade() -> None:
    """Drop every table and its indexes."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("letter_id", sa.Text(), nullable=False),
        sa.Column("source_queue", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.LargeBinary(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "letter_id", name=op.f("pk_dead_letters")),
    )
    op.create_index(
        "ix_dead_letters_created", "dead_letters", ["tenant_id", "created_at"], unique=False
    )


def _create_delivery_attempts() -> None:
    op.create_table(
        "delivery_attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("notification_uuid", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("try_number", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("provider_message_id", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "status IN ('started', 'sent', 'retry', 'failed', 'unknown')",
            name=op.f("ck_delivery_attempts_status"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery_attempts")),
        sa.UniqueConstraint(
            "tenant_id",
            "notification_uuid",
            "target_id",
            "try_number",
            name=op.f("uq_delivery_attempts_tenant_id_notification_uuid_target_id_try_number"),
        ),
    )


def _create_delivery_results() -> None:
    op.create_table(
        "delivery_results",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("delivery_message_id", sa.Text(), nullable=False),
        sa.Column("notification_uuid", sa.Text(), nullable=False),
        sa.Column("batch_uuid", sa.Text(), nullable=True),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("events_count", sa.Integer(), nullable=False),
        sa.Column("event_ids", sa.JSON(), nullable=False),
        sa.Column("recipient_type", sa.Text(), nullable=False),
        sa.Column("recipient_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("provider_message_id", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'sent', 'retry', 'failed', 'unknown')",
            name=op.f("ck_delivery_results_status"),
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id", "delivery_message_id", name=op.f("pk_delivery_results")
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
        sa.UniqueConstraint(
            "tenant_id",
            "notification_uuid",
            "rule_id",
            "channel",
            "recipient_type",
            "recipient_id",
            name="uq_delivery_results_notification",
        ),
    )
    op.create_index(
        "ix_delivery_results_created", "delivery_results", ["tenant_id", "created_at"], unique=False
    )


def _create_delivery_targets() -> None:
    op.create_table(
        "delivery_targets",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("notification_uuid", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("contact_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_until", UtcDateTime(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("unknown_count", sa.Integer(), nullable=False),
        sa.Column("provider_message_id", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("next_attempt_at", UtcDateTime(), nullable=True),
        sa.Column("message", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'sent', 'retry', 'failed', 'unknown')",
            name=op.f("ck_delivery_targets_status"),
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id", "notification_uuid", "target_id", name=op.f("pk_delivery_targets")
        ),
    )
    op.create_index(
        "ix_delivery_targets_waiting",
        "delivery_targets",
        ["next_attempt_at"],
        unique=False,
        sqlite_where=sa.text("next_attempt_at IS NOT NULL"),
        postgresql_where=sa.text("next_attempt_at IS NOT NULL"),
    )


def _create_digest_batches() -> None:
    op.create_table(
        "digest_batches",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("batch_uuid", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("events_count", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("queued_at", UtcDateTime(), nullable=False),
        sa.Column("published_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "status IN ('queued', 'sent', 'failed')", name=op.f("ck_digest_batches_status")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "batch_uuid", name=op.f("pk_digest_batches")),
        sa.UniqueConstraint(
            "tenant_id",
            "group_id",
            "generation",
            name=op.f("uq_digest_batches_tenant_id_group_id_generation"),
        ),
    )
    op.create_index(
        "ix_digest_batches_unpublished",
        "digest_batches",
        ["queued_at"],
        unique=False,
        sqlite_where=sa.text("published_at IS NULL"),
        postgresql_where=sa.text("published_at IS NULL"),
    )


def _create_digest_groups() -> None:
    op.create_table(
        "digest_groups",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("recipient_type", sa.Text(), nullable=False),
        sa.Column("recipient_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("schedule_mode", sa.Text(), nullable=False),
        sa.Column("period_start", UtcDateTime(), nullable=False),
        sa.Column("period_end", UtcDateTime(), nullable=False),
        sa.Column("next_generation", sa.Integer(), nullable=False),
        sa.Column("collecting_since", UtcDateTime(), nullable=True),
        sa.Column("last_row_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "group_id", name=op.f("pk_digest_groups")),
    )
    op.create_index(
        "ix_digest_groups_collecting",
        "digest_groups",
        ["period_end"],
        unique=False,
        sqlite_where=sa.text("collecting_since IS NOT NULL"),
        postgresql_where=sa.text("collecting_since IS NOT NULL"),
    )


def _create_notification_batches() -> None:
    op.create_table(
        "notification_batches",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("batch_uuid", sa.Text(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("notification_uuid", sa.Text(), nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("recipient_type", sa.Text(), nullable=False),
        sa.Column("recipient_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("schedule_mode", sa.Text(), nullable=False),
        sa.Column("period_start", UtcDateTime(), nullable=False),
        sa.Column("period_end", UtcDateTime(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("occurred_at", UtcDateTime(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("queued_at", UtcDateTime(), nullable=True),
        sa.Column("sent_at", UtcDateTime(), nullable=True),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "schedule_mode IN ('digest', 'instant_overflow')",
            name=op.f("ck_notification_batches_schedule_mode"),
        ),
        sa.CheckConstraint(
            "status IN ('collecting', 'queued', 'sent', 'failed')",
            name=op.f("ck_notification_batches_status"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification_batches")),
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
    )
    op.create_index(
        "ix_notification_batches_batch",
        "notification_batches",
        ["tenant_id", "batch_uuid", "occurred_at", "id"],
        unique=False,
    )
    op.create_index(
        "ix_notification_batches_collecting",
        "notification_batches",
        ["tenant_id", "group_id"],
        unique=False,
        sqlite_where=sa.text("status = 'collecting'"),
        postgresql_where=sa.text("status = 'collecting'"),
    )


def _create_notification_decisions() -> None:
    op.create_table(
        "notification_decisions",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("recipient_type", sa.Text(), nullable=False),
        sa.Column("recipient_id", sa.Text(), nullable=False),
        sa.Column("notification_uuid", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("period_start", UtcDateTime(), nullable=True),
        sa.Column("period_end", UtcDateTime(), nullable=True),
        sa.Column("message", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("published_at", UtcDateTime(), nullable=True),
        sa.Column("settled_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "mode IN ('instant', 'digest', 'instant_overflow')",
            name=op.f("ck_notification_decisions_mode"),
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id",
            "event_id",
            "rule_id",
            "channel",
            "recipient_type",
            "recipient_id",
            name=op.f("pk_notification_decisions"),
        ),
        sa.UniqueConstraint(
            "tenant_id",
            "notification_uuid",
            name=op.f("uq_notification_decisions_tenant_id_notification_uuid"),
        ),
    )
    op.create_index(
        "ix_notification_decisions_outstanding",
        "notification_decisions",
        ["tenant_id"],
        unique=False,
        sqlite_where=sa.text("published_at IS NOT NULL AND settled_at IS NULL"),
        postgresql_where=sa.text("published_at IS NOT NULL AND settled_at IS NULL"),
    )
    op.create_index(
        "ix_notification_decisions_unpublished",
        "notification_decisions",
        ["tenant_id", "created_at"],
        unique=False,
        sqlite_where=sa.text("mode = 'instant' AND published_at IS NULL"),
        postgresql_where=sa.text("mode = 'instant' AND published_at IS NULL"),
    )
