"""How Alembic runs our scripts: on the connection that `ahnotify.database.migrate` made."""

from __future__ import annotations

from alembic import context

from ahnotify.database import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    # SQLite cannot alter most things in place: batch mode copies the table instead.
    render_as_batch=connection.dialect.name == "sqlite",
    version_table="ahnotify_version",
)
with context.begin_transaction():
    context.run_migrations()
connection.commit()
