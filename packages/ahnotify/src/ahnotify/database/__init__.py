"""The notification database: tables, migrations, transactions."""

from ahnotify.database import _runtime_tables  # noqa: F401 - fills the metadata
from ahnotify.database._control_tables import metadata
from ahnotify.database._engine import Database
from ahnotify.database._migrate import downgrade, migrate
from ahnotify.database._types import UtcDateTime

__all__ = ["Database", "UtcDateTime", "downgrade", "metadata", "migrate"]
