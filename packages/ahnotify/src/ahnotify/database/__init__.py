"""The notification database: tables, migrations, transactions."""

from ahnotify.database._control_tables import metadata
from ahnotify.database._engine import Database
from ahnotify.database._migrate import downgrade, migrate
from ahnotify.database._runtime_tables import notification_decisions as _decisions
from ahnotify.database._types import UtcDateTime

# Importing the second table module is what fills the metadata.
assert _decisions.metadata is metadata

__all__ = ["Database", "UtcDateTime", "downgrade", "metadata", "migrate"]
