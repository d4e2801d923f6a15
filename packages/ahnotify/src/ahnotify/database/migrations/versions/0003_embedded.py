"""The tables of the embedded backends: job queues and incidents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from ahnotify.database import UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TABLES = (
    "broker_jobs",
    "security_incidents",
)


def upgrade() -> None:
    """Make every table, those that others point to first."""
    _create_broker_jobs()
    _create_security_incidents()


def downgrade() -> None:
    """Drop every table and its indexes."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_broker_jobs() -> None:
    op.create_table(
        "broker_jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("visible_at", UtcDateTime(), nullable=False),
        sa.Column("receipt", sa.Text(), nullable=True),
        sa.Column("delivery_count", sa.Integer(), nullable=False),
        sa.Column("published_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_broker_jobs")),
    )
    op.create_index(
        "ix_broker_jobs_ready", "broker_jobs", ["queue", "visible_at", "id"], unique=False
    )


def _create_security_incidents() -> None:
    op.create_table(
        "security_incidents",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("occurred_at", UtcDateTime(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("ip_address", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "event_id", name=op.f("pk_security_incidents")),
    )
