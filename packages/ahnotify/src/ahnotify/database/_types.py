"""Column types that mean the same on every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import sqlalchemy as sa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An instant. Microseconds since 1970 as an integer on SQLite, TIMESTAMPTZ on PostgreSQL.

    SQLite has no time type, and text compares wrongly when one writer leaves out a zero fraction;
    integers compare as instants do. Naive datetimes are refused.
    """

    impl = sa.BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[datetime]:
        """The type of this dialect."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(sa.BigInteger())  # type: ignore[arg-type]  # stores the instant's microseconds

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> object:
        """Python to database."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime names no instant; give an aware one")
        if dialect.name == "postgresql":
            return value
        return (value.astimezone(UTC) - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: object, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Database to Python: always aware, always UTC."""
        if value is None:
            return None
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        if isinstance(value, int):
            return _EPOCH + timedelta(microseconds=value)
        raise TypeError(f"the database gave {type(value).__name__} where an instant was stored")


#: A counter of the database's own; SQLite counts only INTEGER keys.
RowId: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
