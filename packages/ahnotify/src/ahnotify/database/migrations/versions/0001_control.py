"""The tables that people write: tenants, recipients, contacts, rules, keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from ahnotify.database import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "tenants",
    "recipients",
    "recipient_members",
    "contacts",
    "notification_rules",
    "api_keys",
    "audit_log",
)


def upgrade() -> None:
    """Make every table, those that others point to first."""
    _create_tenants()
    _create_recipients()
    _create_recipient_members()
    _create_contacts()
    _create_notification_rules()
    _create_api_keys()
    _create_audit_log()


def downgrade() -> None:
    """Drop every table and its indexes."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_tenants")),
    )


def _create_recipients() -> None:
    op.create_table(
        "recipients",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("recipient_type", sa.Text(), nullable=False),
        sa.Column("recipient_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "recipient_type IN ('user', 'team', 'group')", name=op.f("ck_recipients_type")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_recipients_tenants")
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id", "recipient_type", "recipient_id", name=op.f("pk_recipients")
        ),
    )


def _create_recipient_members() -> None:
    op.create_table(
        "recipient_members",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("recipient_type", sa.Text(), nullable=False),
        sa.Column("recipient_id", sa.Text(), nullable=False),
        sa.Column("member_type", sa.Text(), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_recipient_members_tenants")
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id",
            "recipient_type",
            "recipient_id",
            "member_type",
            "member_id",
            name=op.f("pk_recipient_members"),
        ),
    )


def _create_contacts() -> None:
    op.create_table(
        "contacts",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("contact_id", sa.Text(), nullable=False),
        sa.Column("recipient_type", sa.Text(), nullable=False),
        sa.Column("recipient_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_contacts_tenants")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "contact_id", name=op.f("pk_contacts")),
        sa.UniqueConstraint(
            "tenant_id",
            "recipient_type",
            "recipient_id",
            "channel",
            "address",
            name=op.f("uq_contacts_tenant_id_recipient_type_recipient_id_channel_address"),
        ),
    )


def _create_notification_rules() -> None:
    op.create_table(
        "notification_rules",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("deleted_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_notification_rules_tenants")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "rule_id", name=op.f("pk_notification_rules")),
    )
    op.create_index(
        "ix_notification_rules_revision", "notification_rules", ["revision"], unique=False
    )


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "role IN ('viewer', 'editor', 'admin', 'operator')", name=op.f("ck_api_keys_role")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_api_keys_tenants")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "key_id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_id", name=op.f("uq_api_keys_key_id")),
    )


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index("ix_audit_log_tenant_id", "audit_log", ["tenant_id", "id"], unique=False)
