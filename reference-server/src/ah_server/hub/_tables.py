"""The hub's tables. Times are Unix milliseconds; bodies that other parts own are JSON text.

The development hub keeps its state in one SQLite file and makes the tables itself: it plays a
system that exists elsewhere, so there is nothing to migrate. `meta.schema` refuses a file of
another version.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

metadata = MetaData()

licenses = Table(
    "licenses",
    metadata,
    Column("license_hash", Text, primary_key=True),
    Column("company_id", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger),
    Column("machine_id", Text),
    Column("agent_id", Text),
)

agents = Table(
    "agents",
    metadata,
    Column("agent_id", Text, primary_key=True),
    Column("company_id", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("machine_id", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("token_hash", Text, unique=True),
    Column("expires_ms", BigInteger),
    Column("prev_token_hash", Text, unique=True),
    Column("prev_expires_ms", BigInteger),
    Column("version", BigInteger, nullable=False),
    # Rises with every change of any agent: the cursor of `GET /agents?since=`.
    Column("change", BigInteger, nullable=False, unique=True),
    Column("last_seen_ms", BigInteger),
    Column("inventory", Text),
)

events = Table(
    "events",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("event_id", Text, nullable=False, unique=True),
    Column("company_id", Text, nullable=False),
    Column("server_id", Text),
    Column("agent_id", Text),
    Column("type", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("received_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("events_by_company", "company_id", "position"),
    sqlite_autoincrement=True,
)

# Events that came behind one of their state with a higher seq; a table of its own, so that a file
# of an earlier version gets it when it is opened.
late_events = Table(
    "late_events",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=False),
    # What the newest event of the state was then.
    Column("newest_type", Text, nullable=False),
)

states = Table(
    "states",
    metadata,
    Column("state_key", Text, primary_key=True),
    Column("company_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("company_id", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

heartbeats = Table(
    "heartbeats",
    metadata,
    Column("collector_id", Text, primary_key=True),
    Column("received_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)

alerting_lists = Table(
    "alerting_lists",
    metadata,
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
