"""The application, or an error that names the extra it needs."""

from __future__ import annotations

from ahcollector._extras import missing_extra

try:
    from ahcollector.ingest._document import openapi_document
    from ahcollector.ingest._headers import IPNetwork
    from ahcollector.ingest._shell import Check
    from ahcollector.ingest.app import ingest_app
    from ahcollector.ingest.limits import IngestLimits
except ModuleNotFoundError as error:
    raise missing_extra("ahcollector.ingest", "http", error) from error

__all__ = ["Check", "IPNetwork", "IngestLimits", "ingest_app", "openapi_document"]
