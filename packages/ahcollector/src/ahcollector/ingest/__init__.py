"""The ASGI application that agents talk to (extra ``[http]``)."""

from ahcollector.budget.series_budget import SeriesBudget
from ahcollector.ingest._extra import (
    Check,
    IngestLimits,
    IPNetwork,
    ingest_app,
    openapi_document,
)

__all__ = [
    "Check",
    "IPNetwork",
    "IngestLimits",
    "SeriesBudget",
    "ingest_app",
    "openapi_document",
]
