"""Tables that people write: tenants, recipients, contacts, rules, keys, and the log of changes."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from ahnotify.database._types import RowId, UtcDateTime

metadata: Final = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant_id", sa.Text, sa.ForeignKey("tenants.tenant_id"), primary_key=True)


tenants: Final = sa.Table(
    "tenants",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("timezone", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
)

recipients: Final = sa.Table(
    "recipients",
    metadata,
    _tenant(),
    sa.Column("recipient_type", sa.Text, primary_key=True),
    sa.Column("recipient_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.CheckConstraint("recipient_type IN ('user', 'team', 'group')", name="type"),
)

#: Who is in a team or a group. A team holds users, a group holds users and teams.
recipient_members: Final = sa.Table(
    "recipient_members",
    metadata,
    _tenant(),
    sa.Column("recipient_type", sa.Text, primary_key=True),
    sa.Column("recipient_id", sa.Text, primary_key=True),
    sa.Column("member_type", sa.Text, primary_key=True),
    sa.Column("member_id", sa.Text, primary_key=True),
)

contacts: Final = sa.Table(
    "contacts",
    metadata,
    _tenant(),
    sa.Column("contact_id", sa.Text, primary_key=True),
    sa.Column("recipient_type", sa.Text, nullable=False),
    sa.Column("recipient_id", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("verified", sa.Boolean, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("tenant_id", "recipient_type", "recipient_id", "channel", "address"),
)

#: Deleted rules stay with `deleted_at`: history names them, and caches must hear of the end.
#: `revision` grows with every change of any rule; a cache asks for what is above what it knows.
notification_rules: Final = sa.Table(
    "notification_rules",
    metadata,
    _tenant(),
    sa.Column("rule_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("owner_id", sa.Text, nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("deleted_at", UtcDateTime),
    sa.Index("ix_notification_rules_revision", "revision"),
)

#: `key_hash` is SHA-256 of the whole key: keys are 256 random bits, so a slow hash adds nothing.
api_keys: Final = sa.Table(
    "api_keys",
    metadata,
    _tenant(),
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("key_hash", sa.LargeBinary, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("revoked_at", UtcDateTime),
    sa.UniqueConstraint("key_id"),
    sa.CheckConstraint("role IN ('viewer', 'editor', 'admin', 'operator')", name="role"),
)

audit_log: Final = sa.Table(
    "audit_log",
    metadata,
    sa.Column("id", RowId, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Index("ix_audit_log_tenant_id", "tenant_id", "id"),
)
