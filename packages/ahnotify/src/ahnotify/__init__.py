"""The notification center: incidents in, the right message to the right person out.

`Matching` decides who is told, `Scheduling` makes digests, `Sending` delivers, each alone in a
process or beside the others; the database is the truth and the broker is transport. `rules_app` is
the API of those who write rules. What needs an extra is imported late, so that each extra is needed
only by those who use it: `rules_app` needs `[web]`, the e-mail provider `[email]`, SQLite
`[sqlite]`.
"""

from typing import TYPE_CHECKING, Any

from ahnotify.broker.base import Broker
from ahnotify.broker.sql import SqlBroker
from ahnotify.database import Database, downgrade, migrate
from ahnotify.directory import ApiKeys, Directory
from ahnotify.history import History
from ahnotify.incidents.sql import IncidentRecorder, SqlIncidentStore
from ahnotify.matching import Matching, publish_incidents
from ahnotify.providers.base import Channel, Provider
from ahnotify.rules import RuleCache, RuleStore
from ahnotify.scheduling import Scheduling
from ahnotify.sending import DeadLetterRecorder, RetrySchedule, Sending

if TYPE_CHECKING:
    from ahnotify.api import rules_app

__all__ = [
    "ApiKeys",
    "Broker",
    "Channel",
    "Database",
    "DeadLetterRecorder",
    "Directory",
    "History",
    "IncidentRecorder",
    "Matching",
    "Provider",
    "RetrySchedule",
    "RuleCache",
    "RuleStore",
    "Scheduling",
    "Sending",
    "SqlBroker",
    "SqlIncidentStore",
    "downgrade",
    "migrate",
    "publish_incidents",
    "rules_app",
]


def __getattr__(name: str) -> Any:
    if name == "rules_app":
        from ahnotify.api import rules_app  # noqa: PLC0415 - needs an extra

        return rules_app
    raise AttributeError(f"module 'ahnotify' has no attribute {name!r}")
