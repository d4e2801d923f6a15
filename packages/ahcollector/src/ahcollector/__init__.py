"""Takes in batches from many agents, keeps companies apart, stores samples, notices silence.

The parts meet in small protocols, each with an implementation in memory and shared ones:

- `ahcollector.ingest`: `ingest_app`, the ASGI application agents talk to (extra ``[http]``).
- `ahcollector.admin`: `admin_app`, the ASGI application operators talk to (extra ``[http]``).
- `ahcollector.registry`, `ahcollector.enroll`, `ahcollector.hub`: who is who, by the hub's word.
- `ahcollector.presence`, `ahcollector.detector`: who was heard when, and who fell silent.
- `ahcollector.bus`, `ahcollector.worker`, `ahcollector.store`: samples on their way.
- `ahcollector.departures`: who was deleted, so that nothing of it comes back.
- `ahcollector.alerts`: threshold rules and silences of the hub, judged over samples.
- `ahcollector.outbox`: events until the hub has them.

The two applications need an extra, so they are imported only when they are asked for.
"""

from typing import TYPE_CHECKING, Any

from ahcollector.bus.base import Bus, SampleBatch, StoredSeries, shard_for
from ahcollector.errors import CollectorError
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import AgentRef, Presence
from ahcollector.registry.base import Registry
from ahcollector.store.base import Store

if TYPE_CHECKING:
    from ahcollector.admin import admin_app
    from ahcollector.ingest import ingest_app

__all__ = [
    "AgentRef",
    "Bus",
    "CollectorError",
    "Outbox",
    "Presence",
    "Registry",
    "SampleBatch",
    "Store",
    "StoredSeries",
    "admin_app",
    "ingest_app",
    "shard_for",
]


def __getattr__(name: str) -> Any:
    # starlette is an extra: who only wants a Bus must be able to import this package without it.
    if name == "ingest_app":
        from ahcollector.ingest import ingest_app  # noqa: PLC0415 - see above

        return ingest_app
    if name == "admin_app":
        from ahcollector.admin import admin_app  # noqa: PLC0415 - see above

        return admin_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
